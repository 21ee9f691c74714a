//! Which loop each node belongs to.

use super::{Graph, NodeId, sources};
use crate::op::ControlFlow;
use std::collections::HashMap;
use tensor::{Result, invalid};

/// A loop, or what is outside of all loops.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The number of the frame around it.
    pub parent: u32,
    /// As its `Enter` nodes call it.
    pub name: String,
    /// How many iterations may run at once.
    pub parallel_iterations: i64,
    /// How many `Enter` nodes lead into it.
    pub num_enters: u32,
}

/// The frames of a graph; number 0 is the one outside all loops.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The frames.
    pub frames: Vec<Frame>,
    /// For each node, the frame it runs in.
    pub runs_in: Vec<u32>,
    /// For each node, the frame its outputs lead to: another one behind an `Enter` or an `Exit`.
    pub leads_to: Vec<u32>,
}

impl Frames {
    /// Follows the edges from outside all loops.
    pub fn find(graph: &Graph) -> Result<Frames> {
        let mut found =
            Frames { frames: vec![Frame::default()], runs_in: vec![0; graph.len()], leads_to: vec![0; graph.len()] };
        let mut by_name: HashMap<(u32, String), u32> = HashMap::new();
        let mut is_seen = vec![false; graph.len()];
        for id in graph.in_topological_order()? {
            // A source not seen yet is a loop's way back; it is in this frame by construction of the others.
            let runs_in = found.common_frame(graph, id, &is_seen)?;
            found.runs_in[id.index()] = runs_in;
            found.leads_to[id.index()] = found.next_frame(graph, id, runs_in, &mut by_name)?;
            is_seen[id.index()] = true;
        }
        Ok(found)
    }

    /// The frame that all inputs of a node come from.
    fn common_frame(&self, graph: &Graph, id: NodeId, is_seen: &[bool]) -> Result<u32> {
        let node = graph.node(id);
        let mut first: Option<NodeId> = None;
        for source in sources(node).filter(|s| is_seen[s.index()]) {
            let of = |node: NodeId| self.leads_to[node.index()];
            match first {
                Some(first) if of(first) != of(source) => {
                    let name = |node: NodeId| &self.frames[of(node) as usize].name;
                    return Err(invalid!(
                        "The node '{}' has inputs from different frames. The input '{}' is in frame '{}'. The input '{}' is in frame '{}'.",
                        node.name,
                        graph.node(source).name,
                        name(source),
                        graph.node(first).name,
                        name(first)
                    ));
                }
                _ => first = Some(source),
            }
        }
        Ok(first.map_or(0, |node| self.leads_to[node.index()]))
    }

    /// The frame that a node's outputs lead to.
    fn next_frame(
        &mut self,
        graph: &Graph,
        id: NodeId,
        runs_in: u32,
        by_name: &mut HashMap<(u32, String), u32>,
    ) -> Result<u32> {
        let node = graph.node(id);
        Ok(match node.op.control_flow {
            ControlFlow::Enter => {
                let name: String = node.attr("frame_name")?;
                let number = *by_name.entry((runs_in, name.clone())).or_insert_with(|| {
                    self.frames.push(Frame { parent: runs_in, name, ..Frame::default() });
                    self.frames.len() as u32 - 1
                });
                let frame = &mut self.frames[number as usize];
                frame.num_enters += 1;
                frame.parallel_iterations = node.attr::<i64>("parallel_iterations")?.max(1);
                number
            }
            ControlFlow::Exit if runs_in == 0 => {
                return Err(invalid!("node '{}' leaves a loop that was never entered", node.name));
            }
            ControlFlow::Exit => self.frames[runs_in as usize].parent,
            ControlFlow::NextIteration if runs_in == 0 => {
                return Err(invalid!("node '{}' is not in a loop", node.name));
            }
            _ => runs_in,
        })
    }
}
