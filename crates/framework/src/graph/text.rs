//! One line per node, for tests, error messages, `ferroflow graph show` and documents.
//!
//! ```text
//! x = Placeholder {dtype: float, shape: shape[?,2]}
//! y = MatMul(x, w) {transpose_a: true} @ /job:ps
//! z = Add(y, c:1, ^init)
//! ```
//!
//! Attributes that have their default, or that the inputs tell, are left out.

use super::export::input_text;
use super::{Graph, NewNode, Node, NodeId, Output};
use crate::attr::{Attr, Attrs};
use crate::op::{ArgType, outside_quotes, parse_default, split_list};
use crate::registry::Registry;
use std::fmt::Write as _;
use tensor::{Complex, DType, Element, Quoted, Result, Tensor, bf16, f16, invalid, unquote};

/// All nodes of a graph, a line each.
pub fn print(graph: &Graph) -> String {
    let mut out = String::new();
    for (_, node) in graph.nodes() {
        let _ = writeln!(out, "{}", print_node(graph, node));
    }
    out
}

/// One node.
pub fn print_node(graph: &Graph, node: &Node) -> String {
    let mut line = format!("{} = {}", node.name, node.op.name);
    let data = node.inputs.iter().map(|&i| input_text(graph, i));
    let control = node.control_inputs.iter().map(|&c| format!("^{}", graph.node(c).name));
    let inputs: Vec<String> = data.chain(control).collect();
    if !inputs.is_empty() {
        let _ = write!(line, "({})", inputs.join(", "));
    }
    let attrs: Vec<String> = node
        .attrs
        .iter()
        .filter(|(name, value)| !follows(node, name, value))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    if !attrs.is_empty() {
        let _ = write!(line, " {{{}}}", attrs.join(", "));
    }
    if !node.device.is_empty() {
        let _ = write!(line, " @ {}", device_text(&node.device));
    }
    line
}

/// A device as it is, or between quotes if there is something in it that device names do not have.
fn device_text(device: &str) -> String {
    let is_plain = device.chars().all(|c| c.is_ascii_alphanumeric() || "/:*_-.".contains(c));
    if is_plain { device.into() } else { Quoted(device.as_bytes()).to_string() }
}

/// Whether an attribute need not be written: it has its default, or the inputs tell it.
fn follows(node: &Node, name: &str, value: &Attr) -> bool {
    let told = node.op.inputs.iter().any(|arg| {
        arg.number.as_deref() == Some(name) || matches!(&arg.ty, ArgType::Attr(n) | ArgType::List(n) if n == name)
    });
    told || node.op.attr_def(name).is_some_and(|d| d.default.as_ref() == Some(value))
}

/// The graph that a text describes. Nodes may be used before they are defined only as the way back of a loop:
/// there, write the name of the NextIteration as an input of the Merge.
pub fn parse(text: &str, registry: &Registry) -> Result<Graph> {
    let mut graph = Graph::new();
    let mut back: Vec<(NodeId, usize, String)> = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        parse_line(&mut graph, line, registry, &mut back)
            .map_err(|e| tensor::Error { message: format!("in '{line}': {}", e.message), ..e })?;
    }
    for (node, index, name) in back {
        let source = graph.find_output(&name).ok_or_else(|| invalid!("unknown input '{name}'"))?;
        graph.set_input(node, index, source)?;
    }
    Ok(graph)
}

