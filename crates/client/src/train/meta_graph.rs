//! Graphs with all that belongs to them: variables, queue runners, summaries and a saver, in TensorFlow's `MetaGraphDef`.
//!
//! Savers write one beside each checkpoint, as `prefix.meta`, from which training can go on without the program that
//! built the graph.

use super::{QueueRunner, Saver};
use crate::partitioned::SaveSlice;
use crate::{Graph, Operation, Output, Variable};
use prost::Message;
use proto::collection_def::{BytesList, Kind, NodeList};
use proto::{CollectionDef, MetaGraphDef, QueueRunnerDef, SaveSliceInfoDef, VariableDef};
use std::collections::HashMap;
use std::path::Path;
use storage::LocalFiles;
use tensor::{Error, Result, Shape, invalid};

const VARIABLES: &str = "variables";
const TRAINABLE: &str = "trainable_variables";
const LOCAL: &str = "local_variables";
const GLOBAL_STEP: &str = "global_step";
const QUEUE_RUNNERS: &str = "queue_runners";
const SUMMARIES: &str = "summaries";

/// Writes a graph, its collections and its saver to a file that TensorFlow's `import_meta_graph` reads.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{export_meta_graph, import_meta_graph};
///
/// let g = Graph::new();
/// let w = g.variable("w", [1.0f32, 2.0]);
/// let saver = Saver::new(&g);
/// let path = tempfile::tempdir()?.path().join("graph.meta");
/// export_meta_graph(&g, Some(&saver), &path)?;
///
/// let (again, saver) = import_meta_graph(&path)?;
/// assert_eq!(again.trainable_variables()[0].name(), "w");
/// assert!(saver.is_some());
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub fn export_meta_graph(graph: &Graph, saver: Option<&Saver>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    storage::replace(&LocalFiles, path, &graph.to_meta_graph(saver)?.encode_to_vec())
}

/// The graph and the saver in a file that `export_meta_graph` wrote, ours or TensorFlow's.
pub fn import_meta_graph(path: impl AsRef<Path>) -> Result<(Graph, Option<Saver>)> {
    let path = path.as_ref();
    let here = |e: Error| Error { message: format!("{}: {}", path.display(), e.message), ..e };
    let bytes = std::fs::read(path).map_err(|e| here(e.into()))?;
    let message = MetaGraphDef::decode(bytes.as_slice())
        .map_err(|e| here(invalid!("this is not a serialized MetaGraphDef: {e}")))?;
    Graph::from_meta_graph(&message).map_err(here)
}

impl Graph {
    /// The message for this graph, its collections and its saver.
    pub fn to_meta_graph(&self, saver: Option<&Saver>) -> Result<MetaGraphDef> {
        let graph_def = self.to_graph_def()?;
        let collections = self.collections().lock();
        let variables = |list: &[Variable]| {
            let trainable = |v: &Variable| collections.trainable.iter().any(|t| t.is_same(v));
            list.iter().map(|v| Ok(to_variable_def(v, trainable(v))?.encode_to_vec())).collect::<Result<Vec<_>>>()
        };
        let runners = collections.queue_runners.iter().map(|runner| runner.to_proto().encode_to_vec()).collect();
        let summaries = collections.summaries.iter().map(Output::full_name).collect::<Result<Vec<_>>>()?;
        let lists = [
            (VARIABLES, bytes_list(variables(&collections.global)?)),
            (TRAINABLE, bytes_list(variables(&collections.trainable)?)),
            (LOCAL, bytes_list(variables(&collections.local)?)),
            (GLOBAL_STEP, bytes_list(variables(collections.global_step.as_slice())?)),
            (QUEUE_RUNNERS, bytes_list(runners)),
            (SUMMARIES, (!summaries.is_empty()).then_some(Kind::NodeList(NodeList { value: summaries }))),
        ];
        let collection =
            |(name, kind): (&str, Option<Kind>)| Some((name.to_string(), CollectionDef { kind: Some(kind?) }));
        Ok(MetaGraphDef {
            meta_info_def: Some(Default::default()),
            graph_def: Some(graph_def),
            saver_def: saver.map(Saver::to_saver_def).transpose()?,
            collection_def: lists.into_iter().filter_map(collection).collect(),
            ..Default::default()
        })
    }

    /// The graph in a message, with the variables, queue runners and summaries it lists, and its saver.
    pub fn from_meta_graph(message: &MetaGraphDef) -> Result<(Graph, Option<Saver>)> {
        let graph = match &message.graph_def {
            Some(graph_def) => Graph::import(graph_def)?,
            None => Graph::new(),
        };
        let mut known = HashMap::new();
        let mut variables = |name: &str| {
            let defs = messages::<VariableDef>(message, name)?;
            defs.iter().map(|def| variable_once(&graph, def, &mut known)).collect::<Result<Vec<_>>>()
        };
        let (global, trainable) = (variables(VARIABLES)?, variables(TRAINABLE)?);
        let (local, global_step) = (variables(LOCAL)?, variables(GLOBAL_STEP)?.pop());
        let runners = messages::<QueueRunnerDef>(message, QUEUE_RUNNERS)?;
        let runners: Vec<_> = runners.iter().map(|def| QueueRunner::from_proto(&graph, def)).collect();
        let summaries = node_list(message, SUMMARIES);
        let summaries = summaries.iter().map(|name| output(&graph, name)).collect::<Result<Vec<_>>>()?;
        {
            let mut collections = graph.collections().lock();
            collections.use_resource = global.iter().any(Variable::is_resource);
            collections.global = global;
            collections.trainable = trainable;
            collections.local = local;
            collections.global_step = global_step;
            collections.queue_runners = runners;
            collections.summaries = summaries;
        }
        let saver = message.saver_def.as_ref().map(|def| Saver::from_saver_def(&graph, def)).transpose()?;
        graph.check()?;
        Ok((graph, saver))
    }
}

