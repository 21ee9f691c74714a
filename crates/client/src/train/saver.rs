//! `Saver`: writes variables to checkpoints and reads them back.
//!
//! It adds to the graph the nodes that TensorFlow's saver adds, under the same names, so that either can drive the other's:
//! feed the name of the file, run the save or the restore.

use super::checkpoints::{Kept, Policy};
use super::meta_graph::{self, export_meta_graph};
use crate::graph::group;
use crate::partitioned::SaveSlice;
use crate::{Feeds, Graph, Operation, Output, Session, Variable};
use framework::{DeviceSpec, NodeId, Scope};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use storage::{BundleReader, LocalFiles};
use tensor::{Code, DType, Error, PartialShape, Result, Shape, Tensor, invalid, not_found};

/// Writes variables to checkpoints and reads them back; clones are handles on the same saver.
///
/// Saving does not stop training: each variable is written as it was when the save read it.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [1.0f32, 2.0]);
/// let double = w.assign(&w * 2.0);
/// let init = g.initialize_all();
/// let saver = Saver::new(&g);
///
/// let folder = tempfile::tempdir()?;
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let path = saver.save(&session, folder.path().join("model"), Some(1))?;
/// session.run(&double)?;
/// saver.restore(&session, &path)?;
/// assert_eq!(session.run(&w)?, Tensor::from([1.0f32, 2.0]));
/// assert_eq!(ferroflow::train::latest_checkpoint(folder.path())?, Some(path));
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Saver {
    inner: Arc<Inner>,
}

struct Inner {
    nodes: Nodes,
    options: Options,
    /// What a checkpoint must hold to be restored, as far as it is known here.
    wanted: Vec<Wanted>,
    kept: Mutex<Kept>,
}

/// The nodes through which a saver is driven.
struct Nodes {
    /// Fed with the prefix.
    filename: Output,
    /// Gives the prefix back when all is written.
    save: Output,
    restore: Operation,
}

#[derive(Clone, Debug)]
struct Options {
    policy: Policy,
    sharded: bool,
    pad_step_number: bool,
    write_meta_graph: bool,
    /// Whether there is nothing to save.
    is_empty: bool,
}

struct Wanted {
    name: String,
    dtype: DType,
    shape: Shape,
}

/// What a saver saves and how; made by [`Saver::builder`].
pub struct SaverBuilder {
    graph: Graph,
    chosen: Option<Vec<(Option<String>, Variable)>>,
    name: String,
    allow_empty: bool,
    options: Options,
}

impl Saver {
    /// A saver of all variables made so far, except those that every task keeps for itself.
    #[track_caller]
    pub fn new(graph: &Graph) -> Saver {
        Saver::builder(graph).build()
    }

    /// A saver that is not ordinary.
    pub fn builder(graph: &Graph) -> SaverBuilder {
        let policy = Policy { max_to_keep: 5, every_n_hours: 10_000.0 };
        let options =
            Options { policy, sharded: false, pad_step_number: false, write_meta_graph: true, is_empty: false };
        SaverBuilder { graph: graph.clone(), chosen: None, name: "save".into(), allow_empty: false, options }
    }

    /// Writes a checkpoint `prefix-step`, or `prefix` without a step, and gives back its name. It becomes the latest of its
    /// directory once it is whole; older ones that are too many are removed then.
    pub fn save(&self, session: &Session, prefix: impl AsRef<Path>, step: Option<i64>) -> Result<PathBuf> {
        let path = self.inner.options.path(prefix.as_ref(), step)?;
        if self.inner.options.is_empty {
            return Ok(path);
        }
        let saved = session.run_with(&self.inner.nodes.save, self.feed(&path)?);
        saved.map_err(|e| e.context(format_args!("saving {}", path.display())))?;
        if self.inner.options.write_meta_graph {
            let mut meta = path.clone().into_os_string();
            meta.push(".meta");
            export_meta_graph(self.inner.nodes.filename.graph(), Some(self), PathBuf::from(meta))?;
        }
        self.inner.kept.lock().record(&LocalFiles, path.clone(), SystemTime::now())?;
        Ok(path)
    }

