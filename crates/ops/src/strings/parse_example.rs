//! `ParseExampleV2`: serialized `Example` messages taken apart into one tensor, or several, for each feature.
//!
//! A feature is asked for as sparse (whatever is there), dense (a fixed shape, or rows padded to the longest) or ragged
//! (whatever is there, one after the other). A single example gives the same without the leading dimension.

use bytes::Bytes;
use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op};
use prost::Message;
use proto::feature::Kind;
use proto::{Example, Feature};
use tensor::{DType, Error, PartialShape, Result, Shape, Tensor, exhausted, internal, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ParseExampleV2")
            .input("serialized: string")
            .input("names: string")
            .input("sparse_keys: string")
            .input("dense_keys: string")
            .input("ragged_keys: string")
            .input("dense_defaults: Tdense")
            .output("sparse_indices: num_sparse*int64")
            .output("sparse_values: sparse_types")
            .output("sparse_shapes: num_sparse*int64")
            .output("dense_values: Tdense")
            .output("ragged_values: ragged_value_types")
            .output("ragged_row_splits: ragged_split_types")
            .attr("Tdense: list({float, int64, string}) >= 0")
            .attr("num_sparse: int >= 0")
            .attr("sparse_types: list({float, int64, string}) >= 0")
            .attr("ragged_value_types: list({float, int64, string}) >= 0")
            .attr("ragged_split_types: list(indextype) >= 0")
            .attr("dense_shapes: list(shape) >= 0")
            .costly()
            .shape(shape)
            .kernel(kernel(ParseExample::new)),
    ]
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let sparse = c.attr::<i64>("num_sparse")? as usize;
    let dense: Vec<PartialShape> = c.attr("dense_shapes")?;
    let ragged: Vec<DType> = c.attr("ragged_value_types")?;
    let batch = match c.input(0).dims() {
        Some(dims) if dims.len() <= 1 => Some(dims.to_vec()),
        Some(_) => return Err(invalid!("serialized examples have shape {}, wanted a scalar or a vector", c.input(0))),
        None => None,
    };
    let rank = batch.as_ref().map(|b| b.len() + 1);
    let mut shapes = Vec::new();
    shapes.extend(vec![PartialShape::new([None, rank]); sparse]);
    shapes.extend(vec![PartialShape::of_rank(1); sparse]);
    shapes.extend(vec![PartialShape::new([rank]); sparse]);
    shapes.extend(dense.iter().map(|d| match (&batch, d.dims()) {
        (Some(batch), Some(dims)) => PartialShape::new(batch.iter().chain(dims).copied()),
        _ => PartialShape::unknown(),
    }));
    shapes.extend(vec![PartialShape::of_rank(1); ragged.len() * 2]);
    Ok(shapes)
}

struct ParseExample {
    sparse_types: Vec<DType>,
    dense: Vec<Dense>,
    ragged_types: Vec<DType>,
    split_types: Vec<DType>,
}

/// What is promised of a dense feature.
struct Dense {
    dtype: DType,
    /// The shape, or the shape of one row if there may be any number of rows.
    shape: Shape,
    has_any_length: bool,
}

impl ParseExample {
    fn new(b: &KernelBuild<'_>) -> Result<ParseExample> {
        let (types, shapes): (Vec<DType>, Vec<PartialShape>) = (b.attr("Tdense")?, b.attr("dense_shapes")?);
        if types.len() != shapes.len() {
            return Err(invalid!("len(dense_keys) != len(dense_shapes): {} vs. {}", types.len(), shapes.len()));
        }
        let (sparse_types, num_sparse): (Vec<DType>, i64) = (b.attr("sparse_types")?, b.attr("num_sparse")?);
        if sparse_types.len() as i64 != num_sparse {
            return Err(invalid!("len(sparse_types) is {}, num_sparse is {num_sparse}", sparse_types.len()));
        }
        let (ragged_types, split_types): (Vec<DType>, Vec<DType>) =
            (b.attr("ragged_value_types")?, b.attr("ragged_split_types")?);
        if ragged_types.len() != split_types.len() {
            let (values, splits) = (ragged_types.len(), split_types.len());
            return Err(invalid!("len(ragged_value_types) != len(ragged_split_types): {values} vs. {splits}"));
        }
        let dense = types.into_iter().zip(&shapes).map(|(dtype, shape)| Dense::new(dtype, shape));
        Ok(ParseExample { sparse_types, dense: dense.collect::<Result<_>>()?, ragged_types, split_types })
    }
}

