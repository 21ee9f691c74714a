//! Ten steps of each optimizer as TensorFlow took them (`testdata/training/optimizers.json`), by the ops alone.
//!
//! What TensorFlow's Python does around the ops (summing rows that are named twice, decaying Adam's powers) is done
//! here by hand; sparse gradient descent and sparse Adam are made of other ops and are not replayed.

use crate::state::testing::Bench;
use crate::state::{assign, assign_variable, read_variable, var_handle, variable};
use framework::scope::scalar_of;
use framework::{NodeId, Output};
use serde_json::Value;
use std::collections::HashMap;
use tensor::{DType, Shape, Tensor};

#[test]
fn ten_steps_reproduce_variables_and_slots() {
    let text = include_str!("../../../../testdata/training/optimizers.json");
    let data: Value = serde_json::from_str(text).unwrap();
    let mut failures = Vec::new();
    let mut replayed = 0;
    for case in data["cases"].as_array().unwrap() {
        let optimizer = case["optimizer"].as_str().unwrap();
        if case["sparse"] == true && ["GradientDescent", "Adam"].contains(&optimizer) {
            continue;
        }
        for kind in case["variables"].as_array().unwrap() {
            replayed += 1;
            if let Err(difference) = replay(case, kind == "resource") {
                failures.push(format!("{} on {kind} variables: {difference}", case["name"]));
            }
        }
    }
    assert!(replayed > 150, "only {replayed} runs were found");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

struct Run<'a> {
    bench: Bench,
    case: &'a Value,
    dtype: DType,
    is_resource: bool,
    variables: HashMap<String, Output>,
}

fn replay(case: &Value, is_resource: bool) -> Result<(), String> {
    let dtype = DType::parse(case["dtype"].as_str().unwrap()).unwrap();
    let mut run = Run { bench: Bench::new(), case, dtype, is_resource, variables: HashMap::new() };
    let names: Vec<&str> = case["names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    for (name, initial) in names.iter().zip(case["initial"].as_array().unwrap()) {
        run.make(name, &tensor(initial));
    }
    let trained: Vec<(NodeId, Vec<(String, Output)>)> =
        case["trained"].as_array().unwrap().iter().map(|name| run.op(name.as_str().unwrap())).collect();
    let mut before: Vec<Vec<f64>> = case["initial"].as_array().unwrap().iter().map(|t| numbers(&t["values"])).collect();
    for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        for ((op, inputs), gradient) in trained.iter().zip(step["gradients"].as_array().unwrap()) {
            let feeds: Vec<(Output, Tensor)> = inputs
                .iter()
                .map(|(name, input)| (*input, run.input(name, gradient, number, &names, &before)))
                .collect();
            run.bench.run_fed(*op, &feeds).map_err(|e| e.to_string())?;
        }
        for (i, name) in names.iter().enumerate() {
            let want = numbers(&step["after"][i]);
            // The step and Adam's powers are counted by Python.
            if !["global_step", "beta1_power", "beta2_power"].contains(name) {
                run.compare(name, &want).map_err(|e| format!("step {number}: {e}"))?;
            }
            before[i] = want;
        }
    }
    Ok(())
}