    /// Gives the variables the values they have in a checkpoint.
    pub fn restore(&self, session: &Session, prefix: impl AsRef<Path>) -> Result<()> {
        let path = prefix.as_ref();
        self.check(path)?;
        let restored = session.run_with(&self.inner.nodes.restore, self.feed(path)?);
        restored.map_err(|e| e.context(format_args!("restoring {}", path.display())))
    }

    /// The checkpoints written and not yet removed, the oldest first.
    pub fn last_checkpoints(&self) -> Vec<PathBuf> {
        self.inner.kept.lock().paths()
    }

    /// Takes over the checkpoints of an earlier run, the oldest first, so that they too are removed in time.
    pub fn recover_last_checkpoints(&self, paths: &[PathBuf]) -> Result<()> {
        self.inner.kept.lock().recover(&LocalFiles, paths)
    }

    /// The message by which other programs drive this saver.
    pub fn to_saver_def(&self) -> Result<proto::SaverDef> {
        let Inner { nodes, options, .. } = &*self.inner;
        Ok(proto::SaverDef {
            filename_tensor_name: nodes.filename.full_name()?,
            save_tensor_name: nodes.save.full_name()?,
            restore_op_name: nodes.restore.full_name()?,
            max_to_keep: i32::try_from(options.policy.max_to_keep).unwrap_or(i32::MAX),
            sharded: options.sharded,
            keep_checkpoint_every_n_hours: options.policy.every_n_hours as f32,
            version: proto::saver_def::CheckpointFormatVersion::V2 as i32,
        })
    }

    /// The saver in a message, for a graph that has its nodes.
    pub(crate) fn from_saver_def(graph: &Graph, def: &proto::SaverDef) -> Result<Saver> {
        let nodes = Nodes {
            filename: meta_graph::output(graph, &def.filename_tensor_name)?,
            save: meta_graph::output(graph, &def.save_tensor_name)?,
            restore: meta_graph::operation(graph, &def.restore_op_name)?,
        };
        let policy = Policy {
            max_to_keep: usize::try_from(def.max_to_keep).unwrap_or(0),
            every_n_hours: def.keep_checkpoint_every_n_hours.into(),
        };
        let options =
            Options { policy, sharded: def.sharded, pad_step_number: false, write_meta_graph: true, is_empty: false };
        Ok(Saver::assemble(nodes, options, Vec::new()))
    }

    fn assemble(nodes: Nodes, options: Options, wanted: Vec<Wanted>) -> Saver {
        let kept = Mutex::new(Kept::new(options.policy, SystemTime::now()));
        Saver { inner: Arc::new(Inner { nodes, options, wanted, kept }) }
    }

    /// Compares a checkpoint with what is to be restored. One that is not to be seen from here may be seen by the servers.
    fn check(&self, prefix: &Path) -> Result<()> {
        let reader = match BundleReader::open(Arc::new(LocalFiles), prefix) {
            Err(error) if error.code == Code::NotFound => return Ok(()),
            reader => reader?,
        };
        self.inner.wanted.iter().try_for_each(|wanted| wanted.check(&reader, prefix))
    }

    fn feed(&self, path: &Path) -> Result<Feeds> {
        Ok(Feeds::new().with(&self.inner.nodes.filename, Tensor::from(server_path(path)?)))
    }
}

/// A path as a server of this machine takes it, whatever directory it was started in.
fn server_path(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| invalid!("'{}' is not UTF-8", path.display()))?;
    if text.contains("://") {
        return Ok(text.into());
    }
    let absolute = std::path::absolute(path).map_err(Error::from)?;
    absolute.into_os_string().into_string().map_err(|_| invalid!("the current directory's name is not UTF-8"))
}

