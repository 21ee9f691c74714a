//! What SLURM tells the processes of a step about themselves.

use crate::{ClusterSpec, TaskName};
use tensor::{Error, Result, failed_precondition, invalid};

/// More nodes than any cluster has: a list that names more is a mistake, and is not written out.
const NODES_MAX: usize = 1 << 16;

/// A step of a SLURM job: its tasks in order, and which of them this process is.
pub(crate) struct Step {
    /// The node of each task, and the task's number on it.
    tasks: Vec<(String, u16)>,
    rank: usize,
}

/// The node of each task of the SLURM allocation that these variables describe, for a program that starts the tasks
/// itself.
pub fn slurm_allocation(variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let read = |name: &'static str| {
        let none = || failed_precondition!("{name} is not set: this is no SLURM allocation; try salloc or sbatch");
        variable(name).map(|value| (name, value)).ok_or_else(none)
    };
    let tasks = tasks_of(read("SLURM_JOB_NODELIST")?, read("SLURM_TASKS_PER_NODE")?)?;
    Ok(tasks.into_iter().map(|(node, _)| node).collect())
}

/// The node of each task, and the task's number on it, from the two lists and the names of their variables.
fn tasks_of(nodes: (&'static str, String), counts: (&'static str, String)) -> Result<Vec<(String, u16)>> {
    let nodes = expand_nodes(&nodes.1).map_err(|e| e.context(nodes.0))?;
    let counts = expand_counts(&counts.1).map_err(|e| e.context(counts.0))?;
    if nodes.len() != counts.len() {
        return Err(invalid!("SLURM names {} nodes, but tasks on {} of them", nodes.len(), counts.len()));
    }
    let on = |(node, count): (String, u16)| (0..count).map(move |number| (node.clone(), number));
    Ok(nodes.into_iter().zip(counts).flat_map(on).collect())
}

impl Step {
    /// The step that this process belongs to; none if SLURM did not start it.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Step>> {
        let Some(rank) = variable("SLURM_PROCID") else { return Ok(None) };
        let either = |step: &'static str, job: &'static str| {
            let found = variable(step).map(|value| (step, value)).or_else(|| variable(job).map(|value| (job, value)));
            found.ok_or_else(|| invalid!("SLURM_PROCID is set, but neither {step} nor {job}; is this a SLURM step?"))
        };
        let nodes = either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")?;
        let tasks = tasks_of(nodes, either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")?)?;
        let rank = rank.trim().parse().ok().filter(|rank| *rank < tasks.len());
        let rank = rank.ok_or_else(|| invalid!("SLURM_PROCID is not the number of one of {} tasks", tasks.len()))?;
        Ok(Some(Step { tasks, rank }))
    }

    /// The first tasks as parameter servers, the others as workers. Ports are counted up from `port` on each node.
    pub(crate) fn cluster(&self, num_ps: u32, port: u16) -> Result<(ClusterSpec, TaskName)> {
        let (count, num_ps) = (self.tasks.len(), num_ps as usize);
        if count <= num_ps {
            let tasks = if count == 1 { "task" } else { "tasks" };
            return Err(invalid!(
                "SLURM runs {count} {tasks}; wanted {num_ps} parameter servers and at least one worker"
            ));
        }
        let address = |(node, number): &(String, u16)| match port.checked_add(*number) {
            Some(port) => Ok(format!("{node}:{port}")),
            None => Err(invalid!("there is no port {port} + {number} for a task on {node}")),
        };
        let addresses: Vec<String> = self.tasks.iter().map(address).collect::<Result<_>>()?;
        let (ps, workers) = addresses.split_at(num_ps);
        let cluster = [("ps", ps), ("worker", workers)]
            .into_iter()
            .filter(|(_, tasks)| !tasks.is_empty())
            .fold(ClusterSpec::new(), |cluster, (job, tasks)| cluster.job(job, tasks.iter().cloned()));
        cluster.check()?;
        let task = match self.rank.checked_sub(num_ps) {
            Some(worker) => TaskName::new("worker", worker as u32),
            None => TaskName::new("ps", self.rank as u32),
        };
        Ok((cluster, task))
    }
}

/// The nodes that a list such as `a[1-3,07],b` names.
fn expand_nodes(list: &str) -> Result<Vec<String>> {
    let mut nodes = Vec::new();
    for pattern in split_outside_brackets(list)? {
        nodes.extend(expand_pattern(pattern)?);
        if nodes.len() > NODES_MAX {
            return Err(too_many(list));
        }
    }
    Ok(nodes)
}

fn too_many(text: &str) -> Error {
    invalid!("'{text}' names more than {NODES_MAX} nodes")
}

/// The parts of a list, whose commas within brackets belong to a part.
fn split_outside_brackets(list: &str) -> Result<Vec<&str>> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            break;
        }
    }
    if depth != 0 {
        return Err(invalid!("'{list}' has brackets that do not match; wanted nodes such as a[1-3,7],b"));
    }
    parts.push(&list[start..]);
    Ok(parts)
}

