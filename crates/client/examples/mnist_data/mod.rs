//! Handwritten digits: the MNIST files, or pictures made up to be as easy to tell apart.

use ferroflow::prelude::*;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How an example is asked to train: `--data_dir DIR --steps N`.
pub struct Flags {
    /// Where the MNIST files are; made-up pictures if not said.
    pub data_dir: Option<PathBuf>,
    /// How many steps to train.
    pub steps: usize,
}

impl Flags {
    /// What the command line says.
    pub fn parse(steps: usize) -> Result<Flags> {
        let mut flags = Flags { data_dir: None, steps };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag.to_string(), Some(value.to_string())),
                None => (word, words.next()),
            };
            match (flag.as_str(), value) {
                ("--data_dir", Some(value)) => flags.data_dir = Some(value.into()),
                ("--steps", Some(value)) => {
                    let steps = value.parse();
                    flags.steps = steps.map_err(|_| tensor::invalid!("--steps wants a number, found '{value}'"))?;
                }
                _ => return Err(tensor::invalid!("usage: [--data_dir DIR] [--steps N], found '{flag}'")),
            }
        }
        Ok(flags)
    }
}

/// Pictures of 28 by 28 and their digits.
pub struct Digits {
    images: Vec<f32>,
    labels: Vec<u8>,
    next: usize,
}

/// The pictures to train on, and those to test with.
pub fn load(data_dir: Option<&Path>) -> Result<(Digits, Digits)> {
    match data_dir {
        Some(dir) => Ok((Digits::read(dir, "train")?, Digits::read(dir, "t10k")?)),
        None => Ok((Digits::made_up(2000, 1), Digits::made_up(500, 2))),
    }
}

impl Digits {
    fn read(dir: &Path, which: &str) -> Result<Digits> {
        let images = unpack(&dir.join(format!("{which}-images-idx3-ubyte")), 16)?;
        let labels = unpack(&dir.join(format!("{which}-labels-idx1-ubyte")), 8)?;
        if images.len() != labels.len() * 784 || labels.is_empty() || labels.iter().any(|&l| l > 9) {
            let dir = dir.display();
            return Err(tensor::data_loss!("{dir}: {} labels do not go with {} pixels", labels.len(), images.len()));
        }
        Ok(Digits { images: images.iter().map(|&p| f32::from(p) / 255.0).collect(), labels, next: 0 })
    }

    /// Each digit is a pattern of its own, under noise.
    fn made_up(count: usize, seed: u64) -> Digits {
        let mut patterns = Noise(1234);
        let patterns: Vec<f32> = (0..7840).map(|_| patterns.next()).collect();
        let mut noise = Noise(seed);
        let labels: Vec<u8> = (0..count).map(|_| (noise.next() * 10.0) as u8 % 10).collect();
        let pixel = |label: u8, i: usize, noise: f32| 0.7 * patterns[label as usize * 784 + i] + 0.3 * noise;
        let images = labels.iter().flat_map(|&l| (0..784).map(move |i| (l, i)));
        let images = images.map(|(label, i)| pixel(label, i, noise.next())).collect();
        Digits { images, labels, next: 0 }
    }

    /// How many pictures there are.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// The next pictures (batch, 784) and their digits, one-hot (batch, 10); after the last comes the first again.
    pub fn batch(&mut self, count: usize) -> Result<(Tensor, Tensor)> {
        let count = count.min(self.count());
        if self.next + count > self.count() {
            self.next = 0;
        }
        let range = self.next..self.next + count;
        self.next = range.end;
        let mut digits = vec![0.0f32; count * 10];
        for (row, &label) in self.labels[range.clone()].iter().enumerate() {
            digits[row * 10 + label as usize] = 1.0;
        }
        let images = &self.images[range.start * 784..range.end * 784];
        Ok((Tensor::from_slice([count, 784], images)?, Tensor::from_vec([count, 10], digits)?))
    }
}

/// The bytes of a file behind its heading, unpacked if it is packed.
fn unpack(path: &Path, heading: usize) -> Result<Vec<u8>> {
    let packed = path.with_extension("gz");
    let mut bytes = Vec::new();
    if path.exists() {
        std::fs::File::open(path)?.read_to_end(&mut bytes)?;
    } else {
        flate2::read::GzDecoder::new(std::fs::File::open(packed)?).read_to_end(&mut bytes)?;
    }
    Ok(bytes.split_off(heading.min(bytes.len())))
}

/// Numbers from 0 to 1 that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}
