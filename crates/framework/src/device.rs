//! Devices and their names.
//!
//! A [`DeviceName`] is complete (`/job:ps/replica:0/task:0/device:CPU:0`); a [`DeviceSpec`] is what a user writes and
//! may leave any part open.

use crate::resource::Resources;
use linalg::parallel::Pool;
use std::fmt;
use std::str::FromStr;
use tensor::{Error, Result, invalid};

/// Something that runs kernels and holds resources.
pub trait Device: Send + Sync {
    /// The complete name.
    fn name(&self) -> &DeviceName;
    /// A random number drawn when the device came up: it tells a restarted device from its former self.
    fn incarnation(&self) -> u64;
    /// The bytes of memory this device may use.
    fn memory_limit(&self) -> u64;
    /// Variables, queues and the like; they outlive a step.
    fn resources(&self) -> &Resources;
    /// Where kernels run, and what they use to run in parallel.
    fn pool(&self) -> &Pool;
}

/// The CPU of a task, or a share of it.
pub struct CpuDevice {
    name: DeviceName,
    incarnation: u64,
    resources: Resources,
    pool: Pool,
}

impl CpuDevice {
    /// A CPU whose kernels run on this pool. Nodes that name no container use one called like the job.
    pub fn new(name: DeviceName, incarnation: u64, pool: Pool) -> CpuDevice {
        let resources = Resources::new(name.job.clone());
        CpuDevice { name, incarnation, resources, pool }
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }
    fn incarnation(&self) -> u64 {
        self.incarnation
    }
    fn memory_limit(&self) -> u64 {
        256 << 20
    }
    fn resources(&self) -> &Resources {
        &self.resources
    }
    fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// A complete device name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName {
    /// The job, such as `ps`.
    pub job: String,
    /// Always 0 in a cluster.
    pub replica: u32,
    /// The task within the job.
    pub task: u32,
    /// `CPU`, `GPU`, …
    pub kind: String,
    /// The number among the task's devices of this kind.
    pub index: u32,
}

impl DeviceName {
    /// A CPU of a task.
    pub fn cpu(job: &str, task: u32, index: u32) -> DeviceName {
        DeviceName { job: job.into(), replica: 0, task, kind: "CPU".into(), index }
    }

    /// The name of the task this device belongs to.
    pub fn task_name(&self) -> String {
        format!("/job:{}/replica:{}/task:{}", self.job, self.replica, self.task)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/job:{}/replica:{}/task:{}/device:{}:{}", self.job, self.replica, self.task, self.kind, self.index)
    }
}

impl FromStr for DeviceName {
    type Err = Error;
    fn from_str(text: &str) -> Result<DeviceName> {
        let incomplete = || invalid!("'{text}' is not a complete device name");
        let spec: DeviceSpec = text.parse()?;
        Ok(DeviceName {
            job: spec.job.ok_or_else(incomplete)?,
            replica: spec.replica.ok_or_else(incomplete)?,
            task: spec.task.ok_or_else(incomplete)?,
            kind: spec.kind.ok_or_else(incomplete)?,
            index: spec.index.ok_or_else(incomplete)?,
        })
    }
}

/// A device name of which any part may be left open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct DeviceSpec {
    pub job: Option<String>,
    pub replica: Option<u32>,
    pub task: Option<u32>,
    pub kind: Option<String>,
    pub index: Option<u32>,
}

impl DeviceSpec {
    /// Whether a device fits.
    pub fn matches(&self, name: &DeviceName) -> bool {
        self.job.as_ref().is_none_or(|j| *j == name.job)
            && self.replica.is_none_or(|r| r == name.replica)
            && self.task.is_none_or(|t| t == name.task)
            && self.kind.as_ref().is_none_or(|k| *k == name.kind)
            && self.index.is_none_or(|i| i == name.index)
    }

    /// Whether some device could fit both.
    pub fn is_compatible(&self, other: &DeviceSpec) -> bool {
        self.merge(other, false).is_ok()
    }

    /// The spec that says what both say. Where they contradict each other there is none; with `soft`, a contradiction
    /// about type or number leaves these open instead.
    pub fn merge(&self, other: &DeviceSpec, soft: bool) -> Result<DeviceSpec> {
        let conflict = |what: &str| invalid!("Cannot merge devices with incompatible {what}: '{self}' and '{other}'");
        let mut merged = self.or(other);
        if differ(&self.job, &other.job) {
            return Err(conflict("jobs"));
        }
        if differ(&self.replica, &other.replica) {
            return Err(conflict("replicas"));
        }
        if differ(&self.task, &other.task) {
            return Err(conflict("tasks"));
        }
        if differ(&self.kind, &other.kind) {
            if !soft {
                return Err(conflict("types"));
            }
            (merged.kind, merged.index) = (None, None);
        } else if differ(&self.index, &other.index) {
            if !soft {
                return Err(conflict("ids"));
            }
            merged.index = None;
        }
        Ok(merged)
    }

    /// This spec with the parts it leaves open taken from `outer`.
    pub fn or(&self, outer: &DeviceSpec) -> DeviceSpec {
        DeviceSpec {
            job: self.job.clone().or_else(|| outer.job.clone()),
            replica: self.replica.or(outer.replica),
            task: self.task.or(outer.task),
            kind: self.kind.clone().or_else(|| outer.kind.clone()),
            index: self.index.or(outer.index),
        }
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == DeviceSpec::default()
    }
}

fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a != b)
}

