//! Branches and loops, nested, with effects, and differentiated where they can be.

use ferroflow::prelude::*;
use ferroflow::{WhileOptions, while_loop_with};

fn scalar(session: &Session, y: &Output, feeds: Feeds) -> f32 {
    session.run_with(y, feeds).unwrap_or_else(|e| panic!("{e}")).item::<f32>().unwrap()
}

#[test]
fn only_the_branch_taken_happens() {
    for resource in [false, true] {
        let g = Graph::new();
        g.use_resource_variables(resource);
        let up = g.placeholder::<bool>(Shape::scalar());
        let w = g.variable("w", 10.0f32);
        let step = cond(&up, || w.assign_add(1.0), || w.assign_sub(5.0));
        let init = g.initialize_all();
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        session.run_with(&step, feed! { up => true }).unwrap();
        assert_eq!(session.run(&w).unwrap().item::<f32>().unwrap(), 11.0);
        session.run_with(&step, feed! { up => false }).unwrap();
        assert_eq!(session.run(&w).unwrap().item::<f32>().unwrap(), 6.0);
    }
}

#[test]
fn branches_nest_and_may_give_what_stands_outside() {
    let g = Graph::new();
    let x = g.placeholder::<f32>(Shape::scalar());
    let k = g.constant(100.0f32);
    let y = cond(&x.greater(0.0), || cond(&x.greater(10.0), || &x * &k, || k.clone()), || &x - 1.0);
    let session = Session::new(&g).unwrap();
    for (given, want) in [(20.0f32, 2000.0), (5.0, 100.0), (-1.0, -2.0)] {
        assert_eq!(scalar(&session, &y, feed! { x => given }), want);
    }
}

#[test]
fn branches_are_differentiated() {
    let g = Graph::new();
    let x = g.placeholder::<f32>(Shape::scalar());
    let w = g.constant(3.0f32);
    let y = cond(&x.greater(0.0), || x.square() * &w, || -&x) + &x;
    let dx = gradients(&[&y], &[&x]).remove(0).unwrap().dense();
    let session = Session::new(&g).unwrap();
    assert_eq!(scalar(&session, &dx, feed! { x => 2.0f32 }), 13.0);
    assert_eq!(scalar(&session, &dx, feed! { x => -2.0f32 }), 0.0);
}

#[test]
fn loops_carry_values_and_use_what_stands_outside() {
    let g = Graph::new();
    let limit = g.placeholder::<i32>(Shape::scalar());
    let by = g.constant([1.0f32, 2.0]);
    let w = g.variable("w", [1.0f32, 1.0]);
    let (count, sum) = while_loop(
        (g.constant(0), g.constant([0.0f32, 0.0])),
        |(i, _)| i.less(&limit),
        |(i, sum)| (i + 1, sum + &by * &w + 1.0),
    );
    let init = g.initialize_all();
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    let (count, sum) = session.run_with((&count, &sum), feed! { limit => 100 }).unwrap();
    assert_eq!(count.item::<i32>().unwrap(), 100);
    assert_eq!(sum, Tensor::from([200.0f32, 300.0]));
}

#[test]
fn loops_nest_and_hold_branches() {
    let g = Graph::new();
    let two = g.constant(2);
    let (_, total) = while_loop(
        (g.constant(0), g.constant(0)),
        |(i, _)| i.less(4),
        |(i, total)| {
            let (_, inner) = while_loop((g.constant(0), total.clone()), |(j, _)| j.less(i), |(j, t)| (j + 1, t + &two));
            let odd = i.floor_mod(2).equal(1);
            (i + 1, cond(&odd, || &inner + 100, || inner.clone()))
        },
    );
    // 0+1+2+3 inner turns of 2 each, and 100 for each odd i.
    assert_eq!(Session::new(&g).unwrap().run(&total).unwrap().item::<i32>().unwrap(), 212);
}

#[test]
fn a_shape_that_grows_must_be_announced() {
    let g = Graph::new();
    let grow = |x: &Output| concat(&[x, x], 0);
    let options = WhileOptions { parallel_iterations: 1, shapes: vec![[None].into()] };
    let y = while_loop_with(g.constant([1.0f32]), options, |x| x.size().less(10), grow);
    assert_eq!(Session::new(&g).unwrap().run(&y).unwrap().dims(), [16]);

    let wrong = Graph::new();
    while_loop(wrong.constant([1.0f32]), |x| x.size().less(10), grow);
    let error = wrong.check().unwrap_err();
    assert!(error.message.contains("comes back with shape [2]"), "{error}");
}

#[test]
fn what_a_loop_waits_for_is_waited_for() {
    let g = Graph::new();
    let w = g.variable("w", 1);
    let first = w.assign_add(1);
    let y = g.control_dependencies(&[&first], || {
        while_loop((g.constant(0), w.read()), |(i, _)| i.less(3), |(i, x)| (i + 1, x * 2)).1
    });
    let session = Session::new(&g).unwrap();
    session.run(w.initializer()).unwrap();
    assert_eq!(session.run(&y).unwrap().item::<i32>().unwrap(), 16);
}
