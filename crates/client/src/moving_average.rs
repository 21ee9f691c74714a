//! Exponential moving averages of variables and other values.

use crate::graph::group;
use crate::operators::Operand;
use crate::optimizers::make_slot_from;
use crate::variable::{Initial, VariableOptions, update};
use crate::{Graph, Operation, Output, Variable, cond, initializers};
use framework::{NodeId, Scope};
use parking_lot::Mutex;
use std::collections::HashMap;
use tensor::{DType, Result, invalid};

/// Keeps averages that forget: `average = decay * average + (1 - decay) * value`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", 1.0f32);
/// let average = ExponentialMovingAverage::new(0.5);
/// let update = average.apply(&[&w]);
/// let put = w.assign(3.0);
/// let init = g.initialize_all();
///
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// session.run(&put)?;
/// session.run(&update)?;
/// let shadow = average.average(&w).expect("it was applied");
/// assert_eq!(shadow.name(), "w/ExponentialMovingAverage");
/// assert_eq!(session.run(&shadow)?.item::<f32>()?, 2.0);
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct ExponentialMovingAverage {
    decay: f64,
    num_updates: Option<Output>,
    zero_debias: bool,
    averages: Mutex<HashMap<String, Average>>,
}

#[derive(Clone)]
struct Average {
    shadow: Variable,
    /// For averages of plain values, which start at zero: the average before that is corrected, and the count.
    debias: Option<[Variable; 2]>,
}

const NAME: &str = "ExponentialMovingAverage";

impl ExponentialMovingAverage {
    /// Averages that keep this part of themselves in each update.
    pub fn new(decay: f64) -> ExponentialMovingAverage {
        ExponentialMovingAverage { decay, num_updates: None, zero_debias: false, averages: Mutex::default() }
    }

    /// Forgets faster in the beginning: the decay is at most `(1 + updates) / (10 + updates)`.
    pub fn num_updates(mut self, updates: &Output) -> Self {
        self.num_updates = Some(updates.clone());
        self
    }

    /// Corrects averages of plain values for having started at zero.
    pub fn zero_debias(mut self) -> Self {
        self.zero_debias = true;
        self
    }

    /// Updates the averages of these variables; they start as the variables' initial values.
    #[track_caller]
    pub fn apply(&self, variables: &[&Variable]) -> Operation {
        let Some(first) = variables.first() else { return nothing() };
        let graph = first.graph().clone();
        graph.here(|| self.apply_to(&graph, variables))
    }

    fn apply_to(&self, graph: &Graph, variables: &[&Variable]) -> Operation {
        for variable in variables {
            if !self.averages.lock().contains_key(&variable.name()) {
                let shadow = graph.kept(self.shadow_of(graph, variable));
                let Some(shadow) = shadow else { return Operation::void(graph) };
                self.averages.lock().insert(variable.name(), Average { shadow, debias: None });
            }
        }
        // Read anew: under control dependencies, the average is of what they left behind.
        let values: Vec<(String, Output)> = variables.iter().map(|v| (v.name(), v.read())).collect();
        self.update_all(graph, &values)
    }

    /// Updates the averages of these values, such as a loss; they start at zero.
    #[track_caller]
    pub fn apply_values(&self, values: &[&Output]) -> Operation {
        let Some(first) = values.first() else { return nothing() };
        let graph = first.graph().clone();
        graph.here(|| self.apply_to_values(&graph, values))
    }

    fn apply_to_values(&self, graph: &Graph, values: &[&Output]) -> Operation {
        for value in values {
            if !self.averages.lock().contains_key(&value.name()) {
                let average = graph.kept(self.average_from_zero(graph, value));
                let Some(average) = average else { return Operation::void(graph) };
                self.averages.lock().insert(value.name(), average);
            }
        }
        let values: Vec<(String, Output)> = values.iter().map(|v| (v.name(), Output::clone(v))).collect();
        self.update_all(graph, &values)
    }

    /// The average of a variable.
    pub fn average(&self, of: &Variable) -> Option<Variable> {
        self.averages.lock().get(&of.name()).map(|average| average.shadow.clone())
    }

    /// The average of a value.
    pub fn average_of_value(&self, of: &Output) -> Option<Variable> {
        self.averages.lock().get(&of.name()).map(|average| average.shadow.clone())
    }

