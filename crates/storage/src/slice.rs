//! Boxes cut out of tensors: how a partitioned variable is stored in parts, and put together again.
//!
//! A [`TensorSlice`] is what a graph or a file says, where a dimension may be taken whole without saying how large it
//! is; within a known shape it becomes a [`Region`], and regions know how elements move from one to the other.

use std::fmt;

use proto::tensor_slice_proto::Extent;
use tensor::{Result, Shape};

/// A part of a tensor: for each dimension a range, or all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSlice {
    /// Start and length, or `None` for the whole dimension.
    extents: Vec<Option<(i64, i64)>>,
}

impl TensorSlice {
    /// All of a tensor of this rank.
    pub fn whole(rank: usize) -> Self {
        Self { extents: vec![None; rank] }
    }

    /// Reads the form `0,3:-`: per dimension `start,length`, or `-` for all of it; empty for a scalar.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || tensor::invalid!("\"{text}\" is not a slice: wanted start,length or - per dimension, joined by :");
        let extent = |part: &str| match part {
            "-" => Ok(None),
            _ => {
                let (start, len) = part.split_once(',').ok_or_else(bad)?;
                let start = start.parse::<i64>().ok().filter(|&start| start >= 0).ok_or_else(bad)?;
                let len = len.parse::<i64>().ok().filter(|&len| len > 0).ok_or_else(bad)?;
                Ok(Some((start, len)))
            }
        };
        let parts = text.split(':').filter(|_| !text.is_empty());
        Ok(Self { extents: parts.map(extent).collect::<Result<_>>()? })
    }

    /// Reads the form `5 2 0,3:-`, in which save and restore ops say what part of which shape a tensor is.
    pub fn parse_with_shape(text: &str) -> Result<(Shape, Self)> {
        let (dims, slice) = text.rsplit_once(' ').unwrap_or(("", text));
        let dims = dims.split(' ').filter(|dim| !dim.is_empty()).map(|dim| {
            dim.parse::<i64>().map_err(|_| tensor::invalid!("\"{dim}\" is not a size in shape and slice \"{text}\""))
        });
        let shape = Shape::checked(dims.collect::<Result<Vec<_>>>()?)?;
        let slice = Self::parse(slice)?;
        slice.within(&shape)?;
        Ok((shape, slice))
    }

    /// The shape of this part of a tensor of the given shape.
    pub fn shape_within(&self, full: &Shape) -> Result<Shape> {
        Ok(self.within(full)?.len.into())
    }

    pub(crate) fn from_proto(message: &proto::TensorSliceProto) -> Self {
        let extent = |extent: &Extent| extent.length.map(|length| (extent.start, length));
        Self { extents: message.extent.iter().map(extent).collect() }
    }

    pub(crate) fn to_proto(&self) -> proto::TensorSliceProto {
        let extent = |extent: &Option<(i64, i64)>| match *extent {
            Some((start, length)) => Extent { start, length: Some(length) },
            None => Extent { start: 0, length: None },
        };
        proto::TensorSliceProto { extent: self.extents.iter().map(extent).collect() }
    }

    /// The place this has in a tensor of the given shape.
    pub(crate) fn within(&self, full: &Shape) -> Result<Region> {
        if self.extents.len() != full.rank() {
            return Err(tensor::invalid!(
                "slice {self} has {} dimensions, the shape {full} has {}",
                self.extents.len(),
                full.rank()
            ));
        }
        let mut region = Region::whole(full);
        for (axis, extent) in self.extents.iter().enumerate() {
            let Some((start, len)) = *extent else { continue };
            let (start, len) = (usize::try_from(start), usize::try_from(len));
            match (start, len) {
                (Ok(start), Ok(len)) if start.checked_add(len).is_some_and(|end| end <= full.dims()[axis]) => {
                    region.start[axis] = start;
                    region.len[axis] = len;
                }
                _ => return Err(tensor::invalid!("slice {self} is not within the shape {full}")),
            }
        }
        Ok(region)
    }

    /// The key under which this part of a tensor is stored: it sorts by name, then by place.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        let mut key = Vec::new();
        push_number(&mut key, 0);
        push_string(&mut key, name.as_bytes());
        push_number(&mut key, self.extents.len() as u64);
        for extent in &self.extents {
            let (start, len) = extent.unwrap_or((0, -1));
            push_signed(&mut key, start);
            push_signed(&mut key, len);
        }
        key
    }
}

