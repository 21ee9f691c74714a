//! Shapes: `Shape` of a tensor that exists, `PartialShape` of one that is only planned.

use crate::{Result, invalid};
use smallvec::SmallVec;
use std::fmt;

/// The sizes of a tensor's dimensions. The number of elements always fits in an `isize`.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: SmallVec<[usize; 4]>,
}

impl Clone for Shape {
    /// A copy of memory: shapes are cloned with every tensor that passes along an edge.
    #[inline]
    fn clone(&self) -> Shape {
        Shape { dims: SmallVec::from_slice(&self.dims) }
    }
}

impl Shape {
    /// The shape of a single value.
    #[inline]
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// A shape from sizes that come from outside: negative sizes and products beyond memory are refused.
    pub fn checked(dims: impl IntoIterator<Item = i64>) -> Result<Shape> {
        Shape::check(&mut dims.into_iter())
    }

    fn check(dims: &mut dyn Iterator<Item = i64>) -> Result<Shape> {
        let mut out = SmallVec::new();
        for dim in dims {
            out.push(
                usize::try_from(dim)
                    .map_err(|_| invalid!("dimension {} of a shape is {dim}, must be >= 0", out.len()))?,
            );
        }
        let product = out.iter().try_fold(1usize, |n, &d| n.checked_mul(d).filter(|&n| n <= isize::MAX as usize / 16));
        // A zero elsewhere makes the tensor empty, but views of it still multiply the other sizes.
        let nonzero = out
            .iter()
            .filter(|&&d| d != 0)
            .try_fold(1usize, |n, &d| n.checked_mul(d).filter(|&n| n <= isize::MAX as usize / 16));
        if product.is_none() || nonzero.is_none() {
            return Err(invalid!("shape {} has more elements than can be addressed", Shape { dims: out }));
        }
        Ok(Shape { dims: out })
    }

    /// The sizes.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements: the product of the sizes.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether this is the shape of a single value.
    #[inline]
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }

    /// The size of the last dimension.
    pub fn last_dim(&self) -> Result<usize> {
        self.dims.last().copied().ok_or_else(|| invalid!("wanted at least one dimension, found a scalar"))
    }

    /// The dimension an axis means: negative ones count from the end.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        let rank = self.rank() as i64;
        if axis < -rank || axis >= rank {
            return Err(invalid!("axis {axis} is not in [{}, {rank}) for shape {self}", -rank));
        }
        Ok(if axis < 0 { axis + rank } else { axis } as usize)
    }

    /// The distance in elements between neighbours along each dimension, row-major.
    pub fn strides(&self) -> SmallVec<[usize; 4]> {
        let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(1, self.rank());
        for i in (1..self.rank()).rev() {
            strides[i - 1] = strides[i] * self.dims[i];
        }
        strides
    }

    /// The shape with this dimension appended.
    pub fn with_dim(mut self, dim: usize) -> Shape {
        self.dims.push(dim);
        self
    }

    /// The sizes as `i64`, as attributes and index tensors hold them.
    pub fn to_i64s(&self) -> Vec<i64> {
        self.dims.iter().map(|&d| d as i64).collect()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape { dims: SmallVec::from_slice(&dims) }
    }
}
impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape { dims: SmallVec::from_slice(dims) }
    }
}
impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape { dims: SmallVec::from_vec(dims) }
    }
}
impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}
impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Shape {
        Shape { dims: dims.into_iter().collect() }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.dims.iter())
    }
}
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A shape of which some sizes, or even their number, are not known yet.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PartialShape {
    dims: Option<SmallVec<[Option<usize>; 4]>>,
}

impl PartialShape {
    /// Nothing is known, not even the rank.
    pub fn unknown() -> PartialShape {
        PartialShape { dims: None }
    }

    /// The rank is known, no size is.
    pub fn of_rank(rank: usize) -> PartialShape {
        PartialShape { dims: Some(SmallVec::from_elem(None, rank)) }
    }

    /// A single value.
    pub fn scalar() -> PartialShape {
        PartialShape::of_rank(0)
    }

    /// From sizes, `None` where unknown.
    pub fn new(dims: impl IntoIterator<Item = Option<usize>>) -> PartialShape {
        PartialShape { dims: Some(dims.into_iter().collect()) }
    }

    /// The sizes, if the rank is known.
    pub fn dims(&self) -> Option<&[Option<usize>]> {
        self.dims.as_deref()
    }

