//! Where tasks run, and how a process is started there.

use crate::processes::{Program, Stop};
use ferroflow::{ClusterSpec, Code, Error, Result, TaskName};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// Where every task of a cluster runs.
pub struct Places {
    /// The tasks' addresses.
    pub cluster: ClusterSpec,
    machines: Machines,
}

/// What kind of machines.
enum Machines {
    /// This one.
    Here,
    /// Others, reached by this command.
    Ssh(String),
    /// Those of the Slurm allocation we are in.
    Slurm,
}

impl Places {
    /// All tasks on this machine, on free ports.
    pub fn here(ps: u32, workers: u32) -> Result<Places> {
        let mut ports = free_ports((ps + workers) as usize)?.into_iter().map(|port| format!("localhost:{port}"));
        let cluster = deal(ps, workers, |_| ports.next().expect("there is a port for each task"));
        Ok(Places { cluster, machines: Machines::Here })
    }

    /// Tasks dealt out in turn over the machines that a file lists.
    pub fn from_host_file(file: &Path, ps: u32, workers: u32, port: u16, ssh: &str) -> Result<Places> {
        let text = std::fs::read_to_string(file)
            .map_err(|e| Error::new(Code::NotFound, format!("--host-file {} cannot be read: {e}", file.display())))?;
        let slots = read_hosts(&text).map_err(|e| Error::new(e.code, format!("{}: {}", file.display(), e.message)))?;
        Ok(Places { cluster: deal_over(&slots, ps, workers, port)?, machines: Machines::Ssh(ssh.to_string()) })
    }

    /// Tasks on those of a Slurm allocation, whose nodes these are.
    pub fn in_slurm(slots: &[String], ps: u32, workers: Option<u32>, port: u16) -> Result<Places> {
        let count = slots.len() as u32;
        let wanted = ps.saturating_add(workers.unwrap_or(1));
        if wanted > count {
            let message = format!(
                "the allocation has {count} task{}, wanted {wanted} for {ps} ps and {} or more workers; ask Slurm for them \
                 with -n {wanted}",
                if count == 1 { "" } else { "s" },
                wanted - ps
            );
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        let cluster = deal_over(slots, ps, workers.unwrap_or(count - ps), port)?;
        Ok(Places { cluster, machines: Machines::Slurm })
    }

    /// What to run on this machine so that a program runs where its task is.
    pub fn reach(&self, task: &TaskName, program: Program, grace: Duration) -> Program {
        let address = self.cluster.task_address(&task.job, task.index).unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        match &self.machines {
            Machines::Here => program,
            Machines::Ssh(command) => over_ssh(command, host, &program, grace),
            Machines::Slurm => in_allocation(host, program),
        }
    }
}

/// A cluster whose tasks get their addresses one after the other: first the ps, then the workers.
fn deal(ps: u32, workers: u32, mut address: impl FnMut(u32) -> String) -> ClusterSpec {
    let mut next = 0..;
    let mut job = |count: u32| -> Vec<String> { next.by_ref().take(count as usize).map(&mut address).collect() };
    let (ps, workers) = (job(ps), job(workers));
    let jobs = [("ps", ps), ("worker", workers)].into_iter().filter(|(_, addresses)| !addresses.is_empty());
    jobs.fold(ClusterSpec::new(), |cluster, (name, addresses)| cluster.job(name, addresses))
}

/// A cluster dealt out over slots in turn, with ports of its own for the tasks of one machine.
fn deal_over(slots: &[String], ps: u32, workers: u32, port: u16) -> Result<ClusterSpec> {
    let mut ports: BTreeMap<&str, u32> = BTreeMap::new();
    let cluster = deal(ps, workers, |i| {
        let host = slots[i as usize % slots.len()].as_str();
        let next = ports.entry(host).or_insert(u32::from(port));
        *next += 1;
        format!("{host}:{}", *next - 1)
    });
    cluster.check().map(|()| cluster)
}

/// The slots of a host file: each machine as often as it has slots, in turn.
fn read_hosts(text: &str) -> Result<Vec<String>> {
    let mut hosts: Vec<(String, u32)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        let mut slots = 1;
        for word in words {
            slots = word.strip_prefix("slots=").and_then(|count| count.parse().ok()).filter(|&n| n > 0).ok_or_else(
                || {
                    let message =
                        format!("line {}: '{word}' is not understood; wanted HOST or HOST slots=COUNT", number + 1);
                    Error::new(Code::InvalidArgument, message)
                },
            )?;
        }
        hosts.push((host.to_string(), slots));
    }
    if hosts.is_empty() {
        return Err(Error::new(
            Code::InvalidArgument,
            "there is no machine in it; wanted a line each: HOST or HOST slots=COUNT",
        ));
    }
    let most = hosts.iter().map(|(_, slots)| *slots).max().unwrap_or(0);
    let rounds = (0..most).flat_map(|round| hosts.iter().filter(move |(_, slots)| *slots > round));
    Ok(rounds.map(|(host, _)| host.clone()).collect())
}

