//! The MNIST network of fixed initial values: losses and weights of five steps are TensorFlow's.

use crate::golden::{check_all, compare, of, tensor};
use ferroflow::prelude::*;

/// Numbers any language makes alike.
fn saw(count: usize, a: i64, c: i64, m: i64) -> Vec<f64> {
    (0..count as i64).map(|i| ((i * a + c) % m) as f64 / m as f64 - 0.5).collect()
}

#[test]
fn five_steps_of_the_mnist_network_are_tensorflows() {
    check_all("mlp.json", |case| {
        let (hidden, batch) = (case["hidden"].as_u64().unwrap() as usize, case["batch"].as_u64().unwrap() as usize);
        let floats = |shape: [usize; 2], values: Vec<f64>| of(DType::F32, Shape::from(shape), &values);
        let g = Graph::new();
        g.use_resource_variables(case["variables"] == "resource");
        let step = g.variable_with("global_step", 0i32, VariableOptions { trainable: false, ..Default::default() });
        let scaled = |values: Vec<f64>, by: f64| values.into_iter().map(|v| v * 2.0 / by).collect();
        let hid_w = g.variable("hid_w", floats([784, hidden], scaled(saw(784 * hidden, 7919, 13, 10007), 28.0)));
        let hid_b = g.variable("hid_b", initializers::zeros([hidden]));
        let sm_w = g.variable("sm_w", floats([hidden, 10], scaled(saw(hidden * 10, 104729, 29, 1009), 10.0)));
        let sm_b = g.variable("sm_b", initializers::zeros([10]));
        let x = g.placeholder::<f32>([None, Some(784)]);
        let labels = g.placeholder::<f32>([None, Some(10)]);
        let hid = x.matmul(&hid_w).bias_add(&hid_b).relu();
        let y = hid.matmul(&sm_w).bias_add(&sm_b).softmax();
        let loss = -(&labels * y.clip_by_value(1e-10, 1.0).log()).sum();
        let train = Adam::new(case["learning_rate"].as_f64().unwrap()).minimize(&loss).increment(&step);
        let init = g.initialize_all();
        let session = Session::new(&g).map_err(|e| e.to_string())?;
        session.run(&init).map_err(|e| e.to_string())?;
        for (s, want) in case["steps"].as_array().unwrap().iter().enumerate() {
            let images = saw(batch * 784, 31337, 1000 * s as i64 + 7, 65537).into_iter().map(|v| v + 0.5).collect();
            let mut digits = vec![0.0; batch * 10];
            (0..batch).for_each(|r| digits[r * 10 + (r * 7 + s) % 10] = 1.0);
            let feeds = feed! { x => floats([batch, 784], images), labels => floats([batch, 10], digits) };
            let (found, ()) = session.run_with((&loss, &train), feeds).map_err(|e| e.to_string())?;
            let wanted = want["loss"].as_f64().unwrap();
            let found = f64::from(found.item::<f32>().map_err(|e| e.to_string())?);
            if (found - wanted).abs() > 2e-4 * wanted {
                return Err(format!("the loss at step {s} is {found}, wanted {wanted}"));
            }
            // Sums of 784 products in another order differ in the last digits, and Adam divides by small numbers.
            let near = |what: &str, found: &Tensor, want: &Tensor| {
                let (found, want) = (crate::golden::as_f64(found), crate::golden::as_f64(want));
                let far = found.iter().zip(&want).find(|(f, w)| (*f - *w).abs() > 2e-4 + 2e-3 * w.abs());
                far.map_or(Ok(()), |(f, w)| Err(format!("{what} at step {s}: {f}, wanted {w}")))
            };
            let biases = session.run(&sm_b).map_err(|e| e.to_string())?;
            near("sm_b", &biases, &tensor(&want["sm_b"]))?;
        }
        compare("steps", &session.run(&step).map_err(|e| e.to_string())?, &Tensor::from(5i32))
    });
}
