//! Saving in a world that goes on: while others train, and until the program is killed.

use ferroflow::prelude::*;
use ferroflow::train::{checkpoint_state, latest_checkpoint};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::{BundleReader, LocalFiles};

/// A variable of a checkpoint whose elements are all the same, as they are after every step.
#[track_caller]
fn only_value(prefix: &Path, name: &str) -> f32 {
    let reader = BundleReader::open(Arc::new(LocalFiles), prefix).unwrap();
    let values = reader.read(name).unwrap();
    let values = values.as_slice::<f32>().unwrap();
    let torn = values.iter().position(|value| *value != values[0]);
    assert_eq!(torn, None, "{}: {name} is of several versions", prefix.display());
    values[0]
}

#[test]
fn what_is_saved_while_others_train_is_of_one_version() {
    const ROWS: usize = 20_000;
    for resource in [false, true] {
        let g = Graph::new();
        g.use_resource_variables(resource);
        let dense = g.variable("dense", initializers::zeros([ROWS, 8]));
        let table = g.variable("table", initializers::zeros([ROWS, 8]));
        let rows = g.constant((0..ROWS as i32).collect::<Vec<i32>>());
        // Both kinds of updates happen in place: that of a whole tensor, and that of rows.
        let loss = -(dense.sum() + table.gather(&rows).sum());
        let train = GradientDescent::new(1.0).minimize(&loss);
        let init = g.initialize_all();
        let saver = Saver::builder(&g).max_to_keep(0).write_meta_graph(false).build();
        let folder = tempfile::tempdir().unwrap();
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();

        let enough = AtomicBool::new(false);
        let (mut saved, steps) = std::thread::scope(|scope| {
            let trainer = scope.spawn(|| {
                let mut steps = 0;
                while !enough.load(Ordering::Relaxed) {
                    session.run(&train).unwrap();
                    steps += 1;
                }
                steps
            });
            let mut saved = Vec::new();
            // Until training was seen to go on between saves, and inside of them if they are not of one version.
            while saved.len() < 10 || saved.last() == saved.first() {
                let path = saver.save(&session, folder.path().join("model"), Some(saved.len() as i64)).unwrap();
                saved.push(["dense", "table"].map(|name| only_value(&path, name)));
            }
            enough.store(true, Ordering::Relaxed);
            (saved, trainer.join().unwrap())
        });
        assert!(steps > 1);
        let in_order = saved.is_sorted_by(|before, after| before[0] <= after[0] && before[1] <= after[1]);
        assert!(in_order, "{saved:?}");
        saved.dedup();
        assert!(saved.len() > 1, "nothing was trained between the saves");
    }
}

const FOLDER: &str = "FERROFLOW_TEST_SAVE_INTO";
/// Folders in which each checkpoint has the name of the one before.
const SAME: &str = "same";
const SAME_SHARDED: &str = "same_sharded";

/// Counts on from where the last one was killed.
#[test]
#[ignore = "the program that another test starts and kills"]
fn a_program_that_saves_until_it_is_killed() {
    let folder = std::env::var(FOLDER).expect("this is started by the test below");
    let folder = Path::new(&folder);
    let g = Graph::new();
    let count = g.global_step();
    let w = g.variable("w", initializers::zeros([20_000]));
    let v = g.variable("v", initializers::zeros([300, 20]));
    let add = g.group(&[&count.assign_add(1i64), &w.assign_add(w.ones_like()), &v.assign_add(v.ones_like())]);
    let init = g.initialize_all();
    let sharded = folder.ends_with("sharded") || folder.ends_with(SAME_SHARDED);
    let is_same = folder.ends_with(SAME) || folder.ends_with(SAME_SHARDED);
    let saver = Saver::builder(&g).sharded(sharded).max_to_keep(2).build();
    let session = Session::new(&g).unwrap();
    match checkpoint_state(folder).unwrap() {
        Some(state) => {
            saver.recover_last_checkpoints(&state.all).unwrap();
            saver.restore(&session, &state.latest).unwrap();
        }
        None => session.run(&init).unwrap(),
    }
    loop {
        session.run(&add).unwrap();
        let step = session.run(&count).unwrap().item::<i64>().unwrap();
        saver.save(&session, folder.join("model"), (!is_same).then_some(step)).unwrap();
        println!("saved {step}");
    }
}

#[test]
fn kills_leave_usable_checkpoints() {
    kill_often(20);
}

#[test]
#[ignore = "takes about half a minute"]
fn two_hundred_kills_leave_two_hundred_usable_checkpoints() {
    kill_often(100);
}

/// Kills a program that saves to one file, and one that saves a file for each device, so many times each; and both when they
/// save over what they saved before.
fn kill_often(times: u64) {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (seed, name) in [(0, "whole"), (times, "sharded"), (2 * times, SAME), (3 * times, SAME_SHARDED)] {
            let folder = folder.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            scope.spawn(move || (seed..seed + times).fold(0, |last, seed| kill_once(&folder, seed, last)));
        }
    });
}

/// Starts the program, kills it some time after it has saved something, and looks at what it leaves.
fn kill_once(folder: &Path, seed: u64, last: i64) -> i64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "saving::a_program_that_saves_until_it_is_killed", "--ignored", "--nocapture"]);
    let mut child = command.env(FOLDER, folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let saved = lines.filter_map(|line| line.strip_prefix("saved ")?.parse::<i64>().ok()).nth(seed as usize % 2);
    let Some(saved) = saved else {
        panic!("the program ended by itself: {}", std::io::read_to_string(child.stderr.take().unwrap()).unwrap());
    };
    // Any moment will do; this picks one, within about the time a save takes.
    std::thread::sleep(Duration::from_micros(seed.wrapping_mul(7919) % 10_000));
    child.kill().unwrap();
    child.wait().unwrap();

    let latest = latest_checkpoint(folder).unwrap().unwrap();
    let all = checkpoint_state(folder).unwrap().unwrap().all;
    assert_eq!(all.last(), Some(&latest));
    let steps: Vec<i64> = all
        .iter()
        .map(|prefix| {
            let step = only_value(prefix, "w");
            let is_same = folder.ends_with(SAME) || folder.ends_with(SAME_SHARDED);
            assert_eq!(prefix, &folder.join(if is_same { "model".into() } else { format!("model-{step}") }));
            assert_eq!(only_value(prefix, "v"), step);
            step as i64
        })
        .collect();
    let step = *steps.last().unwrap();
    assert!(step >= saved && saved > last, "{last} was found before, then {saved} saved and {step} found");
    step
}
