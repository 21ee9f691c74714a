//! Initial values are TensorFlow's for the same seeds.

use crate::golden::{check_all, compare, dtype, shape, tensor};
use ferroflow::initializers::*;
use ferroflow::prelude::*;
use serde_json::Value;

#[test]
fn initial_values_are_tensorflows() {
    check_all("initializers.json", |case| {
        let g = Graph::new();
        let w = g.variable("w", initializer(case).dtype(dtype(&case["dtype"])));
        let session = Session::new(&g).map_err(|e| e.to_string())?;
        session.run(w.initializer()).map_err(|e| e.to_string())?;
        compare("value", &session.run(&w).map_err(|e| e.to_string())?, &tensor(&case["value"]))
    });
}

fn initializer(case: &Value) -> Initializer {
    let args = &case["args"];
    let number = |name: &str, default: f64| args.get(name).map_or(default, |v| v.as_f64().unwrap());
    let shape = shape(&case["shape"]);
    let rule = match case["initializer"].as_str().unwrap() {
        "zeros" => zeros(shape),
        "ones" => ones(shape),
        "constant" => constant(number("value", 0.0), shape),
        "random_uniform" => random_uniform(number("minval", -0.05), number("maxval", 0.05), shape),
        "random_normal" => random_normal(number("mean", 0.0), number("stddev", 1.0), shape),
        "truncated_normal" => truncated_normal(number("mean", 0.0), number("stddev", 1.0), shape),
        "glorot_uniform" => glorot_uniform(shape),
        "glorot_normal" => glorot_normal(shape),
        "he_normal" => he_normal(shape),
        "he_uniform" => he_uniform(shape),
        "lecun_normal" => lecun_normal(shape),
        "lecun_uniform" => lecun_uniform(shape),
        "variance_scaling" => {
            let fan = match args["mode"].as_str().unwrap() {
                "fan_in" => Fan::In,
                "fan_out" => Fan::Out,
                _ => Fan::Average,
            };
            let spread = match args["distribution"].as_str().unwrap() {
                "uniform" => Spread::Uniform,
                "untruncated_normal" => Spread::Normal,
                _ => Spread::TruncatedNormal,
            };
            variance_scaling(number("scale", 1.0), fan, spread, shape)
        }
        "orthogonal" => orthogonal(number("gain", 1.0), shape),
        other => panic!("there is no initializer {other}"),
    };
    match args.get("seed") {
        Some(seed) => rule.seed(seed.as_i64().unwrap()),
        None => rule,
    }
}

#[test]
fn large_values_are_filled_when_they_are_needed() {
    let g = Graph::new();
    let w = g.variable("w", zeros([100, 100]));
    assert_eq!(w.initial_value().name(), "w/Initializer/zeros");
    let def = g.to_graph_def().unwrap();
    assert!(def.node.iter().any(|n| n.name == "w/Initializer/zeros" && n.op == "Fill"), "{def:?}");
}