impl Dense {
    fn new(dtype: DType, shape: &PartialShape) -> Result<Dense> {
        let bad = || invalid!("dense_shapes has {shape}: only the first dimension may be unknown");
        let dims = shape.dims().ok_or_else(bad)?;
        let has_any_length = dims.first() == Some(&None);
        let known = &dims[usize::from(has_any_length)..];
        let known: Option<Vec<i64>> = known.iter().map(|d| d.map(|d| d as i64)).collect();
        Ok(Dense { dtype, shape: Shape::checked(known.ok_or_else(bad)?)?, has_any_length })
    }
}

/// Values of one of the three types a feature can have.
#[derive(Clone)]
enum Values {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Bytes>),
}

impl Values {
    fn none(dtype: DType) -> Result<Values> {
        Ok(match dtype {
            DType::F32 => Values::Floats(Vec::new()),
            DType::I64 => Values::Ints(Vec::new()),
            DType::String => Values::Strings(Vec::new()),
            other => return Err(invalid!("a feature cannot be of {other}")),
        })
    }

    fn of(tensor: &Tensor) -> Result<Values> {
        Ok(match tensor.dtype() {
            DType::F32 => Values::Floats(tensor.as_slice::<f32>()?.to_vec()),
            DType::I64 => Values::Ints(tensor.as_slice::<i64>()?.to_vec()),
            DType::String => Values::Strings(tensor.as_strings()?.to_vec()),
            other => return Err(invalid!("a feature cannot be of {other}")),
        })
    }

    fn dtype(&self) -> DType {
        match self {
            Values::Floats(_) => DType::F32,
            Values::Ints(_) => DType::I64,
            Values::Strings(_) => DType::String,
        }
    }

    /// Makes room for so many values more.
    fn reserve(&mut self, count: usize) -> Result<()> {
        let room = match self {
            Values::Floats(v) => v.try_reserve(count),
            Values::Ints(v) => v.try_reserve(count),
            Values::Strings(v) => v.try_reserve(count),
        };
        room.map_err(|_| exhausted!("there is no memory for {count} values of {}", self.dtype()))
    }

    fn len(&self) -> usize {
        match self {
            Values::Floats(v) => v.len(),
            Values::Ints(v) => v.len(),
            Values::Strings(v) => v.len(),
        }
    }

    /// Appends values of the same type; whether they were.
    fn extend(&mut self, other: &Values) -> bool {
        match (self, other) {
            (Values::Floats(a), Values::Floats(b)) => a.extend(b),
            (Values::Ints(a), Values::Ints(b)) => a.extend(b),
            (Values::Strings(a), Values::Strings(b)) => a.extend_from_slice(b),
            _ => return false,
        }
        true
    }

    /// Appends a feature's values if they are of the same type; how many there were.
    fn take(&mut self, kind: Kind) -> Option<usize> {
        let before = self.len();
        match (&mut *self, kind) {
            (Values::Floats(a), Kind::FloatList(b)) => a.extend(b.value),
            (Values::Ints(a), Kind::Int64List(b)) => a.extend(b.value),
            (Values::Strings(a), Kind::BytesList(b)) => a.extend(b.value),
            _ => return None,
        }
        Some(self.len() - before)
    }

    /// Appends zeros, or copies of a single value.
    fn pad(&mut self, count: usize, with: &Values) {
        match (self, with) {
            (Values::Floats(a), Values::Floats(b)) => a.resize(a.len() + count, b.first().copied().unwrap_or(0.0)),
            (Values::Ints(a), Values::Ints(b)) => a.resize(a.len() + count, b.first().copied().unwrap_or(0)),
            (Values::Strings(a), Values::Strings(b)) => {
                a.resize(a.len() + count, b.first().cloned().unwrap_or_default());
            }
            _ => {}
        }
    }

    fn tensor(self, shape: Shape) -> Result<Tensor> {
        match self {
            Values::Floats(v) => Tensor::from_vec(shape, v),
            Values::Ints(v) => Tensor::from_vec(shape, v),
            Values::Strings(v) => Tensor::from_strings(shape, v),
        }
    }
}

/// The values of one feature over all examples.
struct Column {
    values: Values,
    /// How many each example has.
    counts: Vec<usize>,
}

/// The examples, each a bag of features.
struct Examples<'a> {
    examples: Vec<std::collections::BTreeMap<String, Feature>>,
    names: &'a [Bytes],
}