impl Options {
    fn path(&self, prefix: &Path, step: Option<i64>) -> Result<PathBuf> {
        if prefix.file_name().is_none() {
            return Err(invalid!("'{}' cannot be the prefix of a checkpoint", prefix.display()));
        }
        let mut path = prefix.as_os_str().to_owned();
        match step {
            Some(step) if self.pad_step_number => path.push(format!("-{step:08}")),
            Some(step) => path.push(format!("-{step}")),
            None => {}
        }
        Ok(PathBuf::from(path))
    }
}

impl Wanted {
    fn check(&self, reader: &BundleReader, prefix: &Path) -> Result<()> {
        let (file, Wanted { name, dtype, shape }) = (prefix.display(), self);
        if !reader.contains(name)? {
            let names = reader.names()?;
            return Err(not_found!(
                "{file}: Key {name} not found in checkpoint: wanted {dtype}{shape}, the {} tensors in it are {}",
                names.len(),
                shortened(&names)
            ));
        }
        let found = reader.lookup(name)?;
        if (found.dtype, &found.shape) != (*dtype, shape) {
            let (dtype_found, shape_found) = (found.dtype, found.shape);
            return Err(invalid!(
                "{file}: tensor_name = {name}: wanted {dtype}{shape}, found {dtype_found}{shape_found} in the checkpoint"
            ));
        }
        Ok(())
    }
}

/// Names for an error message: not more than a person reads.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 12;
    match names.get(..SHOWN) {
        Some(first) if names.len() > SHOWN => format!("{}, …", first.join(", ")),
        _ => names.join(", "),
    }
}

impl SaverBuilder {
    /// Saves these variables only.
    pub fn variables<'v>(mut self, variables: impl IntoIterator<Item = &'v Variable>) -> Self {
        let chosen = variables.into_iter().map(|v| (None, v.clone()));
        self.chosen.get_or_insert_default().extend(chosen);
        self
    }

    /// Saves these variables only, under other names than their own.
    pub fn variables_as<'v, N: Into<String>>(mut self, variables: impl IntoIterator<Item = (N, &'v Variable)>) -> Self {
        let chosen = variables.into_iter().map(|(name, v)| (Some(name.into()), v.clone()));
        self.chosen.get_or_insert_default().extend(chosen);
        self
    }

    /// Whether each device writes its own variables to a file of its own, rather than one device those of all.
    pub fn sharded(mut self, yes: bool) -> Self {
        self.options.sharded = yes;
        self
    }

    /// How many checkpoints are kept; 5 unless told, and all of them if 0.
    pub fn max_to_keep(mut self, count: usize) -> Self {
        self.options.policy.max_to_keep = count;
        self
    }

    /// Besides those, one for every so many hours of training is kept for good.
    pub fn keep_checkpoint_every_n_hours(mut self, hours: f64) -> Self {
        self.options.policy.every_n_hours = hours;
        self
    }

    /// Whether steps are written with eight digits, so that names sort as the steps do.
    pub fn pad_step_number(mut self, yes: bool) -> Self {
        self.options.pad_step_number = yes;
        self
    }

    /// Whether the graph is written beside each checkpoint, as `prefix.meta`; it is unless told otherwise.
    pub fn write_meta_graph(mut self, yes: bool) -> Self {
        self.options.write_meta_graph = yes;
        self
    }

    /// Whether a graph without variables is no mistake: nothing is saved then, and no checkpoint written.
    pub fn allow_empty(mut self, yes: bool) -> Self {
        self.allow_empty = yes;
        self
    }

    /// The name scope of its nodes; `save` unless told.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds the nodes.
    #[track_caller]
    pub fn build(self) -> Saver {
        let graph = &self.graph;
        let (nodes, wanted): (Nodes, Vec<Wanted>) = graph.here(|| {
            let saved = graph.kept(self.saved()).unwrap_or_default();
            let s = graph.scope();
            let nodes = s.with_name(&self.name, || graph.kept(build_nodes(graph, &saved, self.options.sharded)));
            let void =
                || Nodes { filename: Output::void(graph), save: Output::void(graph), restore: Operation::void(graph) };
            (nodes.unwrap_or_else(void), saved.iter().filter_map(Saved::wanted).collect())
        });
        let is_empty = self.allow_empty && wanted.is_empty();
        Saver::assemble(nodes, Options { is_empty, ..self.options }, wanted)
    }

    /// What is saved, ordered by name; the parts of a partitioned variable in their own order.
    fn saved(&self) -> Result<Vec<Saved>> {
        let chosen = match &self.chosen {
            Some(chosen) => chosen.clone(),
            None => self.graph.global_variables().into_iter().map(|v| (None, v)).collect(),
        };
        if chosen.is_empty() && !self.allow_empty {
            return Err(invalid!("No variables to save"));
        }
        let mut saved = chosen.into_iter().map(Saved::new).collect::<Result<Vec<_>>>()?;
        saved.sort_by(|a, b| a.name.cmp(&b.name));
        for pair in saved.windows(2) {
            if pair[0].name == pair[1].name && (pair[0].slice.is_empty() || pair[1].slice.is_empty()) {
                return Err(invalid!("At least two variables have the same name: {}", pair[0].name));
            }
        }
        Ok(saved)
    }
}