impl Run<'_> {
    fn make(&mut self, name: &str, initial: &Tensor) {
        let s = &self.bench.s;
        let (dtype, shape) = (initial.dtype(), initial.shape().clone());
        let value = s.constant(initial).unwrap();
        let output = if self.is_resource {
            let handle = var_handle(s, name, dtype, shape).unwrap();
            self.bench.run(assign_variable(s, handle, value).unwrap()).unwrap();
            handle
        } else {
            let made = variable(s, name, dtype, shape).unwrap();
            self.bench.fetch(assign(s, made, value).unwrap()).unwrap();
            made
        };
        self.variables.insert(name.to_string(), output);
    }

    fn arg(&self, name: &str, default: f64) -> f64 {
        let value = self.case["args"].get(name).map_or(default, |v| v.as_f64().unwrap());
        if self.case["args_as"] == "float" { f64::from(value as f32) } else { value }
    }

    /// The node that trains a variable, and its inputs besides variables, by name.
    fn op(&self, trained: &str) -> (NodeId, Vec<(String, Output)>) {
        let (s, case) = (&self.bench.s, self.case);
        let (name, slots): (&str, &[&str]) = match case["optimizer"].as_str().unwrap() {
            "Momentum" => ("Momentum", &["momentum"]),
            "Adagrad" => ("Adagrad", &["accumulator"]),
            "AdagradDA" => ("AdagradDA", &["gradient_accumulator", "gradient_squared_accumulator"]),
            "Adam" => ("Adam", &["m", "v"]),
            "RMSProp" if case["args"]["centered"] == true => ("CenteredRMSProp", &["mg", "rms", "momentum"]),
            "RMSProp" => ("RMSProp", &["rms", "momentum"]),
            "Ftrl" if case["args"].get("l2_shrinkage_regularization_strength").is_some() => {
                ("FtrlV2", &["accum", "linear"])
            }
            "Ftrl" => ("Ftrl", &["accum", "linear"]),
            "Adadelta" => ("Adadelta", &["accum", "accum_update"]),
            "ProximalAdagrad" => ("ProximalAdagrad", &["accumulator"]),
            other => (other, &[]),
        };
        let resource = if self.is_resource { "Resource" } else { "" };
        let sparse = if case["sparse"] == true { "Sparse" } else { "" };
        let op = format!("{resource}{sparse}Apply{name}");
        let mut node = s.node(&op).input(self.variables[trained]);
        for slot in slots {
            node = node.input(self.variables[case["slots"][trained][slot].as_str().unwrap()]);
        }
        let definition = s.registry().lookup(&op).unwrap().clone();
        let mut inputs = Vec::new();
        for input in &definition.inputs[1 + slots.len()..] {
            let dtype = if ["indices", "global_step"].contains(&input.name.as_str()) { DType::I64 } else { self.dtype };
            let placeholder = s.node("Placeholder").attr("dtype", dtype).output().unwrap();
            node = node.input(placeholder);
            inputs.push((input.name.clone(), placeholder));
        }
        if case["args"]["use_nesterov"] == true {
            node = node.attr("use_nesterov", true);
        }
        (node.build().unwrap(), inputs)
    }

    fn input(&self, name: &str, gradient: &Value, number: usize, names: &[&str], before: &[Vec<f64>]) -> Tensor {
        let setting = |value: f64| scalar_of(self.dtype, value).unwrap();
        match name {
            "grad" | "delta" if self.case["sparse"] == true => summed(&gradient["sparse"]).0,
            "grad" | "delta" => tensor(gradient),
            "indices" => summed(&gradient["sparse"]).1,
            "global_step" => (number as i64 + 1).into(),
            "beta1_power" | "beta2_power" => {
                let at = names.iter().position(|n| *n == name).unwrap();
                let is_single = self.case["initial"][at]["dtype"] == "float";
                setting(if is_single { f64::from(before[at][0] as f32) } else { before[at][0] })
            }
            "lr" | "alpha" => setting(self.arg("learning_rate", 0.001)),
            "momentum" => setting(self.arg("momentum", 0.0)),
            "beta1" => setting(self.arg("beta1", 0.9)),
            "beta2" => setting(self.arg("beta2", 0.999)),
            "rho" if self.case["optimizer"] == "RMSProp" => setting(self.arg("decay", 0.9)),
            "rho" => setting(self.arg("rho", 0.95)),
            "epsilon" if self.case["optimizer"] == "RMSProp" => setting(self.arg("epsilon", 1e-10)),
            "epsilon" => setting(self.arg("epsilon", 1e-8)),
            "l1" => setting(self.arg("l1_regularization_strength", self.arg("l1", 0.0))),
            "l2" => setting(self.arg("l2_regularization_strength", self.arg("l2", 0.0))),
            "l2_shrinkage" => setting(self.arg("l2_shrinkage_regularization_strength", 0.0)),
            "lr_power" => setting(self.arg("learning_rate_power", -0.5)),
            other => panic!("no value for {other}"),
        }
    }

    fn compare(&self, name: &str, want: &[f64]) -> Result<(), String> {
        let s = &self.bench.s;
        let variable = self.variables[name];
        let read = if self.is_resource { read_variable(s, variable, self.dtype).unwrap() } else { variable };
        let found = floats(&self.bench.fetch(read).unwrap());
        let tolerance = if self.dtype == DType::F32 { 1e-5 } else { 1e-12 };
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * b.abs().max(1e-2);
        if found.len() == want.len() && found.iter().zip(want).all(close) {
            return Ok(());
        }
        Err(format!("{name} is {found:?}, wanted {want:?}"))
    }
}

/// Rows that are named twice are added up, in the order in which they are first named.
fn summed(sparse: &Value) -> (Tensor, Tensor) {
    let values = tensor(&sparse["values"]);
    let row: usize = values.dims()[1..].iter().product();
    let (mut indices, mut rows): (Vec<i64>, Vec<Vec<f64>>) = Default::default();
    for (index, value) in numbers(&sparse["indices"]["values"]).iter().zip(floats(&values).chunks(row)) {
        match indices.iter().position(|i| *i == *index as i64) {
            Some(at) => rows[at].iter_mut().zip(value).for_each(|(sum, v)| *sum += v),
            None => {
                indices.push(*index as i64);
                rows.push(value.to_vec());
            }
        }
    }
    let dims: Vec<usize> = [&[rows.len()], &values.dims()[1..]].concat();
    (build(values.dtype(), dims.into(), &rows.concat()), indices.into())
}

fn tensor(v: &Value) -> Tensor {
    let shape: Shape = numbers(&v["shape"]).iter().map(|d| *d as usize).collect();
    build(DType::parse(v["dtype"].as_str().unwrap()).unwrap(), shape, &numbers(&v["values"]))
}

fn build(dtype: DType, shape: Shape, values: &[f64]) -> Tensor {
    match dtype {
        DType::F32 => Tensor::from_vec(shape, values.iter().map(|v| *v as f32).collect()),
        DType::F64 => Tensor::from_vec(shape, values.to_vec()),
        _ => Tensor::from_vec(shape, values.iter().map(|v| *v as i64).collect()),
    }
    .unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().unwrap().iter().map(|v| f64::from(*v)).collect(),
        _ => tensor.as_slice::<f64>().unwrap().to_vec(),
    }
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
}
