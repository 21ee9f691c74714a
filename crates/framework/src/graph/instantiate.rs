//! A function's body as a graph: arguments become `_Arg` nodes, results `_Retval` nodes.

use super::{FunctionLibrary, Graph, NameAttrList, import};
use crate::attr::{Attr, Attrs};
use crate::op::{Arg, Op};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tensor::{DType, Result, invalid, not_found};

impl FunctionLibrary {
    /// The body of a function, with the attributes it is called with put in. What neither reaches a result nor has
    /// an effect is left out.
    pub fn instantiate(&self, function: &NameAttrList) -> Result<Graph> {
        let name = &function.name;
        let (body, signature) = match (self.function(name), self.op(name)) {
            (Some(body), Some(signature)) => (body, signature.clone()),
            _ => return Err(not_found!("Function {name} is not defined.")),
        };
        let here = |e: tensor::Error| e.context(format_args!("[[function {name}]]"));
        let message = Body::new(self, body, &signature, &function.attrs).and_then(|b| b.message()).map_err(here)?;
        let mut graph = Graph { library: self.clone(), ..Graph::default() };
        import::extend(&mut graph, &message, self.registry()).map_err(here)?;
        Ok(graph)
    }
}

/// A function on its way to a graph.
struct Body<'a> {
    function: &'a proto::FunctionDef,
    signature: &'a Op,
    /// The function's own attributes.
    attrs: Attrs,
    /// The body's nodes with placeholders filled in, and what each of them is.
    nodes: Vec<(proto::NodeDef, Arc<Op>)>,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Body<'a> {
    fn new(
        library: &FunctionLibrary,
        function: &'a proto::FunctionDef,
        signature: &'a Op,
        given: &Attrs,
    ) -> Result<Body<'a>> {
        let mut attrs = given.clone();
        for def in &signature.attrs {
            if let (false, Some(default)) = (attrs.contains_key(&def.name), &def.default) {
                attrs.insert(def.name.clone(), default.clone());
            }
        }
        let mut nodes = Vec::with_capacity(function.node_def.len());
        let mut by_name = HashMap::new();
        for node in &function.node_def {
            let op = match library.op(&node.op) {
                Some(op) => op.clone(),
                None => library.registry().lookup(&node.op)?.clone(),
            };
            by_name.insert(node.name.as_str(), nodes.len());
            nodes.push((filled(node, &attrs)?, op));
        }
        Ok(Body { function, signature, attrs, nodes, by_name })
    }

    fn message(&self) -> Result<proto::GraphDef> {
        let mut names = HashMap::new();
        let mut nodes = Vec::with_capacity(self.nodes.len() + 4);
        self.arguments(&mut names, &mut nodes)?;
        let (results, reaches) = self.results(&names)?;
        let kept = self.kept(reaches);
        for (index, (node, _)) in self.nodes.iter().enumerate().filter(|(index, _)| kept.contains(index)) {
            let mut node = node.clone();
            for input in &mut node.input {
                *input = self
                    .source(&names, input)
                    .map_err(|e| e.context(format_args!("[[{{{{node {}}}}}]]", self.nodes[index].0.name)))?;
            }
            nodes.push(node);
        }
        nodes.extend(results);
        Ok(proto::GraphDef { node: nodes, ..Default::default() })
    }

    /// A node for each argument; in the body an argument is called by its name, or by name and number.
    fn arguments(&self, names: &mut HashMap<String, String>, nodes: &mut Vec<proto::NodeDef>) -> Result<()> {
        for arg in &self.signature.inputs {
            let types = arg_types(arg, &self.attrs)?;
            let is_single = types.len() == 1;
            for (i, dtype) in types.into_iter().enumerate() {
                let plain = if is_single { arg.name.clone() } else { format!("{}_{i}", arg.name) };
                let node = self.unused(plain);
                if i == 0 {
                    names.insert(arg.name.clone(), node.clone());
                }
                names.insert(format!("{}:{i}", arg.name), node.clone());
                nodes.push(boundary("_Arg", node, nodes.len(), dtype));
            }
        }
        Ok(())
    }

    /// A node for each result, and the names of the body's nodes that must run.
    fn results(&self, names: &HashMap<String, String>) -> Result<(Vec<proto::NodeDef>, Vec<&str>)> {
        let mut nodes: Vec<proto::NodeDef> = Vec::new();
        let mut reaches: Vec<&str> = self.function.control_ret.values().map(String::as_str).collect();
        for arg in &self.signature.outputs {
            let source = self.function.ret.get(&arg.name);
            let source = source.ok_or_else(|| invalid!("Return {} missing.", arg.name))?;
            reaches.push(node_of(source));
            let types = arg_types(arg, &self.attrs)?;
            let is_single = types.len() == 1;
            for (i, dtype) in types.into_iter().enumerate() {
                let input = if is_single { source.clone() } else { element(source, i) };
                let name = if is_single { arg.name.clone() } else { format!("{}_{i}", arg.name) };
                let mut node = boundary("_Retval", self.unused(format!("{name}_RetVal")), nodes.len(), dtype);
                node.input.push(self.source(names, &input)?);
                nodes.push(node);
            }
        }
        Ok((nodes, reaches))
    }

    /// A name that no node of the body has.
    fn unused(&self, mut name: String) -> String {
        while self.by_name.contains_key(name.as_str()) {
            name.push('_');
        }
        name
    }

    /// The nodes that results, control results and effects need.
    fn kept(&self, reaches: Vec<&str>) -> HashSet<usize> {
        let effects = self.nodes.iter().enumerate().filter(|(_, (_, op))| op.is_stateful || op.outputs.is_empty());
        let mut todo: Vec<usize> = effects.map(|(index, _)| index).collect();
        todo.extend(reaches.into_iter().filter_map(|name| self.by_name.get(name)));
        let mut kept = HashSet::new();
        while let Some(index) = todo.pop() {
            if kept.insert(index) {
                let inputs = self.nodes[index].0.input.iter().map(|input| node_of(input));
                todo.extend(inputs.filter_map(|name| self.by_name.get(name)));
            }
        }
        kept
    }

    /// An input as graphs write it: `node:number` instead of `node:output name:number within it`.
    fn source(&self, names: &HashMap<String, String>, input: &str) -> Result<String> {
        if let Some(control) = input.strip_prefix('^') {
            return Ok(format!("^{}", names.get(control).map_or(control, String::as_str)));
        }
        if let Some(argument) = names.get(input) {
            return Ok(argument.clone());
        }
        let mut parts = input.split(':');
        let node = parts.next().unwrap_or_default();
        let output = parts.next().unwrap_or_default();
        let within: usize = match parts.next() {
            Some(number) => number.parse().map_err(|_| invalid!("input {input} is malformed"))?,
            None => 0,
        };
        let found = self.by_name.get(node).ok_or_else(|| invalid!("input {input} is not found"))?;
        let (definition, op) = &self.nodes[*found];
        let attrs = node_attrs(definition, op)?;
        let mut offset = 0;
        for arg in &op.outputs {
            if arg.name == output {
                return Ok(format!("{node}:{}", offset + within));
            }
            offset += arg_types(arg, &attrs)?.len();
        }
        Err(invalid!("input {input}: {} has no output called '{output}'", op.name))
    }
}

