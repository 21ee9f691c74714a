//! `Output` and `Operation`: handles on what a graph computes and on what merely happens in it.

use crate::Graph;
use framework::NodeId;
use tensor::{DType, PartialShape, Result, invalid};

/// A value to be computed: a cheap handle on one result of a node, with methods and operators to build on.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.constant([[1.0f32, -2.0], [3.0, -4.0]]);
/// let y = (2.0 * &x + 1.0).relu().sum();
/// assert_eq!(Session::new(&g)?.run(&y)?.item::<f32>()?, 10.0);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Output {
    graph: Graph,
    /// Nothing, if it could not be built; the graph keeps the reason.
    id: Option<framework::Output>,
}

impl Output {
    pub(crate) fn new(graph: &Graph, id: Option<framework::Output>) -> Output {
        Output { graph: graph.clone(), id }
    }

    pub(crate) fn void(graph: &Graph) -> Output {
        Output::new(graph, None)
    }

    pub(crate) fn id(&self) -> Option<framework::Output> {
        self.id
    }

    /// The graph it belongs to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The node's name, with `:index` for outputs other than the first.
    pub fn name(&self) -> String {
        let Some(id) = self.id else { return "(not built)".into() };
        let name = self.graph.scope().node_name(id.node);
        if id.index == 0 { name } else { format!("{name}:{}", id.index) }
    }

    /// `node:index`, as sessions name it; the graph's first mistake if this could not be built.
    pub(crate) fn full_name(&self) -> Result<String> {
        match self.id {
            Some(id) => Ok(self.graph.scope().with_graph(|g| g.output_name(id))),
            None => Err(self.graph.check().err().unwrap_or_else(|| invalid!("an output that was not built"))),
        }
    }

    /// The type of the elements; of something that could not be built, `f32`.
    pub fn dtype(&self) -> DType {
        self.id.and_then(|id| self.graph.scope().dtype(id).ok()).unwrap_or(DType::F32)
    }

    /// What is known of the shape.
    pub fn shape(&self) -> PartialShape {
        self.id.and_then(|id| self.graph.scope().shape(id).ok()).unwrap_or_else(PartialShape::unknown)
    }

    /// Says more of the shape than is known; a mistake if it contradicts what is known.
    #[track_caller]
    pub fn set_shape(&self, shape: impl Into<PartialShape>) {
        if let Some(id) = self.id {
            let shape = shape.into();
            self.graph.kept(self.graph.scope().edit_graph(|g| g.set_shape(id, &shape)));
        }
    }

    /// The device that its node was given; parts may be open.
    pub fn device(&self) -> String {
        let device = |id: framework::Output| self.graph.scope().with_graph(|g| g.node(id.node).device.clone());
        self.id.map(device).unwrap_or_default()
    }

    /// The node that computes it, as something that happens.
    pub fn operation(&self) -> Operation {
        Operation { graph: self.graph.clone(), id: self.id.map(|id| id.node) }
    }
}

impl AsRef<Output> for Output {
    fn as_ref(&self) -> &Output {
        self
    }
}

impl From<&Output> for Output {
    fn from(output: &Output) -> Output {
        output.clone()
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}{}", self.name(), self.dtype(), self.shape())
    }
}

/// Something that happens when run and gives nothing back: an initialisation, a training step.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let count = g.variable("count", 0i32);
/// let add = count.assign_add(1);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// session.run(&add)?;
/// assert_eq!(session.run(&count)?.item::<i32>()?, 1);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Operation {
    graph: Graph,
    id: Option<NodeId>,
}

impl Operation {
    pub(crate) fn new(graph: &Graph, id: Option<NodeId>) -> Operation {
        Operation { graph: graph.clone(), id }
    }

    pub(crate) fn void(graph: &Graph) -> Operation {
        Operation::new(graph, None)
    }

    pub(crate) fn id(&self) -> Option<NodeId> {
        self.id
    }

    /// The graph it belongs to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The node's name.
    pub fn name(&self) -> String {
        self.id.map_or("(not built)".into(), |id| self.graph.scope().node_name(id))
    }

    pub(crate) fn full_name(&self) -> Result<String> {
        match self.id {
            Some(id) => Ok(self.graph.scope().node_name(id)),
            None => Err(self.graph.check().err().unwrap_or_else(|| invalid!("an operation that was not built"))),
        }
    }
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}
