//! Variables in parts: a table too large for one task is cut along one dimension, and stands in checkpoints as a whole.
//!
//! Parts are called `w/part_0`, `w/part_1`, …, as TensorFlow calls them; a checkpoint holds one tensor `w` in slices, so
//! that it can be restored into another number of parts, or into none.

use crate::variable::{Initial, VariableOptions};
use crate::{Graph, Operation, Output, Variable, concat};
use framework::Scope;
use std::fmt::Write as _;
use tensor::{DType, PartialShape, Result, Shape, Tensor, already_exists, invalid};

/// Decides into how many parts a variable is cut, and along which dimension.
///
/// ```
/// use ferroflow::{DType, fixed_size_partitioner, min_max_variable_partitioner, variable_axis_size_partitioner};
///
/// let shape = [1000, 16].into();
/// assert_eq!(fixed_size_partitioner(3).partitions(&shape, DType::F32)?, [3, 1]);
/// assert_eq!(fixed_size_partitioner(3).axis(1).partitions(&shape, DType::F32)?, [1, 3]);
/// assert_eq!(variable_axis_size_partitioner(16_000).partitions(&shape, DType::F32)?, [4, 1]);
/// assert_eq!(min_max_variable_partitioner(8).min_slice_size(10_000).partitions(&shape, DType::F32)?, [7, 1]);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Partitioner {
    rule: Rule,
    axis: usize,
    bytes_per_string: usize,
}

#[derive(Clone, Debug)]
enum Rule {
    FixedSize { count: usize },
    AxisSize { part_bytes_max: usize, count_max: usize },
    MinMax { count_max: usize, part_bytes_min: usize },
}

fn partitioner(rule: Rule) -> Partitioner {
    Partitioner { rule, axis: 0, bytes_per_string: 16 }
}

/// So many parts, whatever their size.
pub fn fixed_size_partitioner(num_shards: usize) -> Partitioner {
    partitioner(Rule::FixedSize { count: num_shards })
}

/// As many parts as it takes for none to have more than so many bytes.
pub fn variable_axis_size_partitioner(max_shard_bytes: usize) -> Partitioner {
    partitioner(Rule::AxisSize { part_bytes_max: max_shard_bytes, count_max: usize::MAX })
}

/// At most so many parts, and fewer where they would have less than 256 KiB each.
pub fn min_max_variable_partitioner(max_partitions: usize) -> Partitioner {
    partitioner(Rule::MinMax { count_max: max_partitions, part_bytes_min: 256 << 10 })
}

impl Partitioner {
    /// Cuts along this dimension rather than the first.
    pub fn axis(mut self, axis: usize) -> Self {
        self.axis = axis;
        self
    }

    /// How many bytes a string is taken to have; 16 unless told.
    pub fn bytes_per_string_element(mut self, bytes: usize) -> Self {
        self.bytes_per_string = bytes;
        self
    }

    /// The most parts that [`variable_axis_size_partitioner`] makes, even if they are larger then.
    pub fn max_shards(mut self, count: usize) -> Self {
        if let Rule::AxisSize { count_max, .. } = &mut self.rule {
            *count_max = count;
        }
        self
    }

    /// The fewest bytes a part of [`min_max_variable_partitioner`] has.
    pub fn min_slice_size(mut self, bytes: usize) -> Self {
        if let Rule::MinMax { part_bytes_min, .. } = &mut self.rule {
            *part_bytes_min = bytes;
        }
        self
    }

    /// The number of parts along each dimension; all but one are 1.
    pub fn partitions(&self, shape: &Shape, dtype: DType) -> Result<Vec<usize>> {
        let size = *shape
            .dims()
            .get(self.axis)
            .ok_or_else(|| invalid!("Cannot partition variable along axis {} when shape is only {shape}", self.axis))?;
        let element = if dtype == DType::String { self.bytes_per_string } else { dtype.size() };
        let bytes = shape.num_elements().saturating_mul(element);
        let count = match self.rule {
            Rule::FixedSize { count } => count.min(size),
            Rule::AxisSize { part_bytes_max, count_max } => {
                let per_slice = bytes.checked_div(size).unwrap_or(0);
                let slices = part_bytes_max.checked_div(per_slice).unwrap_or(size).max(1);
                size.div_ceil(slices).min(count_max)
            }
            Rule::MinMax { count_max, part_bytes_min } => {
                size.min(count_max).min(bytes.div_ceil(part_bytes_min.max(1)))
            }
        };
        let mut partitions = vec![1; shape.rank()];
        partitions[self.axis] = count.max(1);
        Ok(partitions)
    }
}

/// Which part of a tensor in a checkpoint a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SaveSlice {
    pub(crate) full_name: String,
    pub(crate) full_shape: Shape,
    pub(crate) offset: Vec<usize>,
    pub(crate) shape: Shape,
}