/// One value of a list that is written as `node:output name` or `argument`.
fn element(source: &str, index: usize) -> String {
    let list = source.rsplit_once(':').filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()));
    format!("{}:{index}", list.map_or(source, |(list, _)| list))
}

/// The name of the node in an input.
fn node_of(input: &str) -> &str {
    let input = input.strip_prefix('^').unwrap_or(input);
    input.split(':').next().unwrap_or(input)
}

fn boundary(op: &str, name: String, index: usize, dtype: DType) -> proto::NodeDef {
    let attrs: BTreeMap<String, proto::AttrValue> =
        [("T".to_string(), Attr::Type(dtype).to_proto()), ("index".to_string(), Attr::Int(index as i64).to_proto())]
            .into();
    proto::NodeDef { name, op: op.into(), attr: attrs.into_iter().collect(), ..Default::default() }
}

/// A node with the function's attributes in place of the names that stand for them.
fn filled(node: &proto::NodeDef, attrs: &Attrs) -> Result<proto::NodeDef> {
    let mut node = node.clone();
    for value in node.attr.values_mut() {
        if let Some(proto::attr_value::Value::Placeholder(name)) = &value.value {
            let given = attrs.get(name);
            *value = given.ok_or_else(|| invalid!("attribute '{name}' of the function is not given"))?.to_proto();
        }
    }
    Ok(node)
}

/// A node's attributes with defaults, as far as the number of its outputs depends on them.
fn node_attrs(node: &proto::NodeDef, op: &Op) -> Result<Attrs> {
    let mut attrs = Attrs::new();
    for def in op.attrs.iter().filter(|d| matches!(d.kind.as_str(), "int" | "type" | "list(type)")) {
        let value = match node.attr.get(&def.name) {
            Some(value) => Some(Attr::from_proto(value)?),
            None => def.default.clone(),
        };
        attrs.extend(value.map(|v| (def.name.clone(), v)));
    }
    Ok(attrs)
}

fn arg_types(arg: &Arg, attrs: &Attrs) -> Result<Vec<DType>> {
    let types = super::types::arg_types(std::slice::from_ref(arg), attrs)?;
    Ok(types.into_iter().map(|(dtype, _)| dtype).collect())
}
