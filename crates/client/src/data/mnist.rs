//! MNIST: handwritten digits of 28 by 28 pixels, read from the four IDX files, compressed or not.
//!
//! [`read_data_sets`] reads them from a directory; [`embedded`] gives the smaller set that is compiled in, for programs
//! that shall run without a download.

use flate2::read::GzDecoder;
use linalg::random::{Philox, Words};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tensor::{DType, Error, Result, Tensor, data_loss, invalid, not_found};

/// Height and width of a picture.
pub const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: usize = 10;

/// How the digits are wanted.
///
/// ```
/// use ferroflow::data::mnist::{self, MnistOptions};
///
/// let options = MnistOptions { one_hot: true, seed: Some(1), ..Default::default() };
/// let mut digits = mnist::embedded(&options)?;
/// let (images, labels) = digits.train.next_batch(100);
/// assert_eq!((images.dims(), labels.dims()), (&[100, 784][..], &[100, 10][..]));
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MnistOptions {
    /// Whether a label is a row of ten floats, all 0 but one, rather than an int64.
    pub one_hot: bool,
    /// Float for pixels from 0 to 1, uint8 for pixels from 0 to 255.
    pub dtype: DType,
    /// Whether a picture is a row of 784 pixels, rather than 28 by 28 by 1.
    pub reshape: bool,
    /// How many of the training digits are set apart for validation: the first ones.
    pub validation_size: usize,
    /// What the order of the batches is drawn from; another order in each run if not said.
    pub seed: Option<u64>,
}

impl Default for MnistOptions {
    fn default() -> MnistOptions {
        MnistOptions { one_hot: false, dtype: DType::F32, reshape: true, validation_size: 5000, seed: None }
    }
}

/// The digits in their three parts.
#[derive(Clone, Debug)]
pub struct DataSets {
    /// To train on.
    pub train: DataSet,
    /// To choose settings by.
    pub validation: DataSet,
    /// To see what was learned.
    pub test: DataSet,
}

/// Pictures and their labels.
#[derive(Clone, Debug)]
pub struct DataSet {
    pixels: Arc<[u8]>,
    labels: Arc<[u8]>,
    options: MnistOptions,
    order: Order,
    epochs_completed: usize,
}

/// The files of one part.
struct Part {
    images: &'static str,
    labels: &'static str,
}

const TRAIN: Part = Part { images: "train-images-idx3-ubyte", labels: "train-labels-idx1-ubyte" };
const TEST: Part = Part { images: "t10k-images-idx3-ubyte", labels: "t10k-labels-idx1-ubyte" };

/// The digits in the four files of a directory, each with or without `.gz`.
pub fn read_data_sets(dir: impl AsRef<Path>, options: &MnistOptions) -> Result<DataSets> {
    let dir = dir.as_ref();
    let part = |part: &Part| {
        let open = |name| open(dir, name);
        read_part(open(part.images)?, open(part.labels)?)
    };
    split(part(&TRAIN)?, part(&TEST)?, options)
}

/// The digits that are compiled in: 15,000 to train on, 2,000 to test with.
///
/// The first 2,000 training digits stand for all, and so make a fair validation set; the others are hard to tell.
pub fn embedded(options: &MnistOptions) -> Result<DataSets> {
    const TRAIN_IMAGES: &[u8] = include_bytes!("../../data/mnist/train-images-idx3-ubyte.gz");
    const TRAIN_LABELS: &[u8] = include_bytes!("../../data/mnist/train-labels-idx1-ubyte.gz");
    const TEST_IMAGES: &[u8] = include_bytes!("../../data/mnist/t10k-images-idx3-ubyte.gz");
    const TEST_LABELS: &[u8] = include_bytes!("../../data/mnist/t10k-labels-idx1-ubyte.gz");
    let file = |name: &str, bytes| File { path: format!("{name} (embedded)"), bytes: Box::new(GzDecoder::new(bytes)) };
    let train = read_part(file(TRAIN.images, TRAIN_IMAGES), file(TRAIN.labels, TRAIN_LABELS))?;
    let test = read_part(file(TEST.images, TEST_IMAGES), file(TEST.labels, TEST_LABELS))?;
    split(train, test, options)
}