impl Examples<'_> {
    /// The values under a key: those of every example, one after the other. `missing` supplies those of an example
    /// that lacks the feature.
    fn column(
        &mut self,
        key: &str,
        dtype: DType,
        mut missing: impl FnMut(&mut Values) -> Result<usize>,
    ) -> Result<Column> {
        let mut column = Column { values: Values::none(dtype)?, counts: Vec::with_capacity(self.examples.len()) };
        for at in 0..self.examples.len() {
            let kind = self.examples[at].remove(key).and_then(|feature| feature.kind);
            let count = match kind {
                Some(kind) => column.values.take(kind).ok_or_else(|| {
                    self.wrong(at, key, format_args!("Data types don't match. Expected type: {dtype}"))
                })?,
                None => missing(&mut column.values).map_err(|e| self.wrong(at, key, e.message))?,
            };
            column.counts.push(count);
        }
        Ok(column)
    }

    fn wrong(&self, example: usize, key: &str, what: impl std::fmt::Display) -> Error {
        let name = self.names.get(example).map_or("<unknown>".into(), |n| String::from_utf8_lossy(n));
        invalid!("Name: {name}, Key: {key}, Index: {example}.  {what}")
    }
}

impl Kernel for ParseExample {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let serialized = ctx.input(0).clone();
        let names = ctx.input(1).clone();
        if serialized.shape().rank() > 1 {
            return Err(invalid!("Expected serialized to be a scalar or vector, got shape: {}", serialized.shape()));
        }
        if names.num_elements() != 0 && names.shape() != serialized.shape() {
            return Err(invalid!("Expected names to have the shape {}, got {}", serialized.shape(), names.shape()));
        }
        let sparse_keys = keys(ctx.input(2), self.sparse_types.len(), "sparse_keys")?;
        let dense_keys = keys(ctx.input(3), self.dense.len(), "dense_keys")?;
        let ragged_keys = keys(ctx.input(4), self.ragged_types.len(), "ragged_keys")?;
        let defaults: Vec<Tensor> = (5..5 + self.dense.len()).map(|i| ctx.input(i).clone()).collect();
        let mut examples = decode(&serialized, names.as_strings()?)?;
        let is_single = serialized.shape().is_scalar();

        let (sparse, dense) = (sparse_keys.len(), dense_keys.len());
        for (i, (key, &dtype)) in sparse_keys.iter().zip(&self.sparse_types).enumerate() {
            let column = examples.column(key, dtype, |_| Ok(0))?;
            ctx.set_output(i, indices(&column.counts, is_single)?)?;
            ctx.set_output(2 * sparse + i, bounds(&column.counts, is_single))?;
            let count = column.values.len();
            ctx.set_output(sparse + i, column.values.tensor([count].into())?)?;
        }
        for (i, (key, spec)) in dense_keys.iter().zip(&self.dense).enumerate() {
            let tensor = self.dense_column(&mut examples, key, spec, &defaults[i], is_single)?;
            ctx.set_output(3 * sparse + i, tensor)?;
        }
        for (i, (key, &dtype)) in ragged_keys.iter().zip(&self.ragged_types).enumerate() {
            let column = examples.column(key, dtype, |_| Ok(0))?;
            let at = 3 * sparse + dense + i;
            ctx.set_output(at + ragged_keys.len(), splits(&column.counts, self.split_types[i], is_single)?)?;
            let count = column.values.len();
            ctx.set_output(at, column.values.tensor([count].into())?)?;
        }
        Ok(())
    }
}