/// One variable as it stands in a checkpoint.
struct Saved {
    name: String,
    /// Which part of the tensor of that name it is; the whole if empty.
    slice: String,
    variable: Variable,
    place: framework::Output,
}

impl Saved {
    fn new((name, variable): (Option<String>, Variable)) -> Result<Saved> {
        let place = variable.place_id()?;
        let own = variable.save_slice().map_or_else(|| variable.name(), |slice| slice.full_name.clone());
        let slice = variable.save_slice().map(SaveSlice::spec).unwrap_or_default();
        Ok(Saved { name: name.unwrap_or(own), slice, place, variable })
    }

    fn wanted(&self) -> Option<Wanted> {
        let whole = self.variable.save_slice().map(|slice| slice.full_shape.clone());
        let shape = whole.or_else(|| self.variable.shape().known())?;
        Some(Wanted { name: self.name.clone(), dtype: self.variable.dtype(), shape })
    }

    fn device(&self, s: &Scope) -> String {
        s.with_graph(|g| g.node(self.place.node).device.clone())
    }

    /// What is written.
    fn value(&self, s: &Scope) -> Result<framework::Output> {
        let read = self.variable.id().ok_or_else(|| invalid!("a variable that was not built"))?;
        match (self.variable.is_resource(), self.slice.is_empty()) {
            (false, true) => Ok(self.place),
            (true, false) => self.read_part(s),
            (false, false) | (true, true) => Ok(read),
        }
    }

    /// Parts that are resources are read anew, where they are.
    fn read_part(&self, s: &Scope) -> Result<framework::Output> {
        let device: DeviceSpec = self.device(s).parse()?;
        let value = s.with_device(device.clone(), || {
            let dtype = self.variable.dtype();
            let read = || s.node("ReadVariableOp").input(self.place).attr("dtype", dtype).output();
            let value = s.with_name("Read", read)?;
            s.op("Identity", &[value])
        })?;
        s.with_device(on_cpu(&device), || s.op("Identity", &[value]))
    }

    /// Gives the variable a value that was read.
    fn assign(&self, s: &Scope, value: framework::Output) -> Result<NodeId> {
        if !self.variable.is_resource() {
            let node = || s.node("Assign").inputs(&[self.place, value]).build();
            return s.colocated_with(self.place.node, node);
        }
        s.with_device(self.device(s).parse()?, || {
            let value = s.op("Identity", &[value])?;
            s.node("AssignVariableOp").inputs(&[self.place, value]).build()
        })
    }
}