/// Pixels and labels, as many as go together.
type Digits = (Vec<u8>, Vec<u8>);

fn split((pixels, labels): Digits, test: Digits, options: &MnistOptions) -> Result<DataSets> {
    if !matches!(options.dtype, DType::F32 | DType::U8) {
        return Err(invalid!("Invalid image dtype {}, expected uint8 or float32", options.dtype));
    }
    let size = options.validation_size;
    if size > labels.len() {
        return Err(invalid!("Validation size should be between 0 and {}. Received: {size}.", labels.len()));
    }
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    let data_set = |part: u64, pixels: &[u8], labels: &[u8]| DataSet {
        pixels: pixels.into(),
        labels: labels.into(),
        options: options.clone(),
        order: Order::new(labels.len(), Philox::new(seed, part)),
        epochs_completed: 0,
    };
    Ok(DataSets {
        train: data_set(0, &pixels[size * PIXELS..], &labels[size..]),
        validation: data_set(1, &pixels[..size * PIXELS], &labels[..size]),
        test: data_set(2, &test.0, &test.1),
    })
}

impl DataSet {
    /// How many digits there are.
    pub fn num_examples(&self) -> usize {
        self.labels.len()
    }

    /// How often all of them have been given out by [`next_batch`](DataSet::next_batch).
    pub fn epochs_completed(&self) -> usize {
        self.epochs_completed
    }

    /// The next pictures and their labels, each epoch in another order. Where an epoch ends within a batch, the batch is
    /// filled up from the next.
    pub fn next_batch(&mut self, count: usize) -> (Tensor, Tensor) {
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count && self.num_examples() > 0 {
            if self.order.is_over() {
                self.order.shuffle();
                self.epochs_completed += 1;
            }
            chosen.extend_from_slice(self.order.take(count - chosen.len()));
        }
        self.digits(&chosen)
    }

    /// All pictures, in the order of the files.
    pub fn images(&self) -> Tensor {
        self.pictures(0..self.num_examples())
    }

    /// All labels, in the order of the files.
    pub fn labels(&self) -> Tensor {
        self.answers(0..self.num_examples())
    }

    fn digits(&self, chosen: &[usize]) -> (Tensor, Tensor) {
        (self.pictures(chosen.iter().copied()), self.answers(chosen.iter().copied()))
    }

    fn pictures(&self, chosen: impl ExactSizeIterator<Item = usize>) -> Tensor {
        let count = chosen.len();
        let mut bytes = Vec::with_capacity(count * PIXELS);
        chosen.for_each(|i| bytes.extend_from_slice(&self.pixels[i * PIXELS..(i + 1) * PIXELS]));
        let shape = if self.options.reshape { vec![count, PIXELS] } else { vec![count, SIDE, SIDE, 1] };
        let pictures = match self.options.dtype {
            DType::U8 => Tensor::from_vec(shape, bytes),
            _ => Tensor::from_vec(shape, bytes.iter().map(|&pixel| f32::from(pixel) / 255.0).collect::<Vec<f32>>()),
        };
        pictures.expect("a row of pixels for each picture")
    }

    fn answers(&self, chosen: impl ExactSizeIterator<Item = usize>) -> Tensor {
        let count = chosen.len();
        let labels = chosen.map(|i| self.labels[i]);
        let answers = match self.options.one_hot {
            true => {
                let mut rows = vec![0.0f32; count * CLASSES];
                labels.enumerate().for_each(|(row, label)| rows[row * CLASSES + usize::from(label)] = 1.0);
                Tensor::from_vec([count, CLASSES], rows)
            }
            false => Tensor::from_vec([count], labels.map(i64::from).collect::<Vec<i64>>()),
        };
        answers.expect("an answer for each picture")
    }
}

/// An epoch after another, each in an order of its own.
#[derive(Clone)]
struct Order {
    indices: Vec<usize>,
    next: usize,
    random: Words,
}

impl Order {
    fn new(count: usize, random: Philox) -> Order {
        let mut order = Order { indices: (0..count).collect(), next: 0, random: random.words() };
        order.shuffle();
        order
    }