impl SaveSlice {
    /// As the ops that save and restore take it: `7 2 0,3:0,2`.
    pub(crate) fn spec(&self) -> String {
        let mut spec = String::new();
        for size in self.full_shape.dims() {
            let _ = write!(spec, "{size} ");
        }
        let extents = self.offset.iter().zip(self.shape.dims()).map(|(start, len)| format!("{start},{len}"));
        spec + &extents.collect::<Vec<_>>().join(":")
    }

    /// The slice of a variable `primary/name` that accompanies the part `primary`, and is cut as that is.
    pub(crate) fn of_slot(&self, name: &str, rank: usize) -> Option<SaveSlice> {
        let first = |dims: &[usize]| dims.get(..rank).map(Shape::from);
        Some(SaveSlice {
            full_name: format!("{}/{name}", self.full_name),
            full_shape: first(self.full_shape.dims())?,
            offset: self.offset.get(..rank)?.to_vec(),
            shape: first(self.shape.dims())?,
        })
        .filter(|_| rank > 0)
    }
}

/// A variable cut into parts along one dimension.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::fixed_size_partitioner;
///
/// let g = Graph::new();
/// let table = g.partitioned_variable("table", [[1.0f32], [2.0], [3.0]], &fixed_size_partitioner(2));
/// let ids = g.constant([2i64, 0]);
/// let rows = table.embedding_lookup(&ids);
/// let init = g.initialize_all();
///
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// assert_eq!(table.parts()[1].name(), "table/part_1");
/// assert_eq!(session.run(&rows)?, Tensor::from([[3.0f32], [1.0]]));
/// assert_eq!(session.run(&table.value())?, Tensor::from([[1.0f32], [2.0], [3.0]]));
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct PartitionedVariable {
    graph: Graph,
    name: String,
    shape: Shape,
    axis: usize,
    parts: Vec<Variable>,
}

/// Which part of a table has which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionStrategy {
    /// Row `i` of `n` parts is row `i / n` of part `i % n`.
    Mod,
    /// Each part has rows that follow each other, as a partitioned variable is cut.
    Div,
}

impl Graph {
    /// A trainable variable in parts. Each part goes to the device that is in force for it: under `replica_device_setter`,
    /// to one parameter server after the other.
    #[track_caller]
    pub fn partitioned_variable(
        &self,
        name: &str,
        initial: impl Into<Initial>,
        partitioner: &Partitioner,
    ) -> PartitionedVariable {
        self.partitioned_variable_with(name, initial, partitioner, VariableOptions::default())
    }

    /// A variable in parts that is not ordinary.
    #[track_caller]
    pub fn partitioned_variable_with(
        &self,
        name: &str,
        initial: impl Into<Initial>,
        partitioner: &Partitioner,
        options: VariableOptions,
    ) -> PartitionedVariable {
        let initial = initial.into();
        let built = self.here(|| self.make_parts(name, &initial, partitioner, options));
        self.kept(built).unwrap_or_else(|| {
            let axis = partitioner.axis;
            PartitionedVariable {
                graph: self.clone(),
                name: name.into(),
                shape: Shape::scalar(),
                axis,
                parts: Vec::new(),
            }
        })
    }

    fn make_parts(
        &self,
        name: &str,
        initial: &Initial,
        partitioner: &Partitioner,
        options: VariableOptions,
    ) -> Result<PartitionedVariable> {
        let s = self.scope();
        let prefix = s.current_name();
        let name = if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") };
        if s.with_graph(|g| [name.clone(), format!("{name}/part_0")].iter().any(|n| g.find(n).is_some())) {
            return Err(already_exists!("Variable {name} already exists; a variable's name must be new"));
        }
        let (dtype, shape) = initial.kind(s, &name)?;
        let counts = partitioner.partitions(&shape, dtype)?;
        let axis = partitioner.axis;
        let mut parts = Vec::new();
        for (number, slice) in slices(&name, &shape, axis, counts[axis]).into_iter().enumerate() {
            let full = s.with_absolute_name("", || s.unique_name(&format!("{name}/part_{number}")));
            let initial = initial.part(s, &full, &slice)?;
            parts.push(self.make_part(full, &initial, options, Some(slice))?);
        }
        Ok(PartitionedVariable { graph: self.clone(), name, shape, axis, parts })
    }
}

/// Cuts a shape into parts that differ by one at most, the larger ones first.
fn slices(name: &str, full: &Shape, axis: usize, count: usize) -> Vec<SaveSlice> {
    let size = full.dims()[axis];
    let mut start = 0;
    let slice = |number| {
        let len = size / count + usize::from(number < size % count);
        let mut offset = vec![0; full.rank()];
        let mut shape = full.dims().to_vec();
        offset[axis] = start;
        shape[axis] = len;
        start += len;
        SaveSlice { full_name: name.into(), full_shape: full.clone(), offset, shape: shape.into() }
    };
    (0..count).map(slice).collect()
}