impl From<&DeviceName> for DeviceSpec {
    fn from(name: &DeviceName) -> DeviceSpec {
        DeviceSpec {
            job: Some(name.job.clone()),
            replica: Some(name.replica),
            task: Some(name.task),
            kind: Some(name.kind.clone()),
            index: Some(name.index),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceSpec> {
        let malformed =
            || invalid!("Malformed device specification '{text}'; wanted something like /job:ps/task:0/cpu:0");
        let mut spec = DeviceSpec::default();
        if text.is_empty() || text == "/" {
            return Ok(spec);
        }
        for part in text.strip_prefix('/').ok_or_else(malformed)?.split('/') {
            let (key, value) = part.split_once(':').ok_or_else(malformed)?;
            let number = |v: &str| match v {
                "*" => Ok(None),
                _ if v.bytes().all(|b| b.is_ascii_digit()) => v.parse().map(Some).map_err(|_| malformed()),
                _ => Err(malformed()),
            };
            match key {
                "job" if value == "*" => spec.job = None,
                "job" if is_identifier(value) => spec.job = Some(value.into()),
                "replica" => spec.replica = number(value)?,
                "task" => spec.task = number(value)?,
                "device" => {
                    let (kind, index) = value.split_once(':').unwrap_or((value, "*"));
                    if kind != "*" && !is_identifier(kind) {
                        return Err(malformed());
                    }
                    spec.kind = (kind != "*").then(|| kind.to_string());
                    spec.index = number(index)?;
                }
                "cpu" | "CPU" | "gpu" | "GPU" => {
                    spec.kind = Some(key.to_ascii_uppercase());
                    spec.index = number(value)?;
                }
                _ => return Err(malformed()),
            }
        }
        Ok(spec)
    }
}

/// A job's name or a device's type: a letter, then letters, digits and underscores.
fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        match (&self.kind, self.index) {
            (None, None) => Ok(()),
            (kind, index) => {
                let kind = kind.as_deref().unwrap_or("*");
                write!(f, "/device:{kind}:{}", index.map_or("*".into(), |i| i.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_every_spelling() {
        let cases = [
            ("", Ok("")),
            ("/", Ok("")),
            ("/job:ps", Ok("/job:ps")),
            ("/task:1/job:ps", Ok("/job:ps/task:1")),
            ("/cpu:0", Ok("/device:CPU:0")),
            ("/GPU:1", Ok("/device:GPU:1")),
            ("/job:worker/replica:0/task:7/device:CPU:0", Ok("/job:worker/replica:0/task:7/device:CPU:0")),
            ("/job:*/task:*/device:CPU:*", Ok("/device:CPU:*")),
            ("/device:*", Ok("")),
            ("/device:CPU", Ok("/device:CPU:*")),
            ("/device:cpu:0", Ok("/device:cpu:0")),
            ("/job:a/job:b/task:1/task:2", Ok("/job:b/task:2")),
            ("/job:a_1/CPU:*", Ok("/job:a_1/device:CPU:*")),
            ("/task:1/task:*", Ok("")),
            ("foo/bar", Err(())),
            ("/job:ps/", Err(())),
            ("//job:ps", Err(())),
            ("/Cpu:0", Err(())),
            ("/cpu", Err(())),
            ("/device:", Err(())),
            ("/device:CPU:x", Err(())),
            ("/job:1ps", Err(())),
            ("/job:p-s", Err(())),
            ("/task:+1", Err(())),
            ("/task:99999999999", Err(())),
            ("/job:", Err(())),
            ("/task:x", Err(())),
            ("/Job:ps", Err(())),
        ];
        for (text, want) in cases {
            let got = text.parse::<DeviceSpec>().map(|s| s.to_string()).map_err(|_| ());
            assert_eq!(got, want.map(String::from), "{text}");
        }
    }

    #[test]
    fn a_spec_matches_what_it_does_not_exclude() {
        let name = DeviceName::cpu("ps", 1, 0);
        for (spec, want) in
            [("/job:ps", true), ("/job:worker", false), ("", true), ("/gpu:0", false), ("/task:1", true)]
        {
            assert_eq!(spec.parse::<DeviceSpec>().unwrap().matches(&name), want, "{spec}");
        }
        assert_eq!(name.to_string().parse::<DeviceName>().unwrap(), name);
    }

    #[test]
    fn specs_are_merged_unless_they_contradict_each_other() {
        let conflict = |what: &str, a: &str, b: &str| {
            Err(format!("Cannot merge devices with incompatible {what}: '{a}' and '{b}'"))
        };
        let cases = [
            ("/job:ps", "/task:1", false, Ok("/job:ps/task:1")),
            ("/job:ps/task:1", "", false, Ok("/job:ps/task:1")),
            ("", "/replica:0/cpu:1", false, Ok("/replica:0/device:CPU:1")),
            ("/job:ps", "/job:worker", true, conflict("jobs", "/job:ps", "/job:worker")),
            ("/replica:0", "/replica:1", true, conflict("replicas", "/replica:0", "/replica:1")),
            ("/task:0", "/job:ps/task:1", true, conflict("tasks", "/task:0", "/job:ps/task:1")),
            ("/cpu:0", "/gpu:0", false, conflict("types", "/device:CPU:0", "/device:GPU:0")),
            ("/cpu:0", "/job:ps/gpu:0", true, Ok("/job:ps")),
            ("/cpu:0", "/cpu:1", false, conflict("ids", "/device:CPU:0", "/device:CPU:1")),
            ("/cpu:0", "/cpu:1", true, Ok("/device:CPU:*")),
        ];
        for (a, b, soft, want) in cases {
            let merged = a.parse::<DeviceSpec>().unwrap().merge(&b.parse().unwrap(), soft);
            let got = merged.map(|s| s.to_string()).map_err(|e| e.message);
            assert_eq!(got, want.map(String::from), "{a} and {b}");
        }
    }
}