    fn is_over(&self) -> bool {
        self.next == self.indices.len()
    }

    fn take(&mut self, count: usize) -> &[usize] {
        let start = self.next;
        self.next = self.indices.len().min(start + count);
        &self.indices[start..self.next]
    }

    fn shuffle(&mut self) {
        self.next = 0;
        for i in (1..self.indices.len()).rev() {
            self.indices.swap(i, below(&mut self.random, i + 1));
        }
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.next, self.indices.len())
    }
}

/// A random number below another, which is not 0.
pub(super) fn below(random: &mut Words, end: usize) -> usize {
    let word = (u64::from(random.next_word()) << 32) | u64::from(random.next_word());
    ((u128::from(word) * end as u128) >> 64) as usize
}

/// The unpacked bytes of a file, and what to call it in errors.
struct File<'a> {
    path: String,
    bytes: Box<dyn Read + 'a>,
}

/// Opens a file under its plain or its packed name.
fn open(dir: &Path, name: &str) -> Result<File<'static>> {
    let plain = dir.join(name);
    let packed = dir.join(format!("{name}.gz"));
    let failed = |path: &Path, e: std::io::Error| {
        let e = Error::from(e);
        Error { message: format!("{}: {}", path.display(), e.message), ..e }
    };
    if plain.exists() {
        let file = std::fs::File::open(&plain).map_err(|e| failed(&plain, e))?;
        return Ok(File { path: plain.display().to_string(), bytes: Box::new(std::io::BufReader::new(file)) });
    }
    match std::fs::File::open(&packed) {
        Ok(file) => Ok(File { path: packed.display().to_string(), bytes: Box::new(GzDecoder::new(file)) }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(not_found!("{}: wanted the MNIST file {name}, with or without .gz, found neither", dir.display()))
        }
        Err(e) => Err(failed(&packed, e)),
    }
}

fn read_part(images: File<'_>, labels: File<'_>) -> Result<Digits> {
    let (images_path, labels_path) = (images.path.clone(), labels.path.clone());
    let (shape, pixels) = read_idx::<3>(images)?;
    let ([count], labels) = read_idx::<1>(labels)?;
    if shape[1..] != [SIDE; 2] {
        return Err(data_loss!(
            "{images_path}: wanted pictures of {SIDE} by {SIDE}, found {} by {}",
            shape[1],
            shape[2]
        ));
    }
    if shape[0] != count {
        return Err(data_loss!("{images_path} holds {} pictures, but {labels_path} {count} labels", shape[0]));
    }
    match labels.iter().position(|&label| usize::from(label) >= CLASSES) {
        Some(i) => Err(data_loss!("{labels_path}: wanted labels from 0 to 9, found {} at {i}", labels[i])),
        None => Ok((pixels, labels)),
    }
}