    /// The rank, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(|d| d.len())
    }

    /// One size: `None` if it or the rank is unknown, or there is no such dimension.
    pub fn dim(&self, index: usize) -> Option<usize> {
        self.dims.as_ref().and_then(|d| d.get(index).copied().flatten())
    }

    /// The whole shape, if every size is known.
    pub fn known(&self) -> Option<Shape> {
        self.dims.as_ref()?.iter().copied().collect::<Option<SmallVec<[usize; 4]>>>().map(|dims| Shape { dims })
    }

    /// The number of elements, if every size is known.
    pub fn num_elements(&self) -> Option<usize> {
        self.dims.as_ref()?.iter().try_fold(1usize, |n, d| n.checked_mul((*d)?))
    }

    /// Whether a tensor of this shape would fit the plan.
    pub fn accepts(&self, shape: &Shape) -> bool {
        match &self.dims {
            None => true,
            Some(dims) => {
                dims.len() == shape.rank()
                    && dims.iter().zip(shape.dims()).all(|(want, have)| want.is_none_or(|w| w == *have))
            }
        }
    }

    /// What is known from both; an error if they contradict each other.
    pub fn merge(&self, other: &PartialShape) -> Result<PartialShape> {
        let (Some(a), Some(b)) = (&self.dims, &other.dims) else {
            return Ok(if self.dims.is_some() { self.clone() } else { other.clone() });
        };
        if a.len() != b.len() {
            return Err(invalid!("shapes {self} and {other} have different ranks"));
        }
        let merged = a.iter().zip(b).map(|(&x, &y)| match (x, y) {
            (Some(x), Some(y)) if x != y => Err(invalid!("shapes {self} and {other} differ: {x} and {y}")),
            _ => Ok(x.or(y)),
        });
        Ok(PartialShape { dims: Some(merged.collect::<Result<_>>()?) })
    }

    /// The rank as an error-carrying expectation: unknown ranks pass.
    pub fn with_rank(&self, rank: usize) -> Result<PartialShape> {
        match self.rank() {
            Some(found) if found != rank => Err(invalid!("wanted rank {rank}, found shape {self}")),
            Some(_) => Ok(self.clone()),
            None => Ok(PartialShape::of_rank(rank)),
        }
    }

    /// At least this rank; unknown ranks pass.
    pub fn with_rank_at_least(&self, rank: usize) -> Result<()> {
        match self.rank() {
            Some(found) if found < rank => Err(invalid!("wanted at least rank {rank}, found shape {self}")),
            _ => Ok(()),
        }
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> PartialShape {
        PartialShape { dims: Some(shape.dims.iter().map(|&d| Some(d)).collect()) }
    }
}
impl From<Shape> for PartialShape {
    fn from(shape: Shape) -> PartialShape {
        (&shape).into()
    }
}
impl<const N: usize> From<[usize; N]> for PartialShape {
    fn from(dims: [usize; N]) -> PartialShape {
        PartialShape::new(dims.map(Some))
    }
}
impl<const N: usize> From<[Option<usize>; N]> for PartialShape {
    fn from(dims: [Option<usize>; N]) -> PartialShape {
        PartialShape::new(dims)
    }
}

impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dims {
            None => f.write_str("<unknown>"),
            Some(dims) => write_list(f, dims.iter().map(|d| d.map_or("?".to_string(), |d| d.to_string()))),
        }
    }
}
impl fmt::Debug for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The shape two shapes broadcast to: sizes are aligned at the end, and 1 stretches.
pub fn broadcast(a: &Shape, b: &Shape) -> Result<Shape> {
    let rank = a.rank().max(b.rank());
    let size = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |i| s.dims[i]);
    let dims = (0..rank).map(|i| match (size(a, i), size(b, i)) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        _ => Err(invalid!("Incompatible shapes: {a} vs. {b}")),
    });
    let shape = Shape { dims: dims.collect::<Result<_>>()? };
    Shape::checked(shape.to_i64s())
}

/// What is known of the shape two partially known shapes broadcast to.
pub fn broadcast_partial(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    let (Some(x), Some(y)) = (&a.dims, &b.dims) else { return Ok(PartialShape::unknown()) };
    let rank = x.len().max(y.len());
    let size = |s: &[Option<usize>], i: usize| (i + s.len()).checked_sub(rank).map_or(Some(1), |i| s[i]);
    let dims = (0..rank).map(|i| match (size(x, i), size(y, i)) {
        (Some(p), Some(q)) if p == q => Ok(Some(p)),
        (Some(1), q) => Ok(q),
        (p, Some(1)) => Ok(p),
        (Some(_), Some(_)) => Err(invalid!("Incompatible shapes: {a} vs. {b}")),
        // An unknown size against a known one above 1 must be 1 or that size.
        (p, q) => Ok(p.or(q)),
    });
    Ok(PartialShape { dims: Some(dims.collect::<Result<_>>()?) })
}

fn write_list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    f.write_str("[")?;
    for (i, item) in items.enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        write!(f, "{item}")?;
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_as_in_the_table() {
        type Dims = &'static [usize];
        let cases: &[(Dims, Dims, Option<Dims>)] = &[
            (&[], &[], Some(&[])),
            (&[2, 3], &[3], Some(&[2, 3])),
            (&[2, 1], &[1, 4], Some(&[2, 4])),
            (&[0], &[1], Some(&[0])),
            (&[2], &[3], None),
        ];
        for (a, b, want) in cases {
            let got = broadcast(&Shape::from(*a), &Shape::from(*b)).ok();
            assert_eq!(got, want.map(Shape::from), "{a:?} {b:?}");
        }
    }

    #[test]
    fn sizes_from_outside_are_checked() {
        assert!(Shape::checked([2, -1]).is_err());
        assert!(Shape::checked([1 << 40, 1 << 40]).is_err());
        assert!(Shape::checked([0, 1 << 62, 1 << 62]).is_err());
        assert_eq!(Shape::checked([2, 0]).unwrap().num_elements(), 0);
    }

    #[test]
    fn partial_shapes_merge_and_print() {
        let a = PartialShape::new([Some(2), None]);
        let b = PartialShape::new([None, Some(3)]);
        assert_eq!(a.merge(&b).unwrap().to_string(), "[2,3]");
        assert_eq!(a.to_string(), "[2,?]");
        assert!(a.merge(&PartialShape::from([3, 3])).is_err());
        assert!(a.accepts(&Shape::from([2, 7])));
        assert!(!a.accepts(&Shape::from([2])));
    }
}
