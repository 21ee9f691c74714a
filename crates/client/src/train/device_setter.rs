//! `replica_device_setter`: variables on the parameter servers, everything else on the worker.
//!
//! Nodes are placed as TensorFlow places them, so that workers written in Rust and in Python find each other's
//! variables.

use crate::{ClusterSpec, Device};
use framework::scope::DeviceQuery;
use framework::{Attr, DeviceSpec};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tensor::{Error, Result, invalid};

/// The ops that hold state which workers share: what goes to the parameter servers unless told otherwise.
const PS_OPS: [&str; 14] = [
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "VarHandleOp",
    "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp",
    "ResourceConditionalAccumulator",
    "DecisionTreeResource",
];

/// Puts variables on the parameter servers of a cluster in turn, and everything else on the worker.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let cluster = ClusterSpec::new().job("ps", ["a:1", "b:1"]).job("worker", ["c:1"]);
/// let g = Graph::new();
/// let (w, b) = g.device(replica_device_setter(&cluster).worker_device("/job:worker/task:0"), || {
///     (g.variable("w", [1.0f32, 2.0]), g.variable("b", 0.0f32))
/// });
/// assert_eq!((w.place().device(), b.place().device()), ("/job:ps/task:0".into(), "/job:ps/task:1".into()));
/// # g.check()?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub fn replica_device_setter(cluster: &ClusterSpec) -> ReplicaDeviceSetter {
    ReplicaDeviceSetter::new(Servers::Of(cluster.clone()))
}

/// Where a training program's nodes go: made by [`replica_device_setter`], given to [`Graph::device`](crate::Graph::device).
pub struct ReplicaDeviceSetter {
    servers: Servers,
    worker_device: String,
    ps_device: String,
    merge_devices: bool,
    ps_ops: HashSet<String>,
    strategy: Box<dyn PsStrategy>,
}

/// The parameter servers there are.
enum Servers {
    /// Those of the job that `ps_device` names.
    Of(ClusterSpec),
    /// This many.
    Number(u32),
}

impl ReplicaDeviceSetter {
    fn new(servers: Servers) -> ReplicaDeviceSetter {
        ReplicaDeviceSetter {
            servers,
            worker_device: "/job:worker".into(),
            ps_device: "/job:ps".into(),
            merge_devices: true,
            ps_ops: PS_OPS.into_iter().map(String::from).collect(),
            strategy: Box::new(RoundRobin::default()),
        }
    }

    /// For a number of parameter servers, of a cluster that need not be known; with none, nothing is placed.
    pub fn ps_tasks(count: u32) -> ReplicaDeviceSetter {
        ReplicaDeviceSetter::new(Servers::Number(count))
    }

    /// Where everything else goes: `/job:worker` unless said.
    pub fn worker_device(mut self, device: impl Into<String>) -> Self {
        self.worker_device = device.into();
        self
    }

    /// The job of the parameter servers, and maybe their device: `/job:ps` unless said.
    pub fn ps_device(mut self, device: impl Into<String>) -> Self {
        self.ps_device = device.into();
        self
    }

    /// Whether a node for which an inner scope chose a part of a device gets the rest from here; it does unless said
    /// otherwise.
    pub fn merge_devices(mut self, yes: bool) -> Self {
        self.merge_devices = yes;
        self
    }

    /// The ops that go to the parameter servers, in place of variables, tables and accumulators.
    pub fn ps_ops<O: Into<String>>(mut self, ops: impl IntoIterator<Item = O>) -> Self {
        self.ps_ops = ops.into_iter().map(O::into).collect();
        self
    }

    /// Which parameter server takes which node: [`RoundRobin`] unless said.
    pub fn ps_strategy(mut self, strategy: impl PsStrategy + 'static) -> Self {
        self.strategy = Box::new(strategy);
        self
    }