impl fmt::Display for TensorSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (axis, extent) in self.extents.iter().enumerate() {
            if axis > 0 {
                f.write_str(":")?;
            }
            match extent {
                Some((start, len)) => write!(f, "{start},{len}")?,
                None => f.write_str("-")?,
            }
        }
        Ok(())
    }
}

/// The count of significant bytes, then those, most significant first.
fn push_number(key: &mut Vec<u8>, number: u64) {
    let skipped = number.leading_zeros() as usize / 8;
    key.push(8 - skipped as u8);
    key.extend_from_slice(&number.to_be_bytes()[skipped..]);
}

/// The bytes, with the two that begin and end everything escaped, and an end that sorts before any other byte.
fn push_string(key: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            0x00 => key.extend([0x00, 0xff]),
            0xff => key.extend([0xff, 0x00]),
            _ => key.push(byte),
        }
    }
    key.extend([0x00, 0x01]);
}

/// Two's complement in as many bytes as it needs, whose number is told by as many ones at the front; negative
/// numbers are thereby told by zeros.
fn push_signed(key: &mut Vec<u8>, number: i64) {
    // One bit in each byte's worth goes to the ones, one in all to the sign.
    let bits = 65 - if number < 0 { number.leading_ones() } else { number.leading_zeros() } as usize;
    let len = bits.div_ceil(7);
    let ones = !0u128 << (128 - len);
    let bytes = (number as i128 as u128) ^ (ones >> (128 - 8 * len));
    key.extend_from_slice(&bytes.to_be_bytes()[16 - len..]);
}

/// A box within a tensor of known shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub start: Vec<usize>,
    pub len: Vec<usize>,
}

impl Region {
    pub fn whole(shape: &Shape) -> Self {
        Self { start: vec![0; shape.rank()], len: shape.dims().to_vec() }
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.len.iter().product()
    }

    /// The box two boxes share; its count is 0 if they share nothing.
    pub fn intersection(&self, other: &Self) -> Self {
        let ranges = (0..self.len.len()).map(|axis| {
            let start = self.start[axis].max(other.start[axis]);
            let end = (self.start[axis] + self.len[axis]).min(other.start[axis] + other.len[axis]);
            (start, end.saturating_sub(start))
        });
        let (start, len) = ranges.unzip();
        Self { start, len }
    }

    /// The moves that carry the elements two boxes share from one to the other.
    pub fn runs_to(&self, to: &Self) -> Runs {
        let shared = self.intersection(to);
        let rank = shared.len.len();
        // Dimensions at the end that all three take whole are one stretch of memory, with the one before them.
        let whole =
            (0..rank).rev().take_while(|&axis| shared.len[axis] == self.len[axis] && shared.len[axis] == to.len[axis]);
        let outer = (rank - whole.count()).saturating_sub(1);
        let first = |of: &Self| {
            let place = |sum, axis: usize| sum * of.len[axis] + (shared.start[axis] - of.start[axis]);
            if shared.count() == 0 { 0 } else { (0..rank).fold(0, place) }
        };
        let stride = |of: &Self| (0..outer).map(|axis| of.len[axis + 1..].iter().product()).collect();
        Runs {
            first: (first(self), first(to)),
            strides: (stride(self), stride(to)),
            count: shared.len[outer..].iter().product(),
            dims: shared.len[..outer].to_vec(),
        }
    }
}

/// Equal stretches of elements to be moved, at regular places.
pub(crate) struct Runs {
    first: (usize, usize),
    strides: (Vec<usize>, Vec<usize>),
    /// How many elements each stretch has.
    pub count: usize,
    dims: Vec<usize>,
}

impl Runs {
    /// Where a single stretch goes from and to, if there is just one.
    pub fn single(&self) -> Option<(usize, usize)> {
        self.dims.iter().all(|&dim| dim == 1).then_some(self.first)
    }