fn build_nodes(graph: &Graph, saved: &[Saved], sharded: bool) -> Result<Nodes> {
    let s = graph.scope();
    let saved: Vec<&Saved> = saved.iter().collect();
    let prefix = filename(s)?;
    let (save, restore) = if sharded { add_sharded(s, prefix, &saved)? } else { add_whole(s, prefix, &saved)? };
    let restore = group(s, "restore_all", &restore)?;
    Ok(Nodes {
        filename: Output::new(graph, Some(prefix)),
        save: Output::new(graph, Some(save)),
        restore: Operation::new(graph, Some(restore)),
    })
}

/// What is fed with the checkpoint's name.
fn filename(s: &Scope) -> Result<framework::Output> {
    let name = s.unique_name("filename");
    let default = s.with_absolute_name(&name, || constant(s, "input", Tensor::from("model")))?;
    let fed = |name: String, input| {
        s.node("PlaceholderWithDefault")
            .name(name)
            .input(input)
            .attr("shape", PartialShape::from(Shape::scalar()))
            .output()
    };
    let filename = fed(format!("{name}/"), default)?;
    fed("Const".into(), filename)
}

type Ends = (framework::Output, Vec<NodeId>);

/// All variables in one file, written and read by one device.
fn add_whole(s: &Scope, prefix: framework::Output, saved: &[&Saved]) -> Result<Ends> {
    if saved.is_empty() {
        return Ok((s.node("Identity").name("control_dependency").input(prefix).output()?, Vec::new()));
    }
    let save = save_node(s, prefix, saved)?;
    Ok((after(s, prefix, save)?, restore_nodes(s, prefix, saved)?))
}

/// Each device's variables in a file of their own; the last device makes one checkpoint of all.
fn add_sharded(s: &Scope, prefix: framework::Output, saved: &[&Saved]) -> Result<Ends> {
    if saved.is_empty() {
        return add_whole(s, prefix, saved);
    }
    let shards = by_device(s, saved)?;
    let temporary = temporary_prefix(s, prefix)?;
    let count = constant(s, "num_shards", Tensor::from(shards.len() as i32))?;
    let mut parts = Vec::new();
    for (number, (device, members)) in shards.iter().enumerate() {
        parts.push(s.with_device(on_cpu(device), || {
            let part = sharded_filename(s, temporary, number as i32, count)?;
            let save = save_node(s, part, members)?;
            Ok::<_, Error>((part, after(s, part, save)?))
        })?);
    }
    let merger = shards.last().map(|(device, _)| on_cpu(device)).unwrap_or_default();
    let merged = s.with_device(merger, || merge(s, prefix, &parts))?;

    let mut restored = Vec::new();
    for (device, members) in &shards {
        restored.push(s.with_device(device.clone(), || {
            let nodes = restore_nodes(s, prefix, members)?;
            group(s, "restore_shard", &nodes)
        })?);
    }
    Ok((merged, restored))
}

/// The variables of each device, the devices ordered as they are written.
fn by_device<'s>(s: &Scope, saved: &[&'s Saved]) -> Result<Vec<(DeviceSpec, Vec<&'s Saved>)>> {
    let mut shards: BTreeMap<String, Vec<&Saved>> = BTreeMap::new();
    for &one in saved {
        let device: DeviceSpec = one.device(s).parse()?;
        shards.entry(device.to_string()).or_default().push(one);
    }
    shards.into_iter().map(|(device, members)| Ok((device.parse()?, members))).collect()
}

/// The first CPU of a device's task: what reads and writes files.
fn on_cpu(device: &DeviceSpec) -> DeviceSpec {
    DeviceSpec { kind: Some("CPU".into()), index: Some(0), ..device.clone() }
}