    fn ready(self) -> Result<Placement> {
        let ps_device: DeviceSpec = self.ps_device.parse()?;
        let tasks = match &self.servers {
            Servers::Number(count) => (0..*count).collect(),
            Servers::Of(cluster) => {
                cluster.check()?;
                let job = ps_device.job.as_deref().unwrap_or_default();
                cluster.tasks_of(job).map_or(Vec::new(), |tasks| tasks.keys().copied().collect())
            }
        };
        Ok(Placement {
            tasks,
            worker_device: self.worker_device.parse()?,
            ps_device,
            merge_devices: self.merge_devices,
            ps_ops: self.ps_ops,
            strategy: self.strategy,
        })
    }
}

impl From<ReplicaDeviceSetter> for Device {
    fn from(setter: ReplicaDeviceSetter) -> Device {
        let placement = setter.ready();
        Device::Function(Arc::new(move |node| match &placement {
            Ok(placement) => placement.choose(node),
            Err(error) => Err(Error::clone(error)),
        }))
    }
}

/// A setter whose texts were read.
struct Placement {
    tasks: Vec<u32>,
    worker_device: DeviceSpec,
    ps_device: DeviceSpec,
    merge_devices: bool,
    ps_ops: HashSet<String>,
    strategy: Box<dyn PsStrategy>,
}

impl Placement {
    fn choose(&self, node: &DeviceQuery<'_>) -> Result<DeviceSpec> {
        let requested = node.requested;
        if self.tasks.is_empty() || (!self.merge_devices && *requested != DeviceSpec::default()) {
            return Ok(requested.clone());
        }
        if !self.ps_ops.contains(node.op) {
            return Ok(requested.or(&self.worker_device));
        }
        let is_elsewhere = requested.job.is_some() && requested.job != self.ps_device.job;
        if self.ps_device.job.is_none() || is_elsewhere {
            return Ok(requested.or(&self.ps_device));
        }
        let place = self.strategy.choose(node, self.tasks.len())?;
        let task = *self.tasks.get(place).ok_or_else(|| {
            invalid!("{} was to go to parameter server {place}; there are {}", node.name, self.tasks.len())
        })?;
        Ok(requested.or(&DeviceSpec { task: Some(task), ..self.ps_device.clone() }))
    }
}

/// Which parameter server takes a node.
pub trait PsStrategy: Send + Sync {
    /// The place of the chosen server among `count` of them.
    ///
    /// Asked once for each node in the order they are built, those included that then go beside another node all the
    /// same, such as an optimizer's slots.
    fn choose(&self, node: &DeviceQuery<'_>, count: usize) -> Result<usize>;
}

impl<F: Fn(&DeviceQuery<'_>, usize) -> usize + Send + Sync> PsStrategy for F {
    fn choose(&self, node: &DeviceQuery<'_>, count: usize) -> Result<usize> {
        Ok(self(node, count))
    }
}

/// One after the other, whatever a node holds: TensorFlow's own choice.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: Mutex<usize>,
}

impl PsStrategy for RoundRobin {
    fn choose(&self, _: &DeviceQuery<'_>, count: usize) -> Result<usize> {
        let mut next = self.next.lock();
        let chosen = *next % count;
        *next = (chosen + 1) % count;
        Ok(chosen)
    }
}

/// Always the server that holds the fewest bytes so far; of several the first.
///
/// A single variable larger than its fair share stays whole, and makes its server the largest. Variables in parts have no
/// such trouble: with [`min_max_variable_partitioner`](crate::min_max_variable_partitioner) and as many parts as there are
/// servers, all hold nearly the same.
#[derive(Debug, Default)]
pub struct GreedyLoadBalancing {
    loads: Mutex<Vec<u64>>,
}

impl PsStrategy for GreedyLoadBalancing {
    fn choose(&self, node: &DeviceQuery<'_>, count: usize) -> Result<usize> {
        let bytes = byte_size(node);
        let mut loads = self.loads.lock();
        loads.resize(count, 0);
        let chosen = (0..count).min_by_key(|&i| loads[i]).unwrap_or(0);
        loads[chosen] = loads[chosen].saturating_add(bytes);
        Ok(chosen)
    }
}