fn parse_line(
    graph: &mut Graph,
    line: &str,
    registry: &Registry,
    back: &mut Vec<(NodeId, usize, String)>,
) -> Result<()> {
    let (name, rest) = line.split_once('=').ok_or_else(|| invalid!("wanted 'name = Op(inputs)'"))?;
    let (rest, attr_text, device) = split_line(rest)?;
    let (op_name, input_text) = match rest.split_once('(') {
        Some((op, inputs)) => (op.trim(), inputs.strip_suffix(')').ok_or_else(|| invalid!("'(' is not closed"))?),
        None => (rest, ""),
    };
    let op = registry.lookup(op_name)?.clone();
    let (mut inputs, mut control_inputs, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for input in split_list(input_text) {
        if let Some(control) = input.strip_prefix('^') {
            control_inputs.push(graph.find(control).ok_or_else(|| invalid!("unknown control input '{control}'"))?);
        } else if let Some(output) = graph.find_output(input) {
            inputs.push(output);
        } else if let Some(&first) = inputs.first() {
            // A way back: stands for the way in until its source is defined.
            open.push((inputs.len(), input.to_string()));
            inputs.push(first);
        } else {
            return Err(invalid!("unknown input '{input}'"));
        }
    }
    let mut attrs = Attrs::new();
    for item in split_list(attr_text) {
        let (key, value) = item.split_once(':').ok_or_else(|| invalid!("wanted 'name: value' in '{item}'"))?;
        let (key, value) = (key.trim(), value.trim());
        let kind = op.attr_def(key).map(|d| d.kind.clone());
        let kind = kind.or_else(|| (key == "_class").then(|| "list(string)".to_string()));
        let kind = kind.ok_or_else(|| invalid!("{op_name} has no attribute '{key}'"))?;
        let attr = if kind == "tensor" { parse_tensor(value).map(Attr::Tensor) } else { parse_default(&kind, value) };
        attrs.insert(key.to_string(), attr.ok_or_else(|| invalid!("'{value}' is not a {kind}"))?);
    }
    let new = NewNode { name: name.trim().into(), op, attrs, inputs, control_inputs, device };
    let id = graph.add(new)?;
    if !open.is_empty() {
        graph.relax_shape(Output { node: id, index: 0 }, tensor::PartialShape::unknown());
    }
    back.extend(open.into_iter().map(|(index, name)| (id, index, name)));
    Ok(())
}

/// What stands after the `=`: op and inputs, attributes, device.
fn split_line(text: &str) -> Result<(&str, &str, String)> {
    let position = |text: &str, wanted: char| outside_quotes(text).find(|(_, c)| *c == wanted).map(|(i, _)| i);
    let at = position(text, '@').unwrap_or(text.len());
    let (head, attrs, tail) = match position(text, '{').filter(|open| *open < at) {
        None => (&text[..at], "", &text[at..]),
        Some(open) => {
            let length = position(&text[open..], '}').ok_or_else(|| invalid!("'{{' is not closed"))?;
            (&text[..open], &text[open + 1..open + length], &text[open + length + 1..])
        }
    };
    Ok((head.trim(), attrs, parse_device(tail.trim())?))
}

fn parse_device(text: &str) -> Result<String> {
    let wanted = || invalid!("wanted '@ device', found '{text}'");
    if text.is_empty() {
        return Ok(String::new());
    }
    let device = text.strip_prefix('@').ok_or_else(wanted)?.trim();
    if !device.starts_with(['"', '\'']) {
        return Ok(device.into());
    }
    match unquote(device) {
        Some((bytes, "")) => String::from_utf8(bytes).map_err(|_| wanted()),
        _ => Err(wanted()),
    }
}

/// A tensor as `Debug` prints it: `float[2] [1 2]`, `int32[] 7`, `string[] "a"`.
fn parse_tensor(text: &str) -> Option<Tensor> {
    let (dtype, rest) = text.split_once('[')?;
    let (dims, values) = rest.split_once(']')?;
    let shape = crate::op::parse_shape(&format!("[{dims}]"))?.known()?;
    let words: Vec<&str> =
        values.split(|c: char| c.is_whitespace() || "[]".contains(c)).filter(|w| !w.is_empty()).collect();
    fn numbers<T: Element + std::str::FromStr>(shape: tensor::Shape, words: &[&str]) -> Option<Tensor> {
        let values: Option<Vec<T>> = words.iter().map(|w| w.parse().ok()).collect();
        Tensor::from_vec(shape, values?).ok()
    }
    match DType::parse(dtype.trim()).ok()? {
        DType::F32 => numbers::<f32>(shape, &words),
        DType::F64 => numbers::<f64>(shape, &words),
        DType::I32 => numbers::<i32>(shape, &words),
        DType::I64 => numbers::<i64>(shape, &words),
        DType::U8 => numbers::<u8>(shape, &words),
        DType::U16 => numbers::<u16>(shape, &words),
        DType::U32 => numbers::<u32>(shape, &words),
        DType::U64 => numbers::<u64>(shape, &words),
        DType::I8 => numbers::<i8>(shape, &words),
        DType::I16 => numbers::<i16>(shape, &words),
        DType::F16 => numbers::<f16>(shape, &words),
        DType::BF16 => numbers::<bf16>(shape, &words),
        DType::C64 => numbers::<Complex<f32>>(shape, &words),
        DType::C128 => numbers::<Complex<f64>>(shape, &words),
        DType::Bool => numbers::<bool>(shape, &words),
        DType::String => Tensor::from_strings(shape, parse_strings(values)?).ok(),
        _ => None,
    }
}

/// Strings between quotes, with blanks and brackets around them.
fn parse_strings(mut text: &str) -> Option<Vec<bytes::Bytes>> {
    let mut strings = Vec::new();
    loop {
        text = text.trim_start_matches(|c: char| c.is_whitespace() || "[]".contains(c));
        if text.is_empty() {
            return Some(strings);
        }
        let (string, rest) = unquote(text)?;
        strings.push(string.into());
        text = rest;
    }
}
