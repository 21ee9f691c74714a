//! What a user sees when something is wrong: each text names what was wanted, what was found, and what to try.

use expect_test::{Expect, expect};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_ferroflow");

/// A folder of files that is removed at the end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn with(self, name: &str, bytes: impl AsRef<[u8]>) -> Folder {
        std::fs::write(self.path(name), bytes).unwrap();
        self
    }

    /// In this folder, a command fails with this text on standard error; `DIR` stands for the folder.
    #[track_caller]
    fn check(&self, arguments: &[&str], expect: Expect) {
        self.check_with(&[], arguments, &[], expect);
    }

    /// The same with an environment, and texts that differ from run to run, each with what stands for it.
    #[track_caller]
    fn check_with(&self, environment: &[(&str, &str)], arguments: &[&str], changing: &[(&str, &str)], expect: Expect) {
        let mut command = Command::new(BINARY);
        let clear = ["TF_CONFIG", "SLURM_PROCID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "FERROFLOW_LOG"];
        for name in clear {
            command.env_remove(name);
        }
        command.args(arguments).envs(environment.iter().copied()).current_dir(self.0.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{arguments:?} is no failure");
        let mut text = String::from_utf8(output.stderr).unwrap();
        for (found, instead) in changing {
            text = text.replace(found, instead);
        }
        let text = text.replace(&*self.0.path().to_string_lossy(), "DIR");
        expect.assert_eq(&without_times(&text));
    }
}

/// The text without what differs from run to run and from machine to machine: how long it took, and how a resolver says
/// no.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let words = text.split(' ').map(|word| if is_time(word) { "N" } else { word });
    let text = words.collect::<Vec<_>>().join(" ");
    let answers =
        ["Name or service not known", "Temporary failure in name resolution", "No address associated with hostname"];
    answers.iter().fold(text, |text, answer| text.replace(answer, "NO"))
}

/// A port that nobody listens on; it stays reserved for us meanwhile.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server of ours, killed at the end.
struct Server(Child);