/// Ports nobody listens on. They are chosen below those that the system gives to outgoing connections, so that nothing
/// takes one before the process that it is for listens on it.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    const FIRST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768u16);
    let end = if end > FIRST + 1000 { end } else { 32_768 };
    let span = u32::from(end - FIRST);
    // Two launchers at once begin at different places.
    let seed = std::process::id().wrapping_mul(2_654_435_761) ^ now_nanos();
    let mut held = Vec::new();
    for i in 0..span {
        let port = FIRST + (seed.wrapping_add(i) % span) as u16;
        held.extend(TcpListener::bind(("0.0.0.0", port)).ok());
        if held.len() == count {
            return held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect();
        }
    }
    Err(Error::new(Code::ResourceExhausted, format!("of the ports {FIRST} to {end} fewer than {count} are free")))
}

fn now_nanos() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos())
}

/// The program on another machine. A connection that ends, whichever way, ends what it started there: the shell there
/// reads its input until the end and then stops the program's group.
fn over_ssh(command: &str, host: &str, program: &Program, grace: Duration) -> Program {
    let here = std::env::current_dir().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let environment = program.environment.iter().map(|(name, value)| format!("{name}={}", quote(value)));
    let words: Vec<String> = environment.chain(program.arguments.iter().map(|argument| quote(argument))).collect();
    let script = format!(
        "cd {} || exit 1; exec 3<&0; setsid env {} </dev/null 3<&- & p=$!; \
         (cat <&3 >/dev/null; kill -TERM -$p; sleep {}; kill -KILL -$p) >/dev/null 2>&1 & w=$!; \
         wait $p; s=$?; kill -KILL $w -$p 2>/dev/null; exit $s",
        quote(&here),
        words.join(" "),
        grace.as_secs_f64()
    );
    let mut arguments: Vec<String> = command.split_whitespace().map(String::from).collect();
    arguments.extend(["-o".into(), "BatchMode=yes".into(), host.to_string(), format!("sh -c {}", quote(&script))]);
    Program { arguments, environment: BTreeMap::new(), stop: Stop::EndOfInput }
}

/// The program on one machine of the allocation. Slurm passes the environment and signals on.
fn in_allocation(host: &str, program: Program) -> Program {
    let srun = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--quiet", "--unbuffered"].map(String::from);
    let arguments = srun.into_iter().chain([format!("--nodelist={host}"), "--".into()]).chain(program.arguments);
    Program { arguments: arguments.collect(), ..program }
}

/// A word as a shell reads it back.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn ports_are_free_and_different() {
        let mut ports = free_ports(8).unwrap();
        // A process that another test starts just now holds what was open here until it runs its own program.
        let deadline = Instant::now() + Duration::from_secs(10);
        for port in &ports {
            while let Err(error) = TcpListener::bind(("127.0.0.1", *port)) {
                assert!(Instant::now() < deadline, "port {port}: {error}");
                std::thread::yield_now();
            }
        }
        ports.sort();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }

    #[test]
    fn tasks_are_dealt_out_over_machines() {
        let slots = read_hosts("a slots=2 # big\n\n# c\nb\n").unwrap();
        assert_eq!(slots, ["a", "b", "a"]);
        let cluster = deal_over(&slots, 1, 4, 2222).unwrap();
        assert_eq!(cluster.to_string(), "ps|a:2222,worker|b:2222;a:2223;a:2224;b:2223");
    }

    #[test]
    fn an_allocation_may_be_too_small() {
        let nodes = ["n1".to_string(), "n1".into(), "n2".into()];
        assert_eq!(Places::in_slurm(&nodes, 1, None, 70).unwrap().cluster.to_string(), "ps|n1:70,worker|n1:71;n2:70");
        let e = Places::in_slurm(&nodes, 1, Some(3), 70).map(|_| ()).unwrap_err();
        assert!(e.message.contains("has 3 tasks, wanted 4"), "{e}");
    }

    #[test]
    fn a_host_file_that_is_none_is_explained() {
        for (text, want) in
            [("", "no machine"), ("a cores=2", "line 1: 'cores=2'"), ("a\nb slots=0", "line 2: 'slots=0'")]
        {
            let e = read_hosts(text).unwrap_err();
            assert!(e.message.contains(want), "{e}");
        }
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let word = r#"it's {"a": 1} $HOME `x`"#;
        let shown =
            std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", quote(word))).output().unwrap();
        assert_eq!(String::from_utf8(shown.stdout).unwrap(), word);
    }
}