    /// Starts as the variable is, if it is initialised already, or as it will be.
    #[track_caller]
    fn shadow_of(&self, graph: &Graph, variable: &Variable) -> Result<Variable> {
        check_type(variable)?;
        let device =
            graph.scope().with_graph(|g| Ok::<_, tensor::Error>(g.node(variable.place_id()?.node).device.clone()));
        let initial = graph.scope().without_control(|| {
            graph.device(device.unwrap_or_default(), || {
                cond(&variable.is_initialized(), || variable.read(), || variable.initial_value().clone())
            })
        });
        initial.set_shape(variable.shape());
        make_slot_from(graph, variable, NAME, &Initial::Built(initial))
    }

    fn average_from_zero(&self, graph: &Graph, value: &Output) -> Result<Average> {
        check_type(value)?;
        let s = graph.scope();
        let shape = value.shape();
        let shape = shape.known().ok_or_else(|| invalid!("{} has no fixed shape to average", value.name()))?;
        let make = |name: String, shape: tensor::Shape| {
            let zeros = initializers::zeros(shape).dtype(value.dtype()).into();
            let full = s.with_absolute_name("", || s.unique_name(&name));
            graph.make_variable(full, &zeros, VariableOptions { trainable: false, ..Default::default() })
        };
        let shadow = make(format!("{}/{NAME}", value.name()), shape.clone())?;
        let debias = if self.zero_debias {
            let beside = |name: &str, shape| {
                s.colocated_with(shadow.place_id()?.node, || make(format!("{}/{name}", shadow.name()), shape))
            };
            Some([beside("biased", shape)?, beside("local_step", tensor::Shape::scalar())?])
        } else {
            None
        };
        Ok(Average { shadow, debias })
    }

    #[track_caller]
    fn update_all(&self, graph: &Graph, values: &[(String, Output)]) -> Operation {
        let s = graph.scope();
        let place = s.unique_name(NAME);
        let parts = s.with_absolute_name(&place, || {
            let decay = graph.output([], |s, []| {
                s.node("Const")
                    .name("decay")
                    .attr("dtype", DType::F32)
                    .attr("value", tensor::Tensor::from(self.decay as f32))
                    .output()
            });
            let decay = match &self.num_updates {
                Some(updates) => {
                    let updates = updates.cast::<f32>();
                    decay.minimum((1.0 + &updates) / (10.0 + &updates))
                }
                None => decay,
            };
            let update = |(name, value): &(String, Output)| {
                let average = self.averages.lock().get(name).cloned()?;
                update_one(graph, &average, value, &decay)
            };
            values.iter().map(update).collect::<Option<Vec<NodeId>>>()
        });
        match parts {
            Some(parts) => graph.operation([], |s, []| group(s, &format!("{place}/"), &parts)),
            None => Operation::void(graph),
        }
    }
}

/// Moves one average toward a value.
#[track_caller]
fn update_one(graph: &Graph, average: &Average, value: &Output, decay: &Output) -> Option<NodeId> {
    let s = graph.scope();
    let place = s.unique_name("AssignMovingAvg");
    let shadow = &average.shadow;
    let node = s.colocated_with(shadow.place().id()?.node, || {
        s.with_absolute_name(&place, || {
            let forget = (1.0 - decay).cast_to(shadow.dtype());
            let Some([biased, count]) = &average.debias else {
                let delta = (shadow.read() - value) * forget;
                return move_by(graph, "AssignSub", shadow, &delta).id();
            };
            let delta = (biased.read() - value) * &forget;
            let moved = move_by(graph, "AssignSub", biased, &delta);
            let one = 1.output_like(count, "value");
            let counted = move_by(graph, "AssignAdd", count, &one);
            let (biased, count) = graph.control_dependencies(&[&moved, &counted], || (biased.read(), count.read()));
            let factor = 1.0 - (1.0 - &forget).pow(&count);
            move_by(graph, "Assign", shadow, &(biased / factor)).id()
        })
    })?;
    Some(node)
}

#[track_caller]
fn move_by(graph: &Graph, op: &str, variable: &Variable, value: &Output) -> Operation {
    let resource = if variable.is_resource() { "VariableOp" } else { "" };
    graph.operation([variable.place(), value], |s: &Scope, inputs| update(s, &format!("{op}{resource}"), op, inputs))
}

fn check_type(value: &Output) -> Result<()> {
    if !value.dtype().is_floating() {
        return Err(invalid!("averages are of floating values, {} is {}", value.name(), value.dtype()));
    }
    Ok(())
}

#[track_caller]
fn nothing() -> Operation {
    let graph = Graph::new();
    graph.keep(invalid!("there is nothing to average"));
    Operation::void(&graph)
}