/// What the files are called until they are merged. On a store without directories they stand beside the checkpoint.
fn temporary_prefix(s: &Scope, prefix: framework::Output) -> Result<framework::Output> {
    s.with_device(DeviceSpec { kind: Some("CPU".into()), ..DeviceSpec::default() }, || {
        let is_store = s.node("StaticRegexFullMatch").input(prefix).attr("pattern", "^s3://.*").output()?;
        let beside = constant(s, "Const", Tensor::from(".part"))?;
        let inside = constant(s, "Const", Tensor::from("_temp/part"))?;
        let end = s.op("Select", &[is_store, beside, inside])?;
        s.op("StringJoin", &[prefix, end])
    })
}

fn sharded_filename(
    s: &Scope,
    prefix: framework::Output,
    number: i32,
    count: framework::Output,
) -> Result<framework::Output> {
    let name = s.unique_name("ShardedFilename");
    let number = s.with_absolute_name(&name, || constant(s, "shard", Tensor::from(number)))?;
    s.node("ShardedFilename").name(name + "/").inputs(&[prefix, number, count]).output()
}

/// Makes one checkpoint of several, each given by its prefix and by what tells that it is written.
fn merge(
    s: &Scope,
    prefix: framework::Output,
    parts: &[(framework::Output, framework::Output)],
) -> Result<framework::Output> {
    let name = s.unique_name("MergeV2Checkpoints");
    let prefixes: Vec<_> = parts.iter().map(|(part, _)| *part).collect();
    let written: Vec<_> = parts.iter().map(|(_, written)| written.node).collect();
    let prefixes = s.with_absolute_name(&name, || {
        let pack = || s.node("Pack").name("checkpoint_prefixes").inputs(&prefixes).output();
        s.with_control(&written, pack)
    })?;
    let merge = s.node("MergeV2Checkpoints").name(name + "/").inputs(&[prefixes, prefix]).build()?;
    s.with_control(&written, || s.node("Identity").input(prefix).control(merge).output())
}

fn save_node(s: &Scope, prefix: framework::Output, saved: &[&Saved]) -> Result<NodeId> {
    let values = saved.iter().map(|one| one.value(s)).collect::<Result<Vec<_>>>()?;
    let (name, lists) = lists(s, "SaveV2", saved)?;
    s.node("SaveV2").name(name).input(prefix).inputs(&lists).inputs(&values).attr("dtypes", dtypes(saved)).build()
}

fn restore_nodes(s: &Scope, prefix: framework::Output, saved: &[&Saved]) -> Result<Vec<NodeId>> {
    let restored = s.with_device("/device:CPU:0".parse()?, || {
        let (name, lists) = lists(s, "RestoreV2", saved)?;
        s.node("RestoreV2").name(name).input(prefix).inputs(&lists).attr("dtypes", dtypes(saved)).outputs()
    })?;
    saved.iter().zip(restored).map(|(saved, value)| saved.assign(s, value)).collect()
}

/// The name of a node to be, and the names and slices it takes.
fn lists(s: &Scope, op: &str, saved: &[&Saved]) -> Result<(String, [framework::Output; 2])> {
    let name = s.unique_name(op);
    let strings = |text: fn(&Saved) -> &str| {
        Tensor::from_strings([saved.len()], saved.iter().map(|one| text(one).to_string().into()).collect())
    };
    let lists = s.with_absolute_name(&name, || {
        let names = constant(s, "tensor_names", strings(|one| &one.name)?)?;
        Ok::<_, Error>([names, constant(s, "shape_and_slices", strings(|one| &one.slice)?)?])
    })?;
    Ok((name + "/", lists))
}

fn dtypes(saved: &[&Saved]) -> Vec<DType> {
    saved.iter().map(|one| one.variable.dtype()).collect()
}

/// The same value, once this node has run.
fn after(s: &Scope, value: framework::Output, node: NodeId) -> Result<framework::Output> {
    s.colocated_with(value.node, || s.node("Identity").name("control_dependency").input(value).control(node).output())
}

fn constant(s: &Scope, name: &str, value: Tensor) -> Result<framework::Output> {
    s.node("Const").name(name).attr("dtype", value.dtype()).attr("value", value).output()
}