    /// Calls `each(from, to)` with the index of the first element of every stretch.
    pub fn for_each(&self, mut each: impl FnMut(usize, usize)) {
        let total = self.dims.iter().product::<usize>();
        if self.count == 0 {
            return;
        }
        let mut at = vec![0; self.dims.len()];
        for _ in 0..total {
            let place =
                |first: usize, strides: &[usize]| first + at.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>();
            each(place(self.first.0, &self.strides.0), place(self.first.1, &self.strides.1));
            for axis in (0..at.len()).rev() {
                at[axis] += 1;
                if at[axis] < self.dims[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_read_and_printed() {
        for text in ["", "-", "0,3", "0,3:-", "-:4,1:-"] {
            let slice = TensorSlice::parse(text).unwrap();
            assert_eq!(slice.to_string(), text);
            assert_eq!(TensorSlice::from_proto(&slice.to_proto()), slice);
        }
        for text in [":", "1", "1,", ",1", "-1,2", "0,0", "0,-1", "a,b", "0,3:", "0,99999999999999999999"] {
            assert!(TensorSlice::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_slice_comes_with_the_shape_it_is_cut_from() {
        let check = |text: &str, full: &[usize], part: &[usize]| {
            let (shape, slice) = TensorSlice::parse_with_shape(text).unwrap();
            assert_eq!(shape.dims(), full);
            assert_eq!(slice.shape_within(&shape).unwrap().dims(), part);
        };
        check("5 2 0,3:-", &[5, 2], &[3, 2]);
        check("300 2 150,150:-", &[300, 2], &[150, 2]);
        check("4 1,3", &[4], &[3]);
        check(" ", &[], &[]);
        for text in ["5 2 0,3", "5 0,6", "5 5,1", "x 0,1", "-5 -", "5 9223372036854775807,1"] {
            assert!(TensorSlice::parse_with_shape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_as_tensorflow_writes_them() {
        // The index files in testdata/storage hold more of them.
        let check = |name: &str, slice: &str, hex: &str| {
            let key = TensorSlice::parse(slice).unwrap().key(name);
            let found: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found.join(" "), hex);
        };
        check("p/w", "0,2:0,2", "00 70 2f 77 00 01 01 02 80 82 80 82");
        check("w", "150,150:-", "00 77 00 01 01 02 c0 96 c0 96 80 7f");
        check("w", "", "00 77 00 01 00");
    }

    #[test]
    fn signed_numbers_sort_as_their_bytes() {
        let code = |number| {
            let mut key = Vec::new();
            push_signed(&mut key, number);
            key
        };
        let mut numbers = vec![0, i64::MAX, i64::MIN];
        for bit in 0..63 {
            for delta in [-1, 0, 1] {
                numbers.push((1i64 << bit) + delta);
                numbers.push(-(1i64 << bit) + delta);
            }
        }
        numbers.sort();
        numbers.dedup();
        assert!(numbers.is_sorted_by(|&a, &b| code(a) < code(b)));
        assert_eq!(code(63), [0xbf]);
        assert_eq!(code(64), [0xc0, 0x40]);
        assert_eq!(code(-64), [0x40]);
        assert_eq!(code(-65), [0x3f, 0xbf]);
        assert_eq!(code(i64::MAX), [0xff, 0xc0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }

    /// The obvious way: look at every element of the full shape.
    fn slow_moves(full: &Shape, from: &Region, to: &Region) -> Vec<(usize, usize)> {
        let place = |region: &Region, at: &[usize]| {
            let mut index = 0;
            for (axis, at) in at.iter().enumerate() {
                let inside = at.checked_sub(region.start[axis]).filter(|&i| i < region.len[axis])?;
                index = index * region.len[axis] + inside;
            }
            Some(index)
        };
        let strides = full.strides();
        let moves = (0..full.num_elements()).filter_map(|element| {
            let at: Vec<usize> = (0..full.rank()).map(|axis| element / strides[axis] % full.dims()[axis]).collect();
            Some((place(from, &at)?, place(to, &at)?))
        });
        moves.collect()
    }

    #[test]
    fn runs_move_what_two_boxes_share() {
        let full = Shape::from([3, 2, 3]);
        let mut regions = Vec::new();
        let ranges = |size: usize| (0..size).flat_map(move |start| (1..=size - start).map(move |len| (start, len)));
        for a in ranges(3) {
            for b in ranges(2) {
                for c in ranges(3) {
                    regions.push(Region { start: vec![a.0, b.0, c.0], len: vec![a.1, b.1, c.1] });
                }
            }
        }
        for from in &regions {
            for to in &regions {
                let runs = from.runs_to(to);
                let mut moves = Vec::new();
                runs.for_each(|f, t| moves.extend((0..runs.count).map(|i| (f + i, t + i))));
                assert_eq!(moves, slow_moves(&full, from, to), "{from:?} {to:?}");
                if let (Some(single), Some(first)) = (runs.single(), moves.first()) {
                    assert_eq!(single, *first);
                    assert_eq!(runs.count, moves.len());
                }
            }
        }
    }

    #[test]
    fn a_scalar_is_one_run() {
        let scalar = Region::whole(&Shape::scalar());
        let runs = scalar.runs_to(&scalar);
        assert_eq!((runs.single(), runs.count), (Some((0, 0)), 1));
    }
}
