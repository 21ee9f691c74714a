//! Runs a graph cut into parts, each part by an executor of its own, and compares with the graph run whole.

use crate::support::{client, place, registry};
use framework::{CpuDevice, Delivery, Device, DeviceName, Env, Graph, Pool, Rendezvous, StepContext, SystemEnv};
use plan::{EdgeNames, RunSignature};
use runtime::{Executor, KernelCache, LocalRendezvous, block_on};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor};

/// Runs graphs together, as tasks of one step.
pub fn run_together(graphs: &[Graph], fetches: &[&str]) -> Result<Vec<Tensor>> {
    let (rendezvous, env): (LocalRendezvous, Arc<dyn Env>) = (LocalRendezvous::new(), Arc::new(SystemEnv::default()));
    let deadline = Some(Instant::now() + Duration::from_secs(20));
    let step = Arc::new(StepContext::new(1, Arc::new(rendezvous.clone()), env.clone(), None));
    std::thread::scope(|scope| {
        let runs: Vec<_> = graphs
            .iter()
            .map(|graph| {
                let (env, step) = (env.clone(), step.clone());
                scope.spawn(move || {
                    let name = DeviceName::cpu("worker", 0, 0);
                    let device: Arc<dyn Device> = Arc::new(CpuDevice::new(name, 1, Pool::new(1)));
                    let executor = Executor::compile(graph, &device, &env, &KernelCache::default())?;
                    block_on(executor.run(step), deadline).expect("the step ends")
                })
            })
            .collect();
        runs.into_iter().try_for_each(|run| run.join().unwrap())
    })?;
    let fetched =
        fetches.iter().map(|name| match rendezvous.try_recv(&client().key(name)).expect("a fetch is sent")? {
            Delivery::Tensor(tensor) => Ok(tensor),
            Delivery::Dead => panic!("{name} is dead"),
        });
    fetched.collect()
}

/// The values of `fetches`, and into how many parts the graph was cut.
pub fn run_cut(
    pruned: &Graph,
    fetches: &[&str],
    group_of: &dyn Fn(&DeviceName) -> String,
) -> Result<(Vec<Tensor>, usize)> {
    let names = &mut EdgeNames::default();
    let parts = plan::partition(pruned, &registry(), group_of, &|_| Ok(7), names)?;
    // Each task cuts its own part once more, by device.
    let cut = |part: plan::Part| plan::partition(&part.graph, &registry(), &DeviceName::to_string, &|_| Ok(7), names);
    let parts: Vec<Vec<plan::Part>> = parts.into_iter().map(cut).collect::<Result<_>>()?;
    let graphs: Vec<Graph> = parts.into_iter().flatten().map(|p| p.graph).collect();
    Ok((run_together(&graphs, fetches)?, graphs.len()))
}

#[track_caller]
fn check(notation: &str, fetches: &[&str], want: &str, num_parts: usize) {
    let placed = place(notation, false).unwrap();
    let names = fetches.iter().map(|s| s.to_string()).collect();
    let signature = RunSignature::new(vec![], names, vec![]).unwrap();
    let pruned = plan::prune(&placed, &signature, &client(), &registry()).unwrap().graph;
    let whole = run_together(std::slice::from_ref(&pruned), fetches).unwrap();
    assert_eq!(format!("{whole:?}"), want, "the whole graph");
    for round in 0..5 {
        for group_of in [&DeviceName::task_name as &dyn Fn(&DeviceName) -> String, &DeviceName::to_string] {
            let (values, count) = run_cut(&pruned, fetches, group_of).unwrap();
            assert_eq!((format!("{values:?}").as_str(), count), (want, num_parts), "round {round}");
        }
    }
}

#[test]
fn values_and_signals_arrive() {
    check(
        "k = Const {dtype: float, value: float[2] [-1 -2]} @ /job:ps/task:0
         a = Neg(k) @ /job:ps/task:0
         b = Neg(a) @ /job:ps/task:1
         log = NoOp(^b) @ /job:ps/task:0/cpu:1
         c = Mul(a, b, ^log) @ /job:worker/task:0
         d = Add(c, a)",
        &["d", "b"],
        "[float[2] [0 -2], float[2] [-1 -2]]",
        5,
    );
}

#[test]
fn a_variable_is_read_after_what_its_reader_waits_for() {
    check(
        "v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps
         one = Const {dtype: float, value: float[] 1} @ /job:ps
         set = Assign(v, one) @ /job:ps
         there = NoOp(^set) @ /job:worker/task:0
         first = Neg(v, ^there) @ /job:worker/task:1
         again = NoOp(^first) @ /job:worker/task:0
         add = AssignAdd(v, one, ^again) @ /job:ps
         second = Neg(v, ^add) @ /job:worker/task:0",
        &["first", "second"],
        "[float[] -1, float[] -2]",
        3,
    );
}

#[test]
fn a_branch_that_is_not_taken_is_dead_everywhere() {
    for (taken, want) in [("true", "[float[] 6]"), ("false", "[float[] 0.5]")] {
        check(
            &format!(
                "q = Const {{dtype: bool, value: bool[] {taken}}} @ /job:worker/task:0
                 p = LogicalAnd(q, q) @ /job:worker/task:0
                 k2 = Const {{dtype: float, value: float[] -2}} @ /job:ps/task:0
                 x = Neg(k2) @ /job:ps/task:0
                 s = Switch(x, p)
                 t = Identity(s:1) @ /job:ps/task:1
                 k = Const(^t) {{dtype: float, value: float[] 3}} @ /job:worker/task:0
                 yes = Mul(t, k) @ /job:worker/task:0
                 no = Reciprocal(s) @ /job:ps/task:1
                 y = Merge(yes, no)"
            ),
            &["y"],
            want,
            4,
        );
    }
}