impl Initial {
    /// The type and shape of what a variable starts as.
    pub(crate) fn kind(&self, s: &Scope, name: &str) -> Result<(DType, Shape)> {
        match self {
            Initial::Value(value) => Ok((value.dtype(), value.shape().clone())),
            Initial::Rule(rule) => Ok(rule.kind()),
            Initial::Built(output) => {
                let id = output.id().ok_or_else(|| invalid!("the initial value of {name} was not built"))?;
                let info = s.info(id)?;
                let shape = info.shape.known().ok_or_else(|| {
                    invalid!("initial_value must have a shape specified: that of {name} has shape {}", info.shape)
                })?;
                Ok((info.dtype, shape))
            }
        }
    }

    /// What a part starts as.
    fn part(&self, s: &Scope, full: &str, slice: &SaveSlice) -> Result<Initial> {
        Ok(match self {
            Initial::Value(value) => Initial::Value(cut(value, slice)?),
            Initial::Rule(rule) => Initial::Rule(rule.clone().with_shape(slice.shape.clone())),
            Initial::Built(output) => {
                let numbers = |values: &[usize]| values.iter().map(|&v| v as i32).collect::<Vec<i32>>();
                let (begin, size) = (numbers(&slice.offset), numbers(slice.shape.dims()));
                let scope = format!("{full}/PartitionedInitializer");
                Initial::Built(s.with_absolute_name(&scope, || output.slice(&begin, &size)))
            }
        })
    }
}

/// A block of a tensor.
fn cut(value: &Tensor, slice: &SaveSlice) -> Result<Tensor> {
    // All that lies before and behind the one dimension that is cut stays whole, so each row of a block is one stretch.
    let dims = value.shape().dims();
    let axis = slice.shape.dims().iter().zip(dims).position(|(part, full)| part != full).unwrap_or(0);
    let inner: usize = dims[axis + 1..].iter().product();
    let outer: usize = dims[..axis].iter().product();
    let starts = (0..outer).map(|row| (row * dims[axis] + slice.offset[axis]) * inner);
    let len = slice.shape.dims()[axis] * inner;
    if value.dtype() == DType::String {
        let strings = value.as_strings()?;
        return Tensor::from_strings(
            slice.shape.clone(),
            starts.flat_map(|at| strings[at..at + len].to_vec()).collect(),
        );
    }
    let (bytes, size) = (value.as_bytes()?, value.dtype().size());
    let part: Vec<u8> = starts.flat_map(|at| bytes[at * size..(at + len) * size].iter().copied()).collect();
    Tensor::from_bytes(value.dtype(), &slice.shape, &part)
}

impl PartitionedVariable {
    /// Its name, which is also its name in checkpoints.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of the whole.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The parts, each a variable of its own.
    pub fn parts(&self) -> &[Variable] {
        &self.parts
    }

    /// Gives all parts their initial values.
    #[track_caller]
    pub fn initializer(&self) -> Operation {
        self.graph.initialize(&self.parts)
    }

    /// The whole, joined anew.
    #[track_caller]
    pub fn value(&self) -> Output {
        let graph = &self.graph;
        let read = |part: &Variable| if part.is_resource() { part.read() } else { Output::from(part) };
        graph.here(|| {
            let s = graph.scope();
            let joined = s.with_absolute_name(&format!("{}/ConcatPartitions", self.name), || {
                let parts: Vec<Output> = self.parts.iter().map(read).collect();
                match parts.as_slice() {
                    [] => Output::void(graph),
                    [only] => only.clone(),
                    _ => concat(&parts.iter().collect::<Vec<_>>(), self.axis as i32),
                }
            });
            s.with_absolute_name("", || joined.named(&self.name))
        })
    }

    /// Rows of the whole, each looked up where it is; the gradient touches those rows only.
    #[track_caller]
    pub fn embedding_lookup(&self, ids: &Output) -> Output {
        if self.axis != 0 {
            self.graph.keep(invalid!(
                "rows are looked up in a table cut along axis 0; {} is cut along axis {}",
                self.name,
                self.axis
            ));
            return Output::void(&self.graph);
        }
        embedding_lookup(&self.parts, ids, PartitionStrategy::Div)
    }
}

impl std::fmt::Debug for PartitionedVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{} in {} parts", self.name, self.shape, self.parts.len())
    }
}