/// An IDX file of bytes: a magic number that tells type and rank, the sizes, and the bytes themselves.
fn read_idx<const RANK: usize>(mut file: File<'_>) -> Result<([usize; RANK], Vec<u8>)> {
    let path = &file.path;
    let broken = |e: std::io::Error| data_loss!("{path}: cannot be read as an IDX file: {e}");
    let mut next = || -> Result<u32> {
        let mut four = [0; 4];
        file.bytes.read_exact(&mut four).map_err(broken)?;
        Ok(u32::from_be_bytes(four))
    };
    let (magic, wanted) = (next()?, 0x0800 + RANK as u32);
    if magic != wanted {
        return Err(data_loss!(
            "{path}: wanted an IDX file of bytes with {RANK} dimensions (magic number {wanted}), found magic number {magic}"
        ));
    }
    let mut shape = [0; RANK];
    for size in &mut shape {
        *size = next()? as usize;
    }
    let length = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    let length = length.ok_or_else(|| data_loss!("{path}: sizes {shape:?} are too large"))?;
    // One more than wanted, so that too many are noticed. The vector grows as bytes come, whatever the sizes say.
    let mut bytes = Vec::new();
    file.bytes.take(length as u64 + 1).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() != length {
        let found = if bytes.len() > length { "more".to_string() } else { bytes.len().to_string() };
        return Err(data_loss!("{path}: sizes {shape:?} want {length} bytes, found {found}"));
    }
    Ok((shape, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tensor::Code;

    /// An IDX file of bytes.
    fn idx(shape: &[u32], bytes: &[u8]) -> Vec<u8> {
        let mut file = vec![0, 0, 8, shape.len() as u8];
        shape.iter().for_each(|size| file.extend(size.to_be_bytes()));
        file.extend_from_slice(bytes);
        file
    }

    /// Pictures whose pixels are all the digit's number, and their labels.
    fn part(labels: &[u8]) -> [Vec<u8>; 2] {
        let pixels: Vec<u8> = labels.iter().flat_map(|&label| [label; PIXELS]).collect();
        let count = labels.len() as u32;
        [idx(&[count, 28, 28], &pixels), idx(&[count], labels)]
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    /// A directory of four files, some of them packed.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let [images, labels] = part(&[7, 3, 9, 1, 5]);
        let [test_images, test_labels] = part(&[2, 4]);
        let files = [
            ("train-images-idx3-ubyte.gz", gzip(&images)),
            ("train-labels-idx1-ubyte", labels),
            ("t10k-images-idx3-ubyte", test_images),
            ("t10k-labels-idx1-ubyte.gz", gzip(&test_labels)),
        ];
        files.iter().for_each(|(name, bytes)| std::fs::write(folder.path().join(name), bytes).unwrap());
        folder
    }

    fn options() -> MnistOptions {
        MnistOptions { validation_size: 2, seed: Some(5), ..Default::default() }
    }

    #[test]
    fn the_first_training_digits_are_set_apart() {
        let sets = read_data_sets(folder().path(), &options()).unwrap();
        let labels = |set: &DataSet| set.labels().to_i64s().unwrap();
        assert_eq!(labels(&sets.validation), [7, 3]);
        assert_eq!(labels(&sets.train), [9, 1, 5]);
        assert_eq!(labels(&sets.test), [2, 4]);
        assert_eq!(sets.train.images().dims(), [3, 784]);
        assert_eq!(sets.train.images().as_slice::<f32>().unwrap()[0], 9.0 / 255.0);

        let as_bytes = MnistOptions { dtype: DType::U8, reshape: false, one_hot: true, ..options() };
        let test = read_data_sets(folder().path(), &as_bytes).unwrap().test;
        assert_eq!(test.images().dims(), [2, 28, 28, 1]);
        assert_eq!(test.images().as_slice::<u8>().unwrap()[784], 4);
        let rows: Vec<f32> = test.labels().into_vec().unwrap();
        assert_eq!(rows, [0., 0., 1., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 1., 0., 0., 0., 0., 0.]);
    }

    #[test]
    fn every_epoch_gives_each_digit_once_and_pictures_go_with_their_labels() {
        let mut train = read_data_sets(folder().path(), &options()).unwrap().train;
        let mut labels = Vec::new();
        for _ in 0..6 {
            let (images, answers) = train.next_batch(2);
            for (row, label) in answers.to_i64s().unwrap().into_iter().enumerate() {
                assert_eq!(images.as_slice::<f32>().unwrap()[row * 784 + 5], label as f32 / 255.0);
                labels.push(label);
            }
        }
        assert_eq!(train.epochs_completed(), 3, "the fourth epoch is at its end, but no fifth has begun");
        for epoch in labels.chunks_mut(3) {
            epoch.sort();
            assert_eq!(epoch, [1, 5, 9]);
        }
        let (images, _) = train.next_batch(7);
        assert_eq!(images.dims(), [7, 784]);
    }

    #[test]
    fn a_seed_gives_the_same_batches() {
        let folder = folder();
        let [images, labels] = part(&std::array::from_fn::<u8, 100, _>(|i| i as u8 % 10));
        std::fs::write(folder.path().join("t10k-images-idx3-ubyte"), images).unwrap();
        std::fs::write(folder.path().join("t10k-labels-idx1-ubyte"), labels).unwrap();
        let batches = |seed| {
            let mut sets = read_data_sets(folder.path(), &MnistOptions { seed, ..options() }).unwrap();
            sets.test.next_batch(100).1.to_i64s().unwrap()
        };
        assert_eq!(batches(Some(1)), batches(Some(1)));
        assert_ne!(batches(Some(1)), batches(Some(2)));
        assert_ne!(batches(None), batches(None));
    }

    #[test]
    fn the_embedded_digits_are_whole() {
        let sets = embedded(&MnistOptions { validation_size: 2000, ..Default::default() }).unwrap();
        let counts = [&sets.train, &sets.validation, &sets.test].map(DataSet::num_examples);
        assert_eq!(counts, [13_000, 2000, 2000]);
        for set in [&sets.train, &sets.validation, &sets.test] {
            let labels = set.labels().to_i64s().unwrap();
            assert!((0..10).all(|digit| labels.iter().filter(|&&label| label == digit).count() * 25 > labels.len()));
        }
        let images = sets.test.images();
        let pixels = images.as_slice::<f32>().unwrap();
        let mean = pixels.iter().sum::<f32>() / pixels.len() as f32;
        assert!((mean - 0.1307).abs() < 0.01, "{mean} is not the mean of MNIST");
    }

    #[test]
    fn broken_files_are_told_with_what_was_found() {
        let [images, labels] = part(&[1, 2]);
        let short = &images[..images.len() - 1];
        let cases: [(&str, Option<Vec<u8>>, &str); 8] = [
            ("train-images-idx3-ubyte", None, "wanted the MNIST file train-images-idx3-ubyte, with or without .gz"),
            (
                "train-images-idx3-ubyte",
                Some(labels.clone()),
                "with 3 dimensions (magic number 2051), found magic number 2049",
            ),
            ("train-images-idx3-ubyte", Some(short.to_vec()), "sizes [2, 28, 28] want 1568 bytes, found 1567"),
            ("train-images-idx3-ubyte", Some([&images[..], &[0]].concat()), "want 1568 bytes, found more"),
            ("train-images-idx3-ubyte", Some(idx(&[u32::MAX; 3], &[])), "4294967295] "),
            ("train-images-idx3-ubyte", Some(idx(&[1, 2, 3], &[0; 6])), "pictures of 28 by 28, found 2 by 3"),
            ("train-labels-idx1-ubyte", Some(idx(&[2], &[1, 10])), "labels from 0 to 9, found 10 at 1"),
            ("train-labels-idx1-ubyte", Some(idx(&[1], &[1])), "train-images-idx3-ubyte holds 2 pictures, but "),
        ];
        for (name, contents, wanted) in cases {
            let folder = tempfile::tempdir().unwrap();
            for (name, good) in [(TRAIN.images, &images), (TRAIN.labels, &labels)] {
                std::fs::write(folder.path().join(name), good).unwrap();
            }
            match contents {
                Some(bytes) => std::fs::write(folder.path().join(name), bytes).unwrap(),
                None => std::fs::remove_file(folder.path().join(name)).unwrap(),
            }
            let error = read_data_sets(folder.path(), &options()).unwrap_err();
            assert!(error.message.contains(wanted) && error.message.contains(name), "{error}");
        }
        let folder = folder();
        let packed = folder.path().join("train-images-idx3-ubyte.gz");
        let half = std::fs::read(&packed).unwrap();
        std::fs::write(&packed, &half[..half.len() / 2]).unwrap();
        let error = read_data_sets(folder.path(), &options()).unwrap_err();
        assert_eq!(error.code, Code::DataLoss);
        assert!(error.message.contains("train-images-idx3-ubyte.gz: cannot be read as an IDX file"), "{error}");
    }

    #[test]
    fn wishes_that_cannot_be_met_are_refused() {
        let folder = folder();
        let many = MnistOptions { validation_size: 6, ..options() };
        let error = read_data_sets(folder.path(), &many).unwrap_err();
        assert_eq!(error.message, "Validation size should be between 0 and 5. Received: 6.");
        let halves = MnistOptions { dtype: DType::F64, ..options() };
        assert_eq!(read_data_sets(folder.path(), &halves).unwrap_err().code, Code::InvalidArgument);
    }
}