#[test]
fn one_of_many_branches_is_taken() {
    for (index, want) in [(0, "[float[] -2]"), (1, "[float[] 4]"), (7, "[float[] 0.5]"), (-1, "[float[] 0.5]")] {
        check(
            &format!(
                "x0 = Const {{dtype: float, value: float[] -2}} @ /job:ps/task:0
                 x = Neg(x0) @ /job:ps/task:0
                 i = Const {{dtype: int32, value: int32[] {index}}}
                 s = _SwitchN(x, i) {{num_outs: 3}}
                 a = Neg(s) @ /job:ps/task:1
                 b = Square(s:1) @ /job:worker/task:0
                 c = Reciprocal(s:2)
                 y = Merge(a, b, c)"
            ),
            &["y"],
            want,
            4,
        );
    }
}

/// Three times `x = x · 3 + 1`, the product elsewhere.
fn loop_over(body: &str) -> String {
    format!(
        "zero = Const {{dtype: int32, value: int32[] 0}}
         one = Const {{dtype: float, value: float[] 1}}
         inv = Const {{dtype: float, value: float[] 3}}
         i0 = Enter(zero) {{frame_name: 'loop'}}
         x0 = Enter(one) {{frame_name: 'loop'}}
         k = Enter(inv) {{frame_name: 'loop', is_constant: true}}
         i1 = Merge(i0, i5)
         x1 = Merge(x0, x5)
         limit = Const(^i1) {{dtype: int32, value: int32[] 3}}
         less = Less(i1, limit)
         cond = LoopCond(less)
         i2 = Switch(i1, cond)
         x2 = Switch(x1, cond)
         i3 = Identity(i2:1)
         x3 = Identity(x2:1)
         unit = Const(^i3) {{dtype: int32, value: int32[] 1}}
         i4 = Add(i3, unit)
         i5 = NextIteration(i4)
         {body}
         x5 = NextIteration(x4)
         i6 = Exit(i2)
         x6 = Exit(x2)"
    )
}

#[test]
fn a_loop_goes_round_on_all_devices_of_its_body() {
    let want = "[int32[] 3, float[] 40]";
    let sum = "fone = Const(^i3) {dtype: float, value: float[] 1}\nx4 = Add(y, fone)";
    for (place, num_parts) in [("/job:ps/task:0", 2), ("/cpu:1", 2), ("/job:ps/task:1/cpu:1", 2)] {
        check(&loop_over(&format!("y = Mul(x3, k) @ {place}\n{sum}")), &["i6", "x6"], want, num_parts);
    }
    // The value goes back into the next iteration from afar, by way of a third task, and after a signal from a fourth.
    let far = "y = Mul(x3, k) @ /job:ps/task:0
               log = NoOp(^y) @ /job:ps/task:0/cpu:1
               fone = Const(^log) {dtype: float, value: float[] 1} @ /job:worker/task:0
               x4 = Add(y, fone) @ /job:ps/task:1";
    check(&loop_over(far), &["i6", "x6"], want, 5);
}

#[test]
fn a_loop_within_a_loop_goes_round_everywhere() {
    // In each of three iterations x grows by one as often as i says: 1 + 0 + 1 + 2.
    let inner = "jzero = Const(^i3) {dtype: int32, value: int32[] 0}
         j0 = Enter(jzero) {frame_name: 'inner'}
         y0 = Enter(x3) {frame_name: 'inner'}
         jlimit = Enter(i3) {frame_name: 'inner', is_constant: true}
         j1 = Merge(j0, j5)
         y1 = Merge(y0, y5)
         jless = Less(j1, jlimit)
         jcond = LoopCond(jless)
         j2 = Switch(j1, jcond)
         y2 = Switch(y1, jcond)
         j3 = Identity(j2:1)
         y3 = Identity(y2:1)
         junit = Const(^j3) {dtype: int32, value: int32[] 1}
         j4 = Add(j3, junit)
         j5 = NextIteration(j4)
         step = Const(^j3) {dtype: float, value: float[] 1} @ PLACE
         y4 = Add(y3, step) @ PLACE
         y5 = NextIteration(y4)
         x4 = Exit(y2)";
    for place in ["/job:ps/task:0", "/cpu:1"] {
        check(&loop_over(&inner.replace("PLACE", place)), &["i6", "x6"], "[int32[] 3, float[] 4]", 2);
    }
}

#[test]
fn a_loop_without_predicate_cannot_be_cut() {
    let placed = place(&loop_over("x4 = Mul(x3, k) @ /job:ps").replace("LoopCond", "Identity"), false).unwrap();
    let signature = RunSignature::new(vec![], vec!["x6".into()], vec![]).unwrap();
    let pruned = plan::prune(&placed, &signature, &client(), &registry()).unwrap().graph;
    let error = run_cut(&pruned, &[], &DeviceName::task_name).unwrap_err();
    assert_eq!(error.message, "A cross-device loop must have a pivot predicate: loop");
}
