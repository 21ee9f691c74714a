//! Exponential moving averages are TensorFlow's, under TensorFlow's names.

use crate::golden::{check_all, compare, dtype, of, tensor};
use ferroflow::prelude::*;
use serde_json::Value;

#[test]
fn averages_over_six_updates_are_tensorflows() {
    check_all("ema.json", |case| replay(case).map_err(|e| e.to_string())?);
}

fn replay(case: &Value) -> ferroflow::Result<Result<(), String>> {
    let g = Graph::new();
    let kind = case["of"].as_str().unwrap();
    g.use_resource_variables(kind == "resource");
    let args = &case["args"];
    let is_f64 = dtype(&case["dtype"]) == DType::F64;
    let updates = g.placeholder::<i64>(Shape::scalar());
    let x = if is_f64 { g.placeholder::<f64>([2]) } else { g.placeholder::<f32>([2]) };
    let mut average = ExponentialMovingAverage::new(args["decay"].as_f64().unwrap());
    if args.get("num_updates").is_some() {
        average = average.num_updates(&updates);
    }
    if args.get("zero_debias").is_some() {
        average = average.zero_debias();
    }
    let (update, shadow) = if kind == "tensor" {
        let source = x.named("loss");
        let update = average.apply_values(&[&source]);
        (update, average.average_of_value(&source).unwrap())
    } else {
        let source = g.variable("v", of(x.dtype(), Shape::from([2]), &[1.0, -1.0]));
        let put = source.assign(&x);
        let update = g.control_dependencies(&[&put], || average.apply(&[&source]));
        let shadow = average.average(&source).unwrap();
        assert_eq!(shadow.name(), case["average_name"].as_str().unwrap());
        (update, shadow)
    };
    let everything = g.global_variables();
    let names: Vec<String> = everything.iter().map(Variable::name).collect();
    assert_eq!(Value::from(names), case["names"]);
    let init = g.initialize_all();
    let session = Session::new(&g)?;
    session.run(&init)?;
    let all_match = |what: &str, want: &Value| -> ferroflow::Result<Result<(), String>> {
        let found = session.run(&everything)?;
        Ok(found.iter().zip(want.as_array().unwrap()).try_for_each(|(f, w)| compare(what, f, &tensor(w))))
    };
    let mut result = all_match("initially", &case["initial"])?;
    for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        session.run_with(&update, feed! { x => tensor(&step["value"]), updates => i as i64 })?;
        result = result.and(all_match(&format!("after update {i}"), &step["after"])?);
        result = result.and(compare("average", &session.run(&shadow)?, &tensor(&step["average"])));
    }
    Ok(result)
}