/// The nodes of a part: each bracket stands for each of its numbers.
fn expand_pattern(pattern: &str) -> Result<Vec<String>> {
    let mut nodes = vec![String::new()];
    let mut rest = pattern.trim();
    if rest.is_empty() {
        return Err(invalid!("a node without a name; wanted nodes such as a[1-3,7],b"));
    }
    while let Some((before, bracket)) = rest.split_once('[') {
        let (inside, after) = bracket.split_once(']').unwrap_or((bracket, ""));
        let numbers = expand_numbers(inside)?;
        if nodes.len().saturating_mul(numbers.len()) > NODES_MAX {
            return Err(too_many(pattern));
        }
        nodes = nodes.iter().flat_map(|node| numbers.iter().map(move |n| format!("{node}{before}{n}"))).collect();
        rest = after;
    }
    nodes.iter_mut().for_each(|node| node.push_str(rest));
    Ok(nodes)
}

/// The numbers of `1-3,07`, as they are written: leading zeros stay.
fn expand_numbers(text: &str) -> Result<Vec<String>> {
    let wrong = |part: &str| invalid!("'{part}' is not a number or a range of them, such as 1-3");
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let width = first.len();
        let [first, last] = [first, last].map(|number| number.parse::<u64>().map_err(|_| wrong(part)));
        let (first, last) = (first?, last?);
        if last < first {
            return Err(wrong(part));
        }
        if last - first >= NODES_MAX as u64 {
            return Err(too_many(part));
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// The tasks on each node, from `2(x3),1`: two on each of three nodes, and one on the last.
fn expand_counts(text: &str) -> Result<Vec<u16>> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let wrong = || invalid!("'{part}' is not a number of tasks such as 2 or 2(x3)");
        let (count, times) = match part.trim().split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(wrong)?),
            None => (part.trim(), "1"),
        };
        let times: usize = times.parse().map_err(|_| wrong())?;
        if counts.len().saturating_add(times) > NODES_MAX {
            return Err(too_many(text));
        }
        counts.extend(std::iter::repeat_n(count.parse::<u16>().map_err(|_| wrong())?, times));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_written_out() {
        let cases: [(&str, &[&str]); 6] = [
            ("a", &["a"]),
            ("a[1-3,7],b", &["a1", "a2", "a3", "a7", "b"]),
            ("n[008-011]", &["n008", "n009", "n010", "n011"]),
            ("r[1-2]n[1,3]x", &["r1n1x", "r1n3x", "r2n1x", "r2n3x"]),
            ("a-1.example.com,b-2", &["a-1.example.com", "b-2"]),
            ("t[5]", &["t5"]),
        ];
        for (list, want) in cases {
            assert_eq!(expand_nodes(list).unwrap(), want, "{list}");
        }
    }

    #[test]
    fn numbers_of_tasks_are_written_out() {
        for (text, want) in [("2(x3),1", vec![2, 2, 2, 1]), ("4", vec![4]), ("1,2,1(x2)", vec![1, 2, 1, 1])] {
            assert_eq!(expand_counts(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let nodes =
            ["", "a,,b", "a[1-", "a]1[", "a[[1]]", "a[x]", "a[3-1]", "a[]", "a[0-99999999999]", "a[0-999]b[0-999]"];
        for list in nodes {
            assert!(expand_nodes(list).is_err(), "{list}");
        }
        for text in ["", "x", "2(x", "2(x3", "2(y3)", "1(x999999999)", "-1"] {
            assert!(expand_counts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_step_that_contradicts_itself_is_refused() {
        let read = |nodes: &str, counts: &str, rank: &str| {
            let values = [("SLURM_JOB_NODELIST", nodes), ("SLURM_TASKS_PER_NODE", counts), ("SLURM_PROCID", rank)];
            Step::read(&|name| values.iter().find(|(n, v)| *n == name && *v != "-").map(|(_, v)| v.to_string()))
        };
        assert!(read("a,b", "1", "0").is_err_and(|e| e.message.contains("names 2 nodes")));
        assert!(read("a,b", "1,1", "2").is_err_and(|e| e.message.contains("SLURM_PROCID")));
        assert!(read("-", "1", "0").is_err_and(|e| e.message.contains("SLURM_JOB_NODELIST")));
        assert!(read("a", "1", "-").is_ok_and(|step| step.is_none()));
        let step = read("a", "3", "1").unwrap().unwrap();
        assert!(step.cluster(1, 65535).is_err_and(|e| e.message.contains("there is no port")));
        let (cluster, task) = step.cluster(0, 80).unwrap();
        assert_eq!((cluster.to_string().as_str(), task.index), ("worker|a:80;a:81;a:82", 1));
    }
}