/// The rows for these ids of a table in several variables, each looked up where it is.
///
/// The parts' numbers of rows differ by one at most, the larger ones first, as [`Graph::partitioned_variable`] cuts them.
#[track_caller]
pub fn embedding_lookup(parts: &[Variable], ids: &Output, strategy: PartitionStrategy) -> Output {
    let graph = ids.graph();
    if let [only] = parts {
        return only.embedding_lookup(ids);
    }
    graph.here(|| {
        let rows = match graph.kept(table_rows(parts)) {
            Some(rows) => rows,
            None => return Output::void(graph),
        };
        graph.name_scope("embedding_lookup", || look_up(parts, rows, ids, strategy))
    })
}

/// The number of rows of a table in parts; an error if the parts do not make up one.
fn table_rows(parts: &[Variable]) -> Result<usize> {
    let shape = |part: &Variable| {
        part.place_id()?;
        let shape = part.shape().known();
        shape.filter(|s| s.rank() > 0).ok_or_else(|| invalid!("{part:?} has no rows to be looked up"))
    };
    let shapes = parts.iter().map(shape).collect::<Result<Vec<Shape>>>()?;
    let first = shapes.first().ok_or_else(|| invalid!("a table must have at least one part"))?;
    let rows: usize = shapes.iter().map(|s| s.dims()[0]).sum();
    for (number, shape) in shapes.iter().enumerate() {
        let wanted = rows / parts.len() + usize::from(number < rows % parts.len());
        if shape.dims()[0] != wanted || wanted == 0 || shape.dims()[1..] != first.dims()[1..] {
            return Err(invalid!(
                "part {number} of a table of {rows} rows in {} parts must have {wanted} rows like those of the first, {}; \
                 {:?} has not",
                parts.len(),
                first,
                parts[number]
            ));
        }
    }
    Ok(rows)
}

#[track_caller]
fn look_up(parts: &[Variable], rows: usize, ids: &Output, strategy: PartitionStrategy) -> Output {
    let graph = ids.graph();
    let count = parts.len() as i64;
    let flat = ids.reshape(&[-1]);
    let (part, row) = match strategy {
        PartitionStrategy::Mod => (flat.floor_mod(count), flat.floor_div(count)),
        PartitionStrategy::Div => {
            // The first parts have one row more than the others.
            let (few, more) = (rows as i64 / count, rows as i64 % count);
            let behind = &flat - more;
            let part =
                flat.floor_div(few + 1).maximum(if few == 0 { flat.zeros_like() } else { behind.floor_div(few) });
            let row = part.less(more).select(&flat.floor_mod(few + 1), &behind.floor_mod(few));
            (part, row)
        }
    };
    let part = part.cast::<i32>();
    let rows_of = split(&row, &part, count);
    let places_of = split(&positions(&flat), &part, count);
    let found: Vec<Output> = parts.iter().zip(&rows_of).map(|(table, rows)| gather_beside(table, rows)).collect();
    let stitched = stitch(graph, &places_of, &found);

    let row_shape: Vec<i32> = parts[0].shape().known().iter().flat_map(|s| &s.dims()[1..]).map(|&d| d as i32).collect();
    let shape = concat(&[&ids.shape_output(), &graph.constant(row_shape)], 0);
    let result = stitched.reshape_to(&shape);
    if let (Some(outer), Some(inner)) = (ids.shape().dims(), parts[0].shape().dims()) {
        result.set_shape(PartialShape::new(outer.iter().chain(&inner[1..]).copied()));
    }
    result
}

/// 0, 1, 2, … for each element of a vector.
#[track_caller]
fn positions(vector: &Output) -> Output {
    let graph = vector.graph();
    graph.op("Range", [&graph.constant(0i32), &vector.size(), &graph.constant(1i32)])
}

/// The elements that belong to each part.
#[track_caller]
fn split(values: &Output, part: &Output, count: i64) -> Vec<Output> {
    let graph = values.graph();
    let built = graph.own([values, part]).and_then(|inputs| {
        let node = graph.scope().node("DynamicPartition").inputs(&inputs).attr("num_partitions", count);
        graph.kept(node.outputs())
    });
    match built {
        Some(outputs) => outputs.into_iter().map(|id| Output::new(graph, Some(id))).collect(),
        None => vec![Output::void(graph); count as usize],
    }
}

/// Rows of one part, looked up on the device that holds it.
#[track_caller]
fn gather_beside(table: &Variable, rows: &Output) -> Output {
    let graph = table.graph();
    match table.place().id() {
        Some(place) => graph.scope().colocated_with(place.node, || table.gather(rows)),
        None => Output::void(graph),
    }
}

#[track_caller]
fn stitch(graph: &Graph, places: &[Output], rows: &[Output]) -> Output {
    let ids: Option<Vec<_>> = places.iter().chain(rows).map(|output| graph.own_one(output)).collect();
    match ids {
        Some(ids) => graph.output([], |s, []| s.op("ParallelDynamicStitch", &ids)),
        None => Output::void(graph),
    }
}
