//! Clipped values, and the gradients of clipping, are TensorFlow's.

use crate::golden::{check_all, compare, tensor};
use ferroflow::prelude::*;
use ferroflow::{
    clip_by_average_norm, clip_by_global_norm, clip_by_norm, clip_by_norm_axes, global_norm, gradients_from,
};
use serde_json::Value;

#[test]
fn clipping_and_its_gradients_are_tensorflows() {
    check_all("clip.json", |case| {
        let g = Graph::new();
        let list = |value: &Value| -> Vec<Tensor> { value.as_array().unwrap().iter().map(tensor).collect() };
        let inputs: Vec<Output> = list(&case["inputs"]).into_iter().map(|x| g.constant(x)).collect();
        let outputs = clipped(case, &inputs);
        let dy: Vec<Output> = list(&case["grad"]["dy"]).into_iter().map(|y| g.constant(y)).collect();
        let (ys, xs): (Vec<&Output>, Vec<&Output>) = (outputs.iter().collect(), inputs.iter().collect());
        let dy: Vec<Option<&Output>> = dy.iter().map(Some).collect();
        let dx = gradients_from(&ys, &xs, &dy, &[]);
        let session = Session::new(&g).map_err(|e| e.to_string())?;
        for (found, want) in session.run(&outputs).map_err(|e| e.to_string())?.iter().zip(list(&case["outputs"])) {
            compare("value", found, &want)?;
        }
        for (found, want) in dx.into_iter().zip(case["grad"]["dx"].as_array().unwrap()) {
            let found = session.run(found.ok_or("no gradient")?.dense()).map_err(|e| e.to_string())?;
            compare("gradient", &found, &tensor(want))?;
        }
        Ok(())
    });
}

fn clipped(case: &Value, inputs: &[Output]) -> Vec<Output> {
    let args = &case["args"];
    let number = |name: &str| args[name].as_f64().unwrap();
    let gradients: Vec<Gradient> = inputs.iter().map(Gradient::from).collect();
    let x = &inputs[0];
    match case["clip"].as_str().unwrap() {
        "clip_by_value" => vec![x.clip_by_value(number("min"), number("max"))],
        "clip_by_norm" => match args.get("axes") {
            Some(axes) => {
                let axes: Vec<i32> = axes.as_array().unwrap().iter().map(|a| a.as_i64().unwrap() as i32).collect();
                vec![clip_by_norm_axes(x, number("norm"), &axes)]
            }
            None => vec![clip_by_norm(x, number("norm"))],
        },
        "clip_by_average_norm" => vec![clip_by_average_norm(x, number("norm"))],
        "clip_by_global_norm" => {
            let (clipped, norm) = clip_by_global_norm(&gradients, number("norm"));
            clipped.into_iter().map(|gradient| gradient.dense()).chain([norm]).collect()
        }
        "global_norm" => vec![global_norm(&gradients)],
        other => panic!("there is no clipping {other}"),
    }
}

#[test]
fn rows_are_clipped_as_rows() {
    let g = Graph::new();
    let table = g.constant([[1.0f32], [2.0], [3.0]]);
    let ids = g.constant([0i32, 2]);
    let gradient = gradients(&[&(table.gather(&ids) * 10.0)], &[&table]).remove(0).unwrap();
    let clipped = gradient.clip_by_value(-1.0, 1.0);
    assert!(matches!(clipped, Gradient::Sparse(_)));
    let found = Session::new(&g).unwrap().run(clipped.dense()).unwrap();
    assert_eq!(found, Tensor::from([[1.0f32], [0.0], [1.0]]));
}