fn bytes_list(values: Vec<Vec<u8>>) -> Option<Kind> {
    let value = values.into_iter().map(Into::into).collect::<Vec<_>>();
    (!value.is_empty()).then_some(Kind::BytesList(BytesList { value }))
}

/// The messages of a collection; none if there is no such collection.
fn messages<M: Message + Default>(graph: &MetaGraphDef, name: &str) -> Result<Vec<M>> {
    match graph.collection_def.get(name).and_then(|collection| collection.kind.as_ref()) {
        Some(Kind::BytesList(list)) => {
            let decode = |bytes: &prost::bytes::Bytes| M::decode(bytes.clone());
            let decoded = list.value.iter().map(decode).collect::<Result<Vec<M>, _>>();
            decoded.map_err(|e| invalid!("the collection '{name}' holds something else than its messages: {e}"))
        }
        Some(_) => Err(invalid!("the collection '{name}' is a list of something else than messages")),
        None => Ok(Vec::new()),
    }
}

fn node_list(graph: &MetaGraphDef, name: &str) -> Vec<String> {
    match graph.collection_def.get(name).and_then(|collection| collection.kind.as_ref()) {
        Some(Kind::NodeList(list)) => list.value.clone(),
        _ => Vec::new(),
    }
}

/// The output called `name:index`.
pub(crate) fn output(graph: &Graph, name: &str) -> Result<Output> {
    let found = graph.scope().with_graph(|g| g.find_output(name).filter(|o| g.info(*o).is_ok()));
    let found = found.ok_or_else(|| invalid!("the graph has no output called '{name}', which is listed beside it"))?;
    Ok(Output::new(graph, Some(found)))
}

/// The node of this name.
pub(crate) fn operation(graph: &Graph, name: &str) -> Result<Operation> {
    let found = graph.scope().with_graph(|g| g.find(name));
    let found = found.ok_or_else(|| invalid!("the graph has no node called '{name}', which is listed beside it"))?;
    Ok(Operation::new(graph, Some(found)))
}

fn to_variable_def(variable: &Variable, trainable: bool) -> Result<VariableDef> {
    Ok(VariableDef {
        variable_name: variable.place().full_name()?,
        initializer_name: variable.initializer().full_name()?,
        snapshot_name: variable.full_name()?,
        // One that came from a file of an older TensorFlow may have none.
        initial_value_name: variable.initial_value().full_name().unwrap_or_default(),
        is_resource: variable.is_resource(),
        trainable,
        save_slice_info_def: variable.save_slice().map(to_slice_def),
        ..Default::default()
    })
}

/// A variable that may be listed several times is one variable.
fn variable_once(graph: &Graph, def: &VariableDef, known: &mut HashMap<String, Variable>) -> Result<Variable> {
    if let Some(variable) = known.get(&def.variable_name) {
        return Ok(variable.clone());
    }
    let initial = match def.initial_value_name.as_str() {
        "" => Output::void(graph),
        name => output(graph, name)?,
    };
    let variable = Variable::assemble(
        output(graph, &def.snapshot_name)?,
        output(graph, &def.variable_name)?,
        initial,
        operation(graph, &def.initializer_name)?,
        def.is_resource,
        def.save_slice_info_def.as_ref().map(from_slice_def).transpose()?,
    );
    known.insert(def.variable_name.clone(), variable.clone());
    Ok(variable)
}

fn to_slice_def(slice: &SaveSlice) -> SaveSliceInfoDef {
    SaveSliceInfoDef {
        full_name: slice.full_name.clone(),
        full_shape: slice.full_shape.to_i64s(),
        var_offset: slice.offset.iter().map(|&start| start as i64).collect(),
        var_shape: slice.shape.to_i64s(),
    }
}

