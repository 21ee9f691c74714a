//! Learning rates at many steps are TensorFlow's.

use crate::golden::{check_all, compare, numbers, of};
use ferroflow::prelude::*;
use ferroflow::schedules::*;
use serde_json::Value;

#[test]
fn rates_at_many_steps_are_tensorflows() {
    check_all("schedules.json", |case| {
        let g = Graph::new();
        let is_i32 = case["step_dtype"] == "int32";
        let step = if is_i32 { g.placeholder::<i32>(Shape::scalar()) } else { g.placeholder::<i64>(Shape::scalar()) };
        let rate = schedule(case, &step);
        let session = Session::new(&g).map_err(|e| e.to_string())?;
        for (at, want) in numbers(&case["steps"]).into_iter().zip(numbers(&case["values"])) {
            let fed = of(step.dtype(), Shape::scalar(), &[at]);
            let found = session.run_with(&rate, feed! { step => fed }).map_err(|e| e.to_string())?;
            compare(&format!("step {at}"), &found, &of(DType::F32, Shape::scalar(), &[want]))?;
        }
        Ok(())
    });
}

fn schedule(case: &Value, step: &Output) -> Output {
    let args = &case["args"];
    let number = |name: &str, default: f64| args.get(name).map_or(default, |v| v.as_f64().unwrap());
    let rate = number("learning_rate", 0.0);
    let steps = number("decay_steps", 0.0) as i64;
    let decay = number("decay_rate", 0.0);
    let alpha = number("alpha", 0.0);
    let staircase = args["staircase"] == true;
    match case["schedule"].as_str().unwrap() {
        "exponential_decay" if staircase => exponential_decay_staircase(rate, step, steps, decay),
        "exponential_decay" => exponential_decay(rate, step, steps, decay),
        "natural_exp_decay" if staircase => natural_exp_decay_staircase(rate, step, steps, decay),
        "natural_exp_decay" => natural_exp_decay(rate, step, steps, decay),
        "inverse_time_decay" if staircase => inverse_time_decay_staircase(rate, step, steps, decay),
        "inverse_time_decay" => inverse_time_decay(rate, step, steps, decay),
        "piecewise_constant" => {
            let boundaries: Vec<i64> = numbers(&args["boundaries"]).into_iter().map(|b| b as i64).collect();
            piecewise_constant(step, &boundaries, &numbers(&args["values"]))
        }
        "polynomial_decay" => {
            let end = number("end_learning_rate", 0.0001);
            let how = Polynomial { end, power: number("power", 1.0), cycle: args["cycle"] == true };
            polynomial_decay(rate, step, steps, how)
        }
        "cosine_decay" => cosine_decay(rate, step, steps, alpha),
        "cosine_decay_restarts" => {
            let how = Restarts { longer: number("t_mul", 2.0), lower: number("m_mul", 1.0), alpha };
            cosine_decay_restarts(rate, step, number("first_decay_steps", 0.0) as i64, how)
        }
        "linear_cosine_decay" => {
            let how = LinearCosine { periods: number("num_periods", 0.5), alpha, beta: number("beta", 0.001) };
            linear_cosine_decay(rate, step, steps, how)
        }
        other => panic!("there is no schedule {other}"),
    }
}