impl ParseExample {
    fn dense_column(
        &self,
        examples: &mut Examples<'_>,
        key: &str,
        spec: &Dense,
        default: &Tensor,
        is_single: bool,
    ) -> Result<Tensor> {
        let wanted = spec.shape.num_elements();
        if default.dtype() != spec.dtype {
            return Err(invalid!("the default of '{key}' is {}, wanted {}", default.dtype(), spec.dtype));
        }
        let (has_default, default) = (default.num_elements() > 0, Values::of(default)?);
        if has_default && default.len() != if spec.has_any_length { 1 } else { wanted } {
            let shape = &spec.shape;
            return Err(invalid!("the default of '{key}' has {} values, its shape is {shape}", default.len()));
        }
        let column = examples.column(key, spec.dtype, |values| match (spec.has_any_length, has_default) {
            (true, _) => Ok(0),
            (false, true) if values.extend(&default) => Ok(wanted),
            _ => Err(invalid!("Feature: {key} (data type: {}) is required but could not be found.", spec.dtype)),
        })?;
        let batch = (!is_single).then_some(column.counts.len());
        let dims = |rows: Option<usize>| {
            let dims = batch.into_iter().chain(rows).chain(spec.shape.dims().iter().copied());
            Shape::checked(dims.map(|d| d as i64))
        };
        if !spec.has_any_length {
            if let Some((at, count)) = column.counts.iter().enumerate().find(|(_, c)| **c != wanted) {
                return Err(examples.wrong(
                    at,
                    key,
                    format_args!(
                        "Number of {} values != expected.  Values size: {count} but output shape: {}",
                        spec.dtype, spec.shape
                    ),
                ));
            }
            return column.values.tensor(dims(None)?);
        }
        if let Some((at, count)) = column.counts.iter().enumerate().find(|(_, c)| wanted == 0 || **c % wanted != 0) {
            return Err(examples.wrong(
                at,
                key,
                format_args!(
                    "Number of {} values is not a multiple of stride length. Saw {count} values but output shape is: \
                     {}",
                    spec.dtype, spec.shape
                ),
            ));
        }
        let longest = column.counts.iter().copied().max().unwrap_or(0);
        let shape = dims(Some(longest / wanted.max(1)))?;
        padded(column, longest, &default)?.tensor(shape)
    }
}

/// Every example's values, as many as the longest has.
fn padded(column: Column, longest: usize, with: &Values) -> Result<Values> {
    if column.counts.iter().all(|&c| c == longest) {
        return Ok(column.values);
    }
    let mut out = Values::none(column.values.dtype())?;
    out.reserve(column.counts.len().saturating_mul(longest))?;
    let mut from = 0;
    for count in column.counts {
        let part = match &column.values {
            Values::Floats(v) => Values::Floats(v[from..from + count].to_vec()),
            Values::Ints(v) => Values::Ints(v[from..from + count].to_vec()),
            Values::Strings(v) => Values::Strings(v[from..from + count].to_vec()),
        };
        from += count;
        if !out.extend(&part) {
            return Err(internal!("values of two types in one column"));
        }
        out.pad(longest - count, with);
    }
    Ok(out)
}

fn keys(tensor: &Tensor, wanted: usize, what: &str) -> Result<Vec<String>> {
    let found = tensor.as_strings()?;
    if found.len() != wanted {
        return Err(invalid!("{what} has {} keys, the node's attributes {wanted}", found.len()));
    }
    Ok(found.iter().map(|k| String::from_utf8_lossy(k).into_owned()).collect())
}

fn decode<'a>(serialized: &Tensor, names: &'a [Bytes]) -> Result<Examples<'a>> {
    let examples = serialized.as_strings()?.iter().enumerate().map(|(i, bytes)| {
        let example = Example::decode(bytes.clone());
        let example =
            example.map_err(|e| invalid!("Could not parse example input {i} of {} bytes: {e}", bytes.len()))?;
        Ok(example.features.unwrap_or_default().feature)
    });
    Ok(Examples { examples: examples.collect::<Result<_>>()?, names })
}

/// Where each value of a sparse feature belongs: example and place, or only the place.
fn indices(counts: &[usize], is_single: bool) -> Result<Tensor> {
    let mut indices = Vec::new();
    for (example, &count) in counts.iter().enumerate() {
        for place in 0..count {
            if !is_single {
                indices.push(example as i64);
            }
            indices.push(place as i64);
        }
    }
    let rank = if is_single { 1 } else { 2 };
    Tensor::from_vec([indices.len() / rank, rank], indices)
}

/// The shape a sparse feature is part of.
fn bounds(counts: &[usize], is_single: bool) -> Tensor {
    let longest = counts.iter().copied().max().unwrap_or(0) as i64;
    if is_single { Tensor::from([longest]) } else { Tensor::from([counts.len() as i64, longest]) }
}

/// Where each example's values start in a ragged feature, and where the last one's end.
fn splits(counts: &[usize], dtype: DType, is_single: bool) -> Result<Tensor> {
    let mut splits = vec![0i64];
    for &count in counts {
        splits.push(splits[splits.len() - 1] + count as i64);
    }
    if is_single {
        splits.clear(); // one example has no rows to tell apart
    }
    match dtype {
        DType::I32 => {
            let narrow = splits.iter().map(|&s| i32::try_from(s).map_err(|_| invalid!("{s} values do not fit int32")));
            Ok(Tensor::from(narrow.collect::<Result<Vec<i32>>>()?))
        }
        _ => Ok(Tensor::from(splits)),
    }
}