fn from_slice_def(def: &SaveSliceInfoDef) -> Result<SaveSlice> {
    let shape = |dims: &[i64]| Shape::checked(dims.iter().copied());
    let offset = def.var_offset.iter().map(|&start| usize::try_from(start));
    let offset =
        offset.collect::<Result<Vec<_>, _>>().map_err(|_| invalid!("'{}' has a negative offset", def.full_name))?;
    let slice = SaveSlice {
        full_name: def.full_name.clone(),
        full_shape: shape(&def.full_shape)?,
        offset,
        shape: shape(&def.var_shape)?,
    };
    if [slice.offset.len(), slice.shape.rank()] != [slice.full_shape.rank(); 2] {
        return Err(invalid!("offset, shape and full shape of a part of '{}' differ in rank", def.full_name));
    }
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::{VariableOptions, fixed_size_partitioner};

    fn built() -> (Graph, Saver) {
        let g = Graph::new();
        g.global_step();
        g.variable("a", [1.0f32, 2.0]);
        g.resource_variable("r", 3i32);
        g.variable_with("own", 1.0f32, VariableOptions { local: true, trainable: false, ..Default::default() });
        g.partitioned_variable("b", initializers::zeros([5, 2]), &fixed_size_partitioner(2));
        g.scalar_summary("loss", &g.constant(1.0f32));
        let queue = g.fifo_queue(2).component::<f32>([2]).build();
        let fill = queue.enqueue(&[&g.constant([1.0f32, 2.0])]);
        g.add_queue_runner(QueueRunner::new(&queue, vec![fill]));
        let saver = Saver::new(&g);
        (g, saver)
    }

    #[test]
    fn all_that_belongs_to_a_graph_survives() {
        let (g, saver) = built();
        let message = g.to_meta_graph(Some(&saver)).unwrap();
        let names: Vec<&str> = message.collection_def.keys().map(String::as_str).collect();
        assert_eq!(names, [GLOBAL_STEP, LOCAL, QUEUE_RUNNERS, SUMMARIES, TRAINABLE, VARIABLES]);
        let (again, saver) = Graph::from_meta_graph(&message).unwrap();
        assert_eq!(again.to_meta_graph(saver.as_ref()).unwrap(), message);
        let names = |list: Vec<Variable>| list.iter().map(Variable::name).collect::<Vec<_>>();
        assert_eq!(names(again.global_variables()), ["global_step", "a", "r", "b/part_0", "b/part_1"]);
        assert_eq!(names(again.trainable_variables()), ["a", "r", "b/part_0", "b/part_1"]);
        assert_eq!(names(again.local_variables()), ["own"]);
        assert_eq!(again.global_step().name(), "global_step");
    }

    #[test]
    fn a_saver_that_came_with_a_graph_saves_and_restores() {
        let (g, saver) = built();
        let init = g.initialize_all();
        let message = g.to_meta_graph(Some(&saver)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        let path = saver.save(&session, folder.path().join("m"), Some(7)).unwrap();

        let (again, saver) = import_meta_graph(folder.path().join("m-7.meta")).unwrap();
        assert_eq!(again.to_graph_def().unwrap(), message.graph_def.unwrap());
        let saver = saver.unwrap();
        let session = Session::new(&again).unwrap();
        saver.restore(&session, &path).unwrap();
        assert_eq!(session.run(again.find("r/Read/ReadVariableOp")).unwrap(), Tensor::from(3i32));
        let path = saver.save(&session, folder.path().join("m"), Some(8)).unwrap();
        saver.restore(&session, path).unwrap();
    }

    #[test]
    fn a_message_that_does_not_fit_is_refused() {
        let check = |spoil: &dyn Fn(&mut MetaGraphDef), why: &str| {
            let (g, saver) = built();
            let mut message = g.to_meta_graph(Some(&saver)).unwrap();
            spoil(&mut message);
            let error = Graph::from_meta_graph(&message).err().unwrap();
            assert!(error.message.contains(why), "{error}");
        };
        let put = |message: &mut MetaGraphDef, name: &str, kind: Kind| {
            message.collection_def.insert(name.into(), CollectionDef { kind: Some(kind) });
        };
        let bytes = |bytes: Vec<u8>| Kind::BytesList(BytesList { value: vec![bytes.into()] });
        let nodes = |name: &str| Kind::NodeList(NodeList { value: vec![name.into()] });
        check(&|m| put(m, VARIABLES, bytes(vec![255])), "the collection 'variables' holds something else");
        check(&|m| put(m, VARIABLES, nodes("a")), "the collection 'variables' is a list of something else");
        let gone = VariableDef { variable_name: "gone:0".into(), ..Default::default() };
        check(&|m| put(m, VARIABLES, bytes(gone.encode_to_vec())), "the graph has no output called ''");
        check(&|m| put(m, SUMMARIES, nodes("a:7")), "the graph has no output called 'a:7'");
        let runner = QueueRunnerDef { close_op_name: "none".into(), ..Default::default() };
        check(&|m| put(m, QUEUE_RUNNERS, bytes(runner.encode_to_vec())), "the graph has no node called 'none'");
        check(&|m| m.saver_def.as_mut().unwrap().restore_op_name = "x".into(), "the graph has no node called 'x'");
        let slice = SaveSliceInfoDef { full_shape: vec![2], var_offset: vec![0, 0], ..Default::default() };
        let part = VariableDef {
            variable_name: "a:0".into(),
            snapshot_name: "a/read:0".into(),
            initializer_name: "a/Assign".into(),
            save_slice_info_def: Some(slice),
            ..Default::default()
        };
        check(&|m| put(m, VARIABLES, bytes(part.encode_to_vec())), "differ in rank");
    }
}