/// The bytes that a variable takes; what has no shape counts as one element.
fn byte_size(node: &DeviceQuery<'_>) -> u64 {
    let Some(Attr::Type(dtype)) = node.attrs.get("dtype") else { return 1 };
    let elements = match node.attrs.get("shape") {
        Some(Attr::Shape(shape)) => shape.num_elements().unwrap_or(1),
        _ => 1,
    };
    (elements as u64).saturating_mul(dtype.size().max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn cluster() -> ClusterSpec {
        ClusterSpec::new().job("ps", ["a:1", "b:1", "c:1"]).job("worker", ["d:1", "e:1"])
    }

    fn device_of(g: &Graph, name: &str) -> String {
        g.scope().with_graph(|g| g.node(g.find(name).unwrap_or_else(|| panic!("no {name}"))).device.clone())
    }

    /// The devices are what TensorFlow 2.21 gives the same program, for both kinds of variables.
    #[test]
    fn nodes_go_where_tensorflow_puts_them() {
        for resource in [false, true] {
            let g = Graph::new();
            g.use_resource_variables(resource);
            let setter =
                replica_device_setter(&cluster()).worker_device("/job:worker/task:1/gpu:0").ps_device("/job:ps/cpu:0");
            g.device(setter, || {
                let step = g.global_step();
                let w = g.variable("w", initializers::zeros([4, 3]));
                let b = g.variable("b", initializers::zeros([3]));
                let local = g.device("/job:worker/task:0", || g.variable("local", 1.0f32));
                let part = g.device("/cpu:1", || g.variable("part", 1.0f32));
                let fixed = g.device("/job:ps/task:2", || g.variable("fixed", 1.0f32));
                let c = g.variable("c", 2.0f32);
                let x = g.placeholder::<f32>([None, Some(4)]);
                let loss = (x.matmul(&w) + &b + &c + &part + &fixed + &local).mean();
                Adam::new(0.1).minimize(&loss).increment(&step);
                g.variable("acc", 1.0f32); // stands for an accumulator, which takes a turn as well
                g.variable("d", 3.0f32);
            });
            g.check().unwrap();
            let wanted = [
                ("global_step", "/job:ps/task:0/device:CPU:0"),
                ("w", "/job:ps/task:1/device:CPU:0"),
                ("b", "/job:ps/task:2/device:CPU:0"),
                ("local", "/job:worker/task:0/device:CPU:0"),
                ("part", "/job:ps/task:0/device:CPU:1"),
                ("fixed", "/job:ps/task:2/device:CPU:0"),
                ("c", "/job:ps/task:2/device:CPU:0"),
                ("Placeholder", "/job:worker/task:1/device:GPU:0"),
                ("Mean", "/job:worker/task:1/device:GPU:0"),
                ("beta1_power", "/job:ps/task:2/device:CPU:0"),
                ("w/Adam_1", "/job:ps/task:1/device:CPU:0"),
                ("Adam/learning_rate", "/job:worker/task:1/device:GPU:0"),
                ("acc", "/job:ps/task:2/device:CPU:0"),
                ("d", "/job:ps/task:0/device:CPU:0"),
            ];
            for (name, device) in wanted {
                assert_eq!(device_of(&g, name), device, "{name}, resource: {resource}");
            }
        }
    }

    /// What each of three nodes gets: a variable, a variable pinned to a task, and a constant.
    fn placed(setter: ReplicaDeviceSetter) -> [String; 3] {
        let g = Graph::new();
        g.device(setter, || {
            g.variable("v", [1.0f32]);
            g.device("/task:1", || g.variable("pinned", 1.0f32));
            g.constant(1.0f32);
        });
        g.check().unwrap();
        ["v", "pinned", "Const"].map(|name| device_of(&g, name))
    }

    #[test]
    fn every_option_is_heeded() {
        let gaps = ClusterSpec::new().sparse_job("ps", [(4, "a:1".into()), (7, "b:1".into())].into());
        let cases = [
            (replica_device_setter(&cluster()), ["/job:ps/task:0", "/job:ps/task:1", "/job:worker"]),
            (replica_device_setter(&cluster()).merge_devices(false), ["/job:ps/task:0", "/task:1", "/job:worker"]),
            (replica_device_setter(&gaps), ["/job:ps/task:4", "/job:ps/task:1", "/job:worker"]),
            (ReplicaDeviceSetter::ps_tasks(2), ["/job:ps/task:0", "/job:ps/task:1", "/job:worker"]),
            (ReplicaDeviceSetter::ps_tasks(0), ["", "/task:1", ""]),
            (replica_device_setter(&cluster()).ps_device("/job:none"), ["", "/task:1", ""]),
            (
                replica_device_setter(&cluster()).ps_ops(["Const"]).worker_device("/job:worker/task:0"),
                ["/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:2"],
            ),
        ];
        for (i, (setter, wanted)) in cases.into_iter().enumerate() {
            assert_eq!(placed(setter), wanted, "case {i}");
        }
    }

    #[test]
    fn a_strategy_may_be_a_function_and_is_checked() {
        let by_length = |node: &DeviceQuery<'_>, _: usize| node.name.len();
        let g = Graph::new();
        g.device(replica_device_setter(&cluster()).ps_strategy(by_length), || {
            g.variable("ab", 1.0f32);
            assert_eq!(device_of(&g, "ab"), "/job:ps/task:2");
            g.variable("long_name", 1.0f32);
        });
        let message = g.check().unwrap_err().message;
        assert!(message.contains("long_name was to go to parameter server 9; there are 3"), "{message}");
    }

    #[test]
    fn a_device_that_is_none_is_a_mistake_of_the_graph() {
        let g = Graph::new();
        g.device(replica_device_setter(&cluster()).worker_device("worker 0"), || g.constant(1.0f32));
        assert!(g.check().unwrap_err().message.contains("worker 0"));
    }

    #[test]
    fn greedy_takes_the_server_with_the_fewest_bytes() {
        let g = Graph::new();
        let setter = ReplicaDeviceSetter::ps_tasks(2).ps_strategy(GreedyLoadBalancing::default());
        let tasks: Vec<String> = g.device(setter, || {
            [[10, 10], [5, 5], [5, 10], [5, 5], [1, 1]]
                .iter()
                .enumerate()
                .map(|(i, shape)| device_of(&g, &g.variable(&format!("v{i}"), initializers::zeros(*shape)).name()))
                .collect()
        });
        assert_eq!(tasks, [0, 1, 1, 1, 0].map(|task| format!("/job:ps/task:{task}")));
    }

    /// Four variables of a real model, in whose turns one of four servers got 93.7 MB, another 0.7.
    #[test]
    fn variables_in_parts_are_balanced() {
        for count in [2, 3, 4, 8] {
            let g = Graph::new();
            let setter = ReplicaDeviceSetter::ps_tasks(count).ps_strategy(GreedyLoadBalancing::default());
            g.device(setter, || {
                for (i, rows) in [93_700, 15_500, 4_100, 700].into_iter().enumerate() {
                    let partitioner = crate::min_max_variable_partitioner(count as usize);
                    g.partitioned_variable(&format!("v{i}"), initializers::zeros([rows, 250]), &partitioner);
                }
            });
            g.check().unwrap();
            let mut bytes = std::collections::BTreeMap::new();
            for part in g.trainable_variables() {
                let size = part.shape().num_elements().unwrap() * 4;
                *bytes.entry(part.place().device()).or_insert(0) += size;
            }
            let mean = bytes.values().sum::<usize>() as f64 / f64::from(count);
            let most = *bytes.values().max().unwrap() as f64;
            assert!(most / mean <= 1.1, "{count} servers: {bytes:?}");
        }
    }
}
