//! Functions: carried along with the graph, without loss.

use super::Node;
use crate::attr::{Attr, Attrs};
use crate::op::Op;
use crate::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::{DType, Result, dtype_from_proto, invalid};

/// A function's name with attributes for it.
#[derive(Clone, Debug, PartialEq)]
pub struct NameAttrList {
    /// The function.
    pub name: String,
    /// Its attributes.
    pub attrs: Attrs,
}

impl NameAttrList {
    /// From its message.
    pub fn from_proto(message: &proto::NameAttrList) -> Result<NameAttrList> {
        let attrs = message.attr.iter().map(|(k, v)| Ok((k.clone(), Attr::from_proto(v)?))).collect::<Result<_>>()?;
        Ok(NameAttrList { name: message.name.clone(), attrs })
    }

    /// To its message.
    pub fn to_proto(&self) -> proto::NameAttrList {
        proto::NameAttrList {
            name: self.name.clone(),
            attr: self.attrs.iter().map(|(k, v)| (k.clone(), v.to_proto())).collect(),
        }
    }
}

/// The functions that nodes of a graph may call.
#[derive(Clone, Debug, Default)]
pub struct FunctionLibrary {
    message: Arc<proto::FunctionDefLibrary>,
    ops: BTreeMap<String, Arc<Op>>,
    /// The ops that the functions' bodies are made of.
    registry: Registry,
}

impl FunctionLibrary {
    /// From its message: each function's signature becomes an op that nodes can name.
    pub fn from_proto(message: &proto::FunctionDefLibrary) -> Result<FunctionLibrary> {
        let mut ops = BTreeMap::new();
        for function in &message.function {
            let signature =
                function.signature.as_ref().ok_or_else(|| invalid!("a function of the library has no signature"))?;
            ops.insert(signature.name.clone(), Arc::new(signature_op(signature)?));
        }
        Ok(FunctionLibrary { message: Arc::new(message.clone()), ops, registry: Registry::default() })
    }

    /// Says which ops the functions' bodies are made of: what [`instantiate`](Self::instantiate) looks them up in.
    pub fn set_registry(&mut self, registry: &Registry) {
        self.registry = registry.clone();
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// To its message.
    pub fn to_proto(&self) -> proto::FunctionDefLibrary {
        (*self.message).clone()
    }

    /// The op that a function's signature makes.
    pub fn op(&self, name: &str) -> Option<&Arc<Op>> {
        self.ops.get(name)
    }

    /// A function's definition.
    pub fn function(&self, name: &str) -> Option<&proto::FunctionDef> {
        self.message.function.iter().find(|f| f.signature.as_ref().is_some_and(|s| s.name == name))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.message.function.is_empty() && self.message.gradient.is_empty()
    }

    /// The functions that these nodes call, and those that these call in turn.
    pub fn reachable_from<'a>(&self, nodes: impl Iterator<Item = &'a Node>) -> FunctionLibrary {
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        let mut todo: Vec<String> = Vec::new();
        for node in nodes {
            todo.push(node.op.name.clone());
            node.attrs.values().for_each(|attr| called_in_attr(attr, &mut todo));
        }
        while let Some(name) = todo.pop() {
            let Some(function) = self.function(&name) else { continue };
            let gradients = self.message.gradient.iter().filter(|g| g.function_name == name);
            todo.extend(gradients.map(|g| g.gradient_func.clone()));
            if wanted.insert(name) {
                for node in &function.node_def {
                    todo.push(node.op.clone());
                    node.attr.values().for_each(|attr| called_in_message(attr, &mut todo));
                }
            }
        }
        let message = proto::FunctionDefLibrary {
            function: self.message.function.iter().filter(|f| wanted.contains(function_name(f))).cloned().collect(),
            gradient: self.message.gradient.iter().filter(|g| wanted.contains(&g.function_name)).cloned().collect(),
            ..(*self.message).clone()
        };
        let ops = self.ops.iter().filter(|(name, _)| wanted.contains(*name));
        let ops = ops.map(|(k, v)| (k.clone(), v.clone())).collect();
        FunctionLibrary { message: Arc::new(message), ops, registry: self.registry.clone() }
    }

    /// Adds another library's functions; one of the same name must be the same.
    pub fn extend(&mut self, other: &FunctionLibrary) -> Result<()> {
        let mut message = (*self.message).clone();
        for function in &other.message.function {
            let name = function.signature.as_ref().map_or("", |s| s.name.as_str());
            match self.function(name) {
                Some(existing) if existing != function => {
                    return Err(invalid!(
                        "Cannot add function '{name}': a different function of that name is already in the library"
                    ));
                }
                Some(_) => {}
                None => message.function.push(function.clone()),
            }
        }
        for gradient in &other.message.gradient {
            if !message.gradient.contains(gradient) {
                message.gradient.push(gradient.clone());
            }
        }
        self.message = Arc::new(message);
        self.ops.extend(other.ops.iter().map(|(k, v)| (k.clone(), v.clone())));
        Ok(())
    }
}

