//! Ten steps of every optimizer give TensorFlow's variables and slots, under TensorFlow's names.

use crate::golden::{check_all, compare, dtype, numbers, of, tensor};
use ferroflow::optimizers::Rate;
use ferroflow::prelude::*;
use serde_json::Value;

#[test]
fn ten_steps_of_each_give_tensorflows_variables_and_slots() {
    check_all("optimizers.json", |case| {
        for kind in case["variables"].as_array().unwrap() {
            replay(case, kind == "resource").map_err(|why| format!("on {kind} variables: {why}"))?;
        }
        Ok(())
    });
}

fn replay(case: &Value, resource: bool) -> Result<(), String> {
    let g = Graph::new();
    g.use_resource_variables(resource);
    let step = g.global_step();
    let start = |name: &str| {
        let names = case["names"].as_array().unwrap();
        tensor(&case["initial"][names.iter().position(|n| n == name).unwrap()])
    };
    let trained = case["trained"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    let trained: Vec<Variable> = trained.map(|name| g.variable(name, start(name))).collect();
    let optimizer = optimizer(&g, case, &step);
    let (train, feeds) = if case["sparse"] == true {
        let ids = g.placeholder::<i64>([3]);
        let scale = placeholder(&g, dtype(&case["dtype"]), &[3, 2]);
        let loss = (trained[0].gather(&ids) * &scale).sum();
        let pairs = optimizer.compute_gradients(&loss, &trained).into_iter();
        let pairs: Vec<(Gradient, Variable)> = pairs.map(|(grad, v)| (grad.expect("a gradient"), v)).collect();
        assert!(matches!(pairs[0].0, Gradient::Sparse(_)), "a lookup's gradient is sparse");
        (optimizer.apply_gradients(&pairs, Some(&step)), vec![scale, ids])
    } else {
        let feeds: Vec<Output> =
            trained.iter().map(|v| placeholder(&g, v.dtype(), v.shape().known().unwrap().dims())).collect();
        let pairs: Vec<_> = feeds.iter().map(Gradient::from).zip(trained.iter().cloned()).collect();
        (optimizer.apply_gradients(&pairs, Some(&step)), feeds)
    };

    let everything = g.global_variables();
    let names: Vec<String> = everything.iter().map(Variable::name).collect();
    if Value::from(names.clone()) != case["names"] {
        return Err(format!("variables are {names:?}, wanted {}", case["names"]));
    }
    let init = g.initialize_all();
    let session = Session::new(&g).map_err(|e| e.to_string())?;
    session.run(&init).map_err(|e| e.to_string())?;
    let mut initial = Vec::new();
    for (found, want) in session.run(&everything).map_err(|e| e.to_string())?.iter().zip(array(&case["initial"])) {
        initial.push(tensor(want));
        compare("initially", found, &tensor(want))?;
    }
    for (i, taken) in array(&case["steps"]).iter().enumerate() {
        let mut fed = Feeds::new();
        for (j, gradient) in array(&taken["gradients"]).iter().enumerate() {
            fed = match gradient.get("sparse") {
                Some(slices) => {
                    fed.with(&feeds[0], tensor(&slices["values"])).with(&feeds[1], tensor(&slices["indices"]))
                }
                None => fed.with(&feeds[j], tensor(gradient)),
            };
        }
        session.run_with(&train, fed).map_err(|e| format!("step {i}: {e}"))?;
        let found = session.run(&everything).map_err(|e| e.to_string())?;
        for (((found, want), name), start) in found.iter().zip(array(&taken["after"])).zip(&names).zip(&initial) {
            let want = of(start.dtype(), start.shape().clone(), &numbers(want));
            compare(&format!("{name} after step {i}"), found, &want)?;
        }
    }
    Ok(())
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn placeholder(g: &Graph, dtype: DType, shape: &[usize]) -> Output {
    let shape = Shape::from(shape);
    match dtype {
        DType::F64 => g.placeholder::<f64>(shape),
        _ => g.placeholder::<f32>(shape),
    }
}

fn optimizer(g: &Graph, case: &Value, step: &Variable) -> Box<dyn Optimizer> {
    let args = &case["args"];
    // Numbers that are not converted to the variable's type must be given in it.
    let exact = case["args_as"] == "double";
    let given = |name: &str| args.get(name).map(|v| v.as_f64().expect("a number"));
    let rate = |name: &str, default: f64| -> Rate {
        let value = given(name).unwrap_or(default);
        if exact { Rate::from(g.constant(value)) } else { Rate::from(value) }
    };
    let (l1, l2) = ("l1_regularization_strength", "l2_regularization_strength");
    match case["optimizer"].as_str().unwrap() {
        "GradientDescent" => Box::new(GradientDescent::new(rate("learning_rate", 0.0))),
        "Momentum" => {
            let momentum = Momentum::new(rate("learning_rate", 0.0), rate("momentum", 0.0));
            Box::new(if args["use_nesterov"] == true { momentum.nesterov() } else { momentum })
        }
        "Adagrad" => {
            let start = given("initial_accumulator_value").unwrap_or(0.1);
            Box::new(Adagrad::new(rate("learning_rate", 0.0)).initial_accumulator_value(start))
        }
        "AdagradDA" => Box::new(AdagradDA::new(rate("learning_rate", 0.0), step).l1(rate(l1, 0.0)).l2(rate(l2, 0.0))),
        "Adam" => {
            let mut adam = Adam::new(rate("learning_rate", 0.001)).epsilon(rate("epsilon", 1e-8));
            if let Some(beta1) = given("beta1") {
                adam = adam.beta1(beta1);
            }
            if let Some(beta2) = given("beta2") {
                adam = adam.beta2(beta2);
            }
            Box::new(adam)
        }
        "RMSProp" => {
            let rms = RMSProp::new(rate("learning_rate", 0.0)).decay(rate("decay", 0.9));
            let rms = rms.momentum(rate("momentum", 0.0)).epsilon(rate("epsilon", 1e-10));
            Box::new(if args["centered"] == true { rms.centered() } else { rms })
        }
        "Ftrl" => {
            let start = given("initial_accumulator_value").unwrap_or(0.1);
            let ftrl = Ftrl::new(rate("learning_rate", 0.0)).rate_power(rate("learning_rate_power", -0.5));
            let ftrl = ftrl.initial_accumulator_value(start).l1(rate(l1, 0.0)).l2(rate(l2, 0.0));
            let shrinkage = "l2_shrinkage_regularization_strength";
            Box::new(if given(shrinkage).is_some() { ftrl.l2_shrinkage(rate(shrinkage, 0.0)) } else { ftrl })
        }
        "Adadelta" => {
            let adadelta = Adadelta::new(rate("learning_rate", 0.001));
            Box::new(adadelta.rho(rate("rho", 0.95)).epsilon(rate("epsilon", 1e-8)))
        }
        "ProximalGradientDescent" => {
            let proximal = ProximalGradientDescent::new(rate("learning_rate", 0.0));
            Box::new(proximal.l1(rate(l1, 0.0)).l2(rate(l2, 0.0)))
        }
        "ProximalAdagrad" => {
            Box::new(ProximalAdagrad::new(rate("learning_rate", 0.0)).l1(rate(l1, 0.0)).l2(rate(l2, 0.0)))
        }
        other => panic!("there is no optimizer {other}"),
    }
}

#[test]
fn a_learning_rate_may_be_computed_and_steps_are_counted() {
    let g = Graph::new();
    let step = g.global_step();
    let w = g.variable("w", 0.0f32);
    let rate = schedules::piecewise_constant(&step, &[0], &[1.0, 0.5]);
    let train = GradientDescent::new(&rate).minimize(&(-&w)).increment(&step);
    assert_eq!(train.name(), "GradientDescent");
    let init = g.initialize_all();
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        session.run(&train).unwrap();
        seen.push(session.run(&w).unwrap().item::<f32>().unwrap());
    }
    assert_eq!(seen, [1.0, 1.5, 2.0]);
    assert_eq!(session.run(&step).unwrap().item::<i64>().unwrap(), 3);
}

#[test]
fn one_optimizer_keeps_one_set_of_slots() {
    let g = Graph::new();
    let w = g.variable("w", [1.0f32, 2.0]);
    let adam = Adam::new(0.1);
    adam.minimize(&w.square().sum());
    adam.minimize(&w.abs().sum());
    Adam::new(0.1).minimize(&w.sum());
    let names: Vec<String> = g.global_variables().iter().map(Variable::name).collect();
    assert_eq!(
        names,
        [
            "w",
            "beta1_power",
            "beta2_power",
            "w/Adam",
            "w/Adam_1",
            "beta1_power_1",
            "beta2_power_1",
            "w/Adam_2",
            "w/Adam_3"
        ]
    );
}

#[test]
fn only_the_variables_given_are_changed() {
    let g = Graph::new();
    let (a, b) = (g.variable("a", 1.0f32), g.variable("b", 1.0f32));
    let loss = (&a * &b).square();
    let train = GradientDescent::new(0.1).minimize_over(&loss, std::slice::from_ref(&b));
    let init = g.initialize_all();
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    session.run(&train).unwrap();
    let (a, b) = session.run((&a, &b)).unwrap();
    assert_eq!(a.item::<f32>().unwrap(), 1.0);
    assert!(b.item::<f32>().unwrap() < 1.0);
}
