//! Every op of the first two tiers is there, is defined as TensorFlow defines it, and is tested on each of its types.

use crate::golden::{FILES, registry};
use crate::support::json::{self, list, text};
use framework::Attr;
use framework::op::{Arg, ArgType, AttrDef, Differentiation, Op};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The highest tier that must be complete.
const TIER: u64 = 1;

/// Pairs of op and type that TensorFlow lists but gives no values for: its kernel fails (`Where`, `GatherNd`,
/// `ScatterUpdate`), nothing can write such elements (`TensorArrayGatherV3`), or they have no portable form.
const WITHOUT_VALUES: &[(&str, &[&str])] = &[
    ("Const", &["variant"]),
    ("GatherNd", &["resource", "variant"]),
    ("ScatterUpdate", &["resource", "variant"]),
    ("TensorArrayGatherV3", &["qint32", "qint8", "quint8"]),
    ("TensorSummaryV2", &["resource", "variant"]),
    ("Tile", &["uint16"]),
    ("Where", &["half"]),
];

fn definitions() -> Vec<Value> {
    let defs = json::read("opdefs.json");
    list(&defs, "ops").to_vec()
}

fn report(what: &str, lines: Vec<String>) {
    lines.iter().for_each(|line| println!("{line}"));
    assert!(lines.is_empty(), "{} ops {what}:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn every_op_of_the_first_tiers_is_registered() {
    let registry = registry();
    let missing =
        definitions().into_iter().filter(|d| d["tier"].as_u64() <= Some(TIER)).map(|d| text(&d, "name").to_string());
    report("are missing", missing.filter(|name| registry.get(name).is_none()).collect());
}

#[test]
fn every_registered_op_is_defined_as_in_tensorflow() {
    let registry = registry();
    let mut wrong = Vec::new();
    for wanted in definitions() {
        let Some(op) = registry.get(text(&wanted, "name")) else { continue };
        let found = describe(op);
        for key in [
            "inputs",
            "outputs",
            "attrs",
            "is_stateful",
            "is_commutative",
            "is_aggregate",
            "allows_uninitialized_input",
        ] {
            let (found, wanted) = (normal(key, &found[key]), normal(key, &wanted[key]));
            if found != wanted {
                wrong.push(format!("{}: {key}\n  wanted {wanted}\n  found  {found}", op.name));
            }
        }
        let gradient = match op.gradient {
            Differentiation::By(_) => "yes",
            Differentiation::Zero => "none (NotDifferentiable)",
            Differentiation::Missing => "unregistered",
        };
        // TensorFlow defines more gradients than the tiers ask for; having one it lacks, or lacking one it has, is wrong.
        if wanted["tier"].as_u64() <= Some(TIER) && wanted["gradient"] != gradient {
            wrong.push(format!("{}: gradient wanted {}, found \"{gradient}\"", op.name, wanted["gradient"]));
        }
    }
    report("are defined otherwise", wrong);
}

#[test]
fn every_type_of_every_op_has_a_case() {
    let mut seen: BTreeSet<(String, String, String)> = BTreeSet::new();
    let mut note = |op: &str, attrs: &Value| {
        for (name, value) in attrs.as_object().into_iter().flatten() {
            if let Some(dtype) = value["type"].as_str() {
                seen.insert((op.into(), name.clone(), dtype.into()));
            }
        }
        seen.insert((op.into(), String::new(), String::new()));
    };
    for case in FILES.iter().flat_map(|f| json::cases(f)) {
        for node in list(&case, "graph") {
            note(text(node, "op"), &node["attrs"]);
        }
        if case.get("outputs").is_some() {
            note(text(&case, "op"), &case["attrs"]);
        }
        for input in list(&case, "inputs") {
            // A variable is declared, assigned and read around the node under test.
            for (kind, around) in [
                ("ref", &[("VariableV2", "dtype"), ("Assign", "T")][..]),
                (
                    "resource_variable",
                    &[("VarHandleOp", "dtype"), ("AssignVariableOp", "dtype"), ("ReadVariableOp", "dtype")],
                ),
            ] {
                for (op, attr) in around.iter().filter(|_| input.get(kind).is_some()) {
                    note(op, &json!({*attr: {"type": input[kind]["dtype"]}}));
                }
            }
            // Plain inputs are constants, and feeds.
            for op in ["Const", "Placeholder"].iter().filter(|_| input.get("dtype").is_some()) {
                note(op, &json!({"dtype": {"type": input["dtype"]}}));
            }
        }
    }
    let mut missing = Vec::new();
    for op in definitions().iter().filter(|d| d["tier"].as_u64() <= Some(TIER)) {
        let name = text(op, "name");
        // Sends and receives need two devices; the tests of the executor and of the cluster have them.
        if ["_Send", "_Recv", "_HostSend", "_HostRecv"].contains(&name) {
            continue;
        }
        if !seen.contains(&(name.into(), String::new(), String::new())) {
            missing.push(format!("{name}: no case at all"));
        }
        for (attr, types) in op["cpu_kernel_types"].as_object().into_iter().flatten() {
            let allowed =
                list(op, "attrs").iter().find(|a| a["name"] == attr.as_str()).and_then(|a| a["allowed"].as_array());
            let wanted = types.as_array().into_iter().flatten().filter(|t| allowed.is_none_or(|a| a.contains(t)));
            let absent: Vec<&str> = wanted
                .filter_map(Value::as_str)
                .filter(|t| !WITHOUT_VALUES.iter().any(|(op, types)| *op == name && types.contains(t)))
                .filter(|t| !seen.contains(&(name.into(), attr.clone(), t.to_string())))
                .collect();
            if !absent.is_empty() {
                missing.push(format!("{name}: no case with {attr} = {}", absent.join(", ")));
            }
        }
    }
    report("lack cases", missing);
}

/// An op in the form of the data file.
fn describe(op: &Op) -> Value {
    json!({
        "inputs": op.inputs.iter().map(describe_arg).collect::<Vec<_>>(),
        "outputs": op.outputs.iter().map(describe_arg).collect::<Vec<_>>(),
        "attrs": op.attrs.iter().map(describe_attr).collect::<Vec<_>>(),
        "is_stateful": op.is_stateful,
        "is_commutative": op.is_commutative,
        "is_aggregate": op.is_aggregate,
        "allows_uninitialized_input": op.allows_uninitialized_input,
    })
}

fn describe_arg(arg: &Arg) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(arg.name));
    match &arg.ty {
        ArgType::Fixed(dtype) => out.insert("type".into(), json!(dtype.name())),
        ArgType::Attr(name) => out.insert("type_attr".into(), json!(name)),
        ArgType::List(name) => out.insert("type_list_attr".into(), json!(name)),
    };
    if let Some(number) = &arg.number {
        out.insert("number_attr".into(), json!(number));
    }
    if arg.is_ref {
        out.insert("is_ref".into(), json!(true));
    }
    Value::Object(out)
}