impl Server {
    fn start(port: u16) -> Server {
        let cluster = format!("--cluster=ps|127.0.0.1:{port}");
        let child = Command::new(BINARY).args(["--log=error", "server", &cluster, "--job_name=ps"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::yield_now();
        }
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn words_that_are_mistyped() {
    let folder = Folder::new();
    folder.check(
        &["nonsense"],
        expect![[r#"
        error: unrecognized subcommand 'nonsense'

        Usage: ferroflow [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["sttaus", "localhost:1"],
        expect![[r#"
        error: unrecognized subcommand 'sttaus'

          tip: a similar subcommand exists: 'status'

        Usage: ferroflow [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["launch", "--wokers", "2"],
        expect![[r#"
        error: unexpected argument '--wokers' found

          tip: a similar argument exists: '--workers'
          tip: to pass '--wokers' as a value, use '-- --wokers'

        Usage: ferroflow launch --workers <COUNT> [-- <PROGRAM>...]

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["server", "--job_nam=ps"],
        expect![[r#"
        error: unexpected argument '--job_nam' found

          tip: a similar argument exists: '--job_name'

        Usage: ferroflow server --job_name <JOB>

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["--log", "inof", "status", "localhost:1"],
        expect![[r#"
        error: invalid value 'inof' for '--log <LEVEL>'
          [possible values: error, warn, info, debug, trace]

          tip: a similar value exists: 'info'

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["completions", "bsh"],
        expect![[r#"
        error: invalid value 'bsh' for '<SHELL>'
          [possible values: bash, elvish, fish, powershell, zsh]

          tip: a similar value exists: 'bash'

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["status"],
        expect![[r#"
        error: the following required arguments were not provided:
          <TARGET>

        Usage: ferroflow status <TARGET>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn clusters_that_are_none() {
    let folder = Folder::new();
    folder.check(&["server"], expect![[r#"
        ferroflow: the cluster is not given; use --ps_hosts and --worker_hosts, --cluster, or the variable TF_CONFIG (--help shows all)
    "#]]);
    folder.check(
        &["server", "--cluster", "ps:a"],
        expect![[r#"
        ferroflow: 'ps:a' is not a job of a cluster; wanted NAME|HOST:PORT;HOST:PORT;…
    "#]],
    );
    folder.check(
        &["server", "--cluster", "ps|a:1"],
        expect![[r#"
        ferroflow: this task's job is not given; use --job_name (--help shows all)
    "#]],
    );
    folder.check(
        &["server", "--cluster", "ps|a:1,worker|b:1", "--job_name", "wroker"],
        expect![[r#"
        ferroflow: there is no job 'wroker' in the cluster; its jobs are ps, worker; did you mean 'worker'?
    "#]],
    );
    folder.check(
        &["server", "--cluster", "ps|a:1;b:1", "--job_name", "ps"],
        expect![[r#"
        ferroflow: this task's number is not given; use --task_index (--help shows all)
    "#]],
    );
    folder.check(
        &["server", "--cluster", "ps|a:1", "--job_name", "ps", "--task_index", "4"],
        expect![[r#"
        ferroflow: there is no task 4 in job 'ps'; its tasks are 0
    "#]],
    );
    folder.check(
        &["server", "--cluster", "ps|a", "--job_name", "ps"],
        expect![[r#"
        ferroflow: the address 'a' of /job:ps/task:0 has no port; wanted HOST:PORT
    "#]],
    );
    folder.check(
        &["server", "--ps_hosts", "a:99999", "--job_name", "ps"],
        expect![[r#"
        ferroflow: the address 'a:99999' of /job:ps/task:0 has a port that is not a number up to 65535; wanted HOST:PORT
    "#]],
    );
    folder.check(&["server", "--cluster", "ps|h.invalid:22", "--job_name", "ps"], expect![[r#"
        ferroflow: /job:ps/replica:0/task:0 cannot start at h.invalid:22: cannot listen on h.invalid:22: the address is not known here: failed to lookup address information: NO; a server listens on the address of its own entry in the cluster definition; --bind, or ServerBuilder::bind, names another one of this machine
    "#]]);
    folder.check(
        &["server", "--cluster", "ps|localhost:0", "--job_name", "ps", "--cpus", "0"],
        expect![[r#"
        error: invalid value '0' for '--cpus <COUNT>': 0 is not in 1..=1024

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["server", "--cluster", "ps|localhost:0", "--job_name", "ps", "--wait", "-3"],
        expect![[r#"
        ferroflow: --wait is -3, wanted a number of seconds
    "#]],
    );
    let config =
        |text: &'static str, expect: Expect| folder.check_with(&[("TF_CONFIG", text)], &["server"], &[], expect);
    config(
        "{",
        expect![[r#"
        ferroflow: TF_CONFIG cannot be read: EOF while parsing an object at line 1 column 1; wanted {"cluster": {"ps": ["host:port"], …}, "task": {"type": "ps", "index": 0}}
    "#]],
    );
    config(
        r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}}"#,
        expect![[r#"
        ferroflow: there is no job 'worker' in the cluster; its jobs are ps
    "#]],
    );
}

#[test]
fn tasks_that_cannot_be_reached() {
    let folder = Folder::new();
    let port = closed_port().to_string();
    let target = format!("127.0.0.1:{port}");
    let mut changing = vec![(port.as_str(), "PORT")];
    folder.check_with(&[], &["status", &target], &changing, expect![[r#"
        ferroflow: the server at 127.0.0.1:PORT cannot be reached: connection refused: nothing listens there (1 attempt in N s); is it running? any other task of its cluster can be asked too
    "#]]);
    folder.check_with(&[], &["stop", &target], &changing, expect![[r#"
        ferroflow: the server at 127.0.0.1:PORT cannot be reached: connection refused: nothing listens there (1 attempt in N s); is it running? any other task of its cluster can be asked too
    "#]]);
    folder.check(
        &["status", "nonsense"],
        expect![[r#"
        ferroflow: 'nonsense' names no task; wanted HOST:PORT or grpc://HOST:PORT
    "#]],
    );
    folder.check(&["status", "grpc://h.invalid:2222"], expect![[r#"
        ferroflow: the server at h.invalid:2222 cannot be reached: the host name cannot be resolved: failed to lookup address information: NO (1 attempt in N s); is it running? any other task of its cluster can be asked too
    "#]]);

    let server = Server::start(port.parse().unwrap());
    let pid = server.0.id().to_string();
    changing.push((pid.as_str(), "PID"));
    let cluster = format!("--cluster=ps|{target}");
    folder.check_with(&[], &["server", &cluster, "--job_name=ps"], &changing, expect![[r#"
        ferroflow: /job:ps/replica:0/task:0 cannot start at 127.0.0.1:PORT: cannot listen on 127.0.0.1:PORT: the port is taken by process PID (ferroflow); a server listens on the address of its own entry in the cluster definition; --bind, or ServerBuilder::bind, names another one of this machine
    "#]]);
    drop(server);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let quiet = [(address.as_str(), "ADDRESS")];
    folder.check_with(&[], &["status", &address, "--wait=1"], &quiet, expect![[r#"
        ferroflow: Status on the server at ADDRESS has not ended within N s; it has been connecting for N s; give it more time with --wait, or look at its machine
    "#]]);
    drop(silent);

    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in web.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    folder.check_with(&[], &["status", &address], &[(address.as_str(), "ADDRESS")], expect![[r#"
        ferroflow: the server at ADDRESS cannot be reached: the peer does not speak HTTP/2: it begins with "HTTP/1.1 " (1 attempt in N s); another program listens there; is the port right?
    "#]]);
}

#[test]
fn programs_that_cannot_be_launched() {
    let folder =
        Folder::new().with("hosts", "a\nb cores=4\n").with("empty", "# nothing\n").with("script", "echo hello\n");
    folder.check(
        &["launch", "--ps=0", "--workers=0"],
        expect![[r#"
        ferroflow: a cluster of no tasks: --ps and --workers are both 0
    "#]],
    );
    folder.check(&["launch", "--restart=sometimes"], expect![[r#"
        error: invalid value 'sometimes' for '--restart <POLICY>': 'sometimes' is no policy; wanted never, on-failure or on-failure:TIMES

        For more information, try '--help'.
    "#]]);
    folder.check(
        &["launch", "--grace=-1", "--", "true"],
        expect![[r#"
        ferroflow: --grace is -1, wanted a number of seconds
    "#]],
    );
    folder.check(
        &["launch", "--host-file=none", "--", "true"],
        expect![[r#"
        ferroflow: --host-file none cannot be read: No such file or directory (os error 2)
    "#]],
    );
    folder.check(
        &["launch", "--host-file=hosts", "--", "true"],
        expect![[r#"
        ferroflow: hosts: line 2: 'cores=4' is not understood; wanted HOST or HOST slots=COUNT
    "#]],
    );
    folder.check(
        &["launch", "--host-file=empty", "--", "true"],
        expect![[r#"
        ferroflow: empty: there is no machine in it; wanted a line each: HOST or HOST slots=COUNT
    "#]],
    );
    folder.check(
        &["launch", "--slurm", "--", "true"],
        expect![[r#"
        ferroflow: SLURM_JOB_NODELIST is not set: this is no SLURM allocation; try salloc or sbatch
    "#]],
    );
    let allocation = [("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "1(x2)")];
    folder.check_with(
        &allocation,
        &["launch", "--slurm", "--ps=2", "--", "true"],
        &[],
        expect![[r#"
        ferroflow: the allocation has 2 tasks, wanted 3 for 2 ps and 1 or more workers; ask Slurm for them with -n 3
    "#]],
    );
    let odd = [("SLURM_JOB_NODELIST", "n[1-"), ("SLURM_TASKS_PER_NODE", "1")];
    folder.check_with(
        &odd,
        &["launch", "--slurm", "--", "true"],
        &[],
        expect![[r#"
        ferroflow: 'n[1-' has brackets that do not match; wanted nodes such as a[1-3,7],b
        	 SLURM_JOB_NODELIST
    "#]],
    );
    folder.check(
        &["launch", "--kubernetes", "--", "true"],
        expect![[r#"
        ferroflow: --kubernetes wants --image: the container image that has the program in it
    "#]],
    );
    folder.check(
        &["launch", "--kubernetes", "--image=x", "--name=My_Job", "--", "true"],
        expect![[r#"
        ferroflow: --name is 'My_Job', wanted at most 40 small letters, digits and dashes, a letter first
    "#]],
    );
    folder.check(
        &["launch", "--slurm", "--kubernetes", "--", "true"],
        expect![[r#"
        error: the argument '--slurm' cannot be used with '--kubernetes'

        Usage: ferroflow launch --slurm -- <PROGRAM>...

        For more information, try '--help'.
    "#]],
    );
    let quiet = |arguments: &[&str], expect: Expect| {
        let output = Command::new(BINARY).args(arguments).current_dir(folder.0.path()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let last =
            text.lines().filter(|line| !line.contains("| 0 ps") && !line.contains("is process")).collect::<Vec<_>>();
        expect.assert_eq(&last.join("\n"));
    };
    quiet(
        &["launch", "--ps=0", "--workers=1", "--", "trainer"],
        expect![
            "ferroflow: worker/0 cannot be started: 'trainer': it is not in PATH; a program of this directory is written as ./NAME (No such file or directory (os error 2))"
        ],
    );
    quiet(
        &["launch", "--ps=0", "--workers=1", "--", "./trainer"],
        expect![
            "ferroflow: worker/0 cannot be started: './trainer': there is no such file; the path is taken from this directory (No such file or directory (os error 2))"
        ],
    );
    quiet(
        &["launch", "--ps=0", "--workers=1", "--", "./script"],
        expect![
            "ferroflow: worker/0 cannot be started: './script': it may not be executed; try chmod +x, or the interpreter before it (Permission denied (os error 13))"
        ],
    );
    quiet(
        &["launch", "--ps=0", "--workers=1", "--", "sh", "-c", "exit 3"],
        expect!["launch   | worker/0 ended with exit code 3"],
    );
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let folder = Folder::new().with("notes", "not a graph");
    folder.check(
        &["graph", "show", "none.pb"],
        expect![[r#"
        ferroflow: none.pb: No such file or directory (os error 2)
    "#]],
    );
    folder.check(&["graph", "show", "notes"], expect![[r#"
        ferroflow: notes: this is not a serialized GraphDef: failed to decode Protobuf message: invalid wire type value: 6
    "#]]);
    folder.check(
        &["events", "none"],
        expect![[r#"
        ferroflow: none: No such file or directory (os error 2)
    "#]],
    );
    folder.check(
        &["events", "."],
        expect![[r#"
        ferroflow: there are no scalars in event files under .
    "#]],
    );
    folder.check(
        &["checkpoint", "ls", "none"],
        expect![[r#"
        ferroflow: none: No such file or directory (os error 2)
    "#]],
    );
    folder.check(
        &["checkpoint", "ls", "."],
        expect![[r#"
        ferroflow: there are no checkpoints in .
    "#]],
    );
    folder.check(
        &["checkpoint", "show", "."],
        expect![[r#"
        ferroflow: there is no checkpoint in .; wanted a directory with a file named 'checkpoint', or a prefix
    "#]],
    );
    folder.check(
        &["checkpoint", "show", "model.ckpt-7"],
        expect![[r#"
        ferroflow: there is no checkpoint model.ckpt-7; there is no other in .
    "#]],
    );
    copy_checkpoint(folder.0.path());
    folder.check(
        &["checkpoint", "show", "model-99"],
        expect![[r#"
        ferroflow: there is no checkpoint model-99; there is ./model
    "#]],
    );
    folder.check(
        &["checkpoint", "show", "model", "wieghts"],
        expect![[r#"
        ferroflow: there is no tensor 'wieghts' in model; did you mean 'weights'?
    "#]],
    );
    let data = folder.path("model.data-00000-of-00001");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&data, &bytes).unwrap();
    folder.check(&["checkpoint", "verify", "model"], expect![[r#"
        model.data-00000-of-00001: tensor "weights" at 0: the checksum does not match: stored 7498284c, computed 6c6bc444
    "#]]);
    std::fs::write(&data, &bytes[..bytes.len() / 2]).unwrap();
    folder.check(
        &["checkpoint", "verify", "model"],
        expect![[r#"
        ferroflow: model.index: tensor "weights": 16 bytes at 0 are wanted of model.data-00000-of-00001, which has 8
    "#]],
    );
    std::fs::remove_file(&data).unwrap();
    folder.check(
        &["checkpoint", "verify", "model"],
        expect![[r#"
        ferroflow: model.data-00000-of-00001: No such file or directory (os error 2)
    "#]],
    );
}

/// A checkpoint with one tensor.
fn copy_checkpoint(to: &Path) {
    use ferroflow::prelude::*;
    let g = Graph::new();
    let _w = g.variable("weights", vec![1.0f32, 2.0, 3.0, 4.0]);
    let (saver, init) = (ferroflow::train::Saver::new(&g), g.initialize_all());
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    saver.save(&session, to.join("model"), None).unwrap();
}

#[test]
fn demonstrations_that_cannot_be_given() {
    let folder = Folder::new().with("file", "x").with("train-images-idx3-ubyte", "x");
    folder.check(
        &["demo", "mnits"],
        expect![[r#"
        error: unrecognized subcommand 'mnits'

          tip: a similar subcommand exists: 'mnist'

        Usage: ferroflow demo [OPTIONS] <COMMAND>

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["demo", "mnist", "--learning_rate=-1"],
        expect![[r#"
        ferroflow: --learning_rate is -1, wanted a number above 0, such as 0.005
    "#]],
    );
    folder.check(
        &["demo", "mnist", "--workers=0"],
        expect![[r#"
        error: invalid value '0' for '--workers <COUNT>': 0 is not in 1..=64

        For more information, try '--help'.
    "#]],
    );
    folder.check(
        &["demo", "mnist", "--data_dir=none"],
        expect![[r#"
        ferroflow: none: wanted the MNIST file train-images-idx3-ubyte, with or without .gz, found neither
    "#]],
    );
    folder.check(
        &["demo", "mnist", "--data_dir=."],
        expect![[r#"
        ferroflow: .: wanted the MNIST file train-labels-idx1-ubyte, with or without .gz, found neither
    "#]],
    );
    folder.check(
        &["demo", "mnist", "--train_dir=file/below"],
        expect![[r#"
        ferroflow: --train_dir file/below cannot be made: Not a directory (os error 20)
    "#]],
    );
    folder.check(
        &["demo", "mnist", "--download"],
        expect![[r#"
        error: the following required arguments were not provided:
          --data_dir <DIR>

        Usage: ferroflow demo mnist --data_dir <DIR> --download [<URL>]

        For more information, try '--help'.
    "#]],
    );
    let port = closed_port().to_string();
    let url = format!("--download=http://127.0.0.1:{port}");
    folder.check_with(&[], &["demo", "mnist", "--data_dir=new", &url], &[(port.as_str(), "PORT")], expect![[r#"
        ferroflow: http://127.0.0.1:PORT/train-images-idx3-ubyte.gz cannot be fetched: 127.0.0.1:PORT: Connection refused (os error 111); without --download and --data_dir the digits that are compiled in are used
    "#]]);
}