fn function_name(function: &proto::FunctionDef) -> &str {
    function.signature.as_ref().map_or("", |s| s.name.as_str())
}

fn called_in_attr(attr: &Attr, names: &mut Vec<String>) {
    let lists = match attr {
        Attr::Function(f) => std::slice::from_ref(f),
        Attr::Functions(list) => list,
        _ => &[],
    };
    for f in lists {
        names.push(f.name.clone());
        f.attrs.values().for_each(|a| called_in_attr(a, names));
    }
}

fn called_in_message(attr: &proto::AttrValue, names: &mut Vec<String>) {
    use proto::attr_value::Value;
    let list = match &attr.value {
        Some(Value::Func(f)) => std::slice::from_ref(f),
        Some(Value::List(list)) => &list.func,
        _ => &[],
    };
    for f in list {
        names.push(f.name.clone());
        f.attr.values().for_each(|a| called_in_message(a, names));
    }
}

/// A function's signature as an op without kernel.
fn signature_op(signature: &proto::OpDef) -> Result<Op> {
    let names = signature.attr.iter().map(|a| &a.name);
    let names = names.chain(signature.input_arg.iter().chain(&signature.output_arg).map(|a| &a.name));
    for name in names {
        // What separates a name from a type in a definition cannot be part of the name.
        if name.is_empty() || name.contains([':', '*', '(', ')', '{', '}', '=']) || name.contains(char::is_whitespace) {
            return Err(invalid!("'{name}' in the signature of function '{}' is not a name", signature.name));
        }
    }
    let mut op = Op::new(&signature.name);
    for attr in &signature.attr {
        let kinds = ["string", "int", "float", "bool", "type", "shape", "tensor", "func"];
        let bare = attr.r#type.strip_prefix("list(").and_then(|t| t.strip_suffix(')')).unwrap_or(&attr.r#type);
        if !kinds.contains(&bare) {
            return Err(invalid!(
                "attribute '{}' of function '{}' has unknown kind '{}'",
                attr.name,
                signature.name,
                attr.r#type
            ));
        }
        op = op.attr(&format!("{}: {}", attr.name, attr.r#type));
        if let (Some(default), Some(def)) = (&attr.default_value, op.attrs.last_mut()) {
            def.default = Some(Attr::from_proto(default)?);
        }
    }
    let arg = |a: &proto::op_def::ArgDef, op: &Op| -> Result<String> {
        let known = |name: &str, kind: &str| op.attr_def(name).is_some_and(|d| d.kind == kind);
        let ty = if known(&a.type_attr, "type") {
            a.type_attr.clone()
        } else if known(&a.type_list_attr, "list(type)") {
            a.type_list_attr.clone()
        } else if a.type_attr.is_empty() && a.type_list_attr.is_empty() {
            let (dtype, _): (DType, bool) = dtype_from_proto(a.r#type)?;
            dtype.name().to_string()
        } else {
            return Err(invalid!(
                "argument '{}' of function '{}' names an unknown type attribute",
                a.name,
                signature.name
            ));
        };
        if !a.number_attr.is_empty() && !known(&a.number_attr, "int") {
            return Err(invalid!(
                "argument '{}' of function '{}' names an unknown count attribute",
                a.name,
                signature.name
            ));
        }
        let count = if a.number_attr.is_empty() { String::new() } else { format!("{}*", a.number_attr) };
        Ok(format!("{}: {count}{ty}", a.name))
    };
    for input in &signature.input_arg {
        let spec = arg(input, &op)?;
        op = op.input(&spec);
    }
    for output in &signature.output_arg {
        let spec = arg(output, &op)?;
        op = op.output(&spec);
    }
    op.is_stateful = signature.is_stateful;
    Ok(op.resolved())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_signature_must_be_names() {
        let arg = |name: &str| proto::op_def::ArgDef { name: name.into(), r#type: 1, ..Default::default() };
        for wrong in ["", ":", "a: b", "a b", "n*a", "{a"] {
            let inputs = proto::OpDef { name: "f".into(), input_arg: vec![arg(wrong)], ..Default::default() };
            let outputs = proto::OpDef { name: "f".into(), output_arg: vec![arg(wrong)], ..Default::default() };
            let attr = proto::op_def::AttrDef { name: wrong.into(), r#type: "int".into(), ..Default::default() };
            let attrs = proto::OpDef { name: "f".into(), attr: vec![attr], ..Default::default() };
            for signature in [inputs, outputs, attrs] {
                let message = signature_op(&signature).unwrap_err().message;
                assert!(message.contains("is not a name"), "{wrong}: {message}");
            }
        }
        let fine = proto::OpDef { name: "f".into(), input_arg: vec![arg("x/y_1")], ..Default::default() };
        assert_eq!(signature_op(&fine).unwrap().inputs[0].name, "x/y_1");
    }
}