fn describe_attr(def: &AttrDef) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(def.name));
    out.insert("type".into(), json!(def.kind));
    if let Some(default) = &def.default {
        out.insert("default".into(), describe_value(default));
    }
    if let Some(types) = &def.allowed_types {
        out.insert("allowed".into(), json!(types.iter().map(|t| t.name()).collect::<Vec<_>>()));
    }
    if let Some(strings) = &def.allowed_strings {
        out.insert("allowed".into(), json!(strings));
    }
    if let Some(minimum) = def.minimum {
        out.insert("minimum".into(), json!(minimum));
    }
    Value::Object(out)
}

fn describe_value(value: &Attr) -> Value {
    let shape = |s: &tensor::PartialShape| match s.dims() {
        None => json!("unknown"),
        Some(dims) => json!(dims.iter().map(|d| d.map_or(-1, |d| d as i64)).collect::<Vec<_>>()),
    };
    match value {
        Attr::String(s) => json!(String::from_utf8_lossy(s)),
        Attr::Int(i) => json!(i),
        Attr::Float(f) => json!(f),
        Attr::Bool(b) => json!(b),
        Attr::Type(t) => json!(t.name()),
        Attr::Shape(s) => shape(s),
        Attr::EmptyList => json!([]),
        Attr::Strings(v) => json!(v.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect::<Vec<_>>()),
        Attr::Ints(v) => json!(v),
        Attr::Floats(v) => json!(v),
        Attr::Bools(v) => json!(v),
        Attr::Types(v) => json!(v.iter().map(|t| t.name()).collect::<Vec<_>>()),
        Attr::Shapes(v) => json!(v.iter().map(shape).collect::<Vec<_>>()),
        other => json!(other.to_string()),
    }
}

/// The same meaning in one form: attributes and sets of types sorted, floats to single precision, absent as false.
fn normal(key: &str, value: &Value) -> Value {
    let mut value = value.clone();
    match &mut value {
        Value::Null => json!(false),
        Value::Array(items) if key == "attrs" => {
            items.sort_by_key(|a| text(a, "name").to_string());
            items.iter_mut().for_each(normalize_attr);
            value
        }
        _ => value,
    }
}

fn normalize_attr(attr: &mut Value) {
    if let Some(Value::Array(allowed)) = attr.get_mut("allowed") {
        allowed.sort_by_key(Value::to_string);
    }
    if attr["default"].is_f64() {
        attr["default"] = json!(attr["default"].as_f64().unwrap_or_default() as f32);
    }
    if attr["type"] == "tensor" && attr.get("default").is_some() {
        attr["default"] = json!("<tensor>");
    }
}
