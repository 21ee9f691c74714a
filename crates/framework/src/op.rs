//! `Op`: everything there is to know about a kind of node, as one value.
//!
//! The specifications are small texts: an input or output is `x: T`, `values: N*T`, `parts: Tlist` or `ref: Ref(T)`;
//! an attribute is `T: {half, float} = float`, `N: int >= 1`, `shapes: list(shape) >= 0 = []`, `padding: {'SAME', 'VALID'}`.
//! They are read once, when the registry is built; a mistake in one is ours and stops the program there.

use crate::attr::Attr;
use crate::gradient::{GradFn, RowGradFn};
use crate::kernel::{BuiltKernel, KernelBuild};
use crate::shapes::InferenceContext;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, unquote};

/// Computes the shapes of a node's outputs from what is known of its inputs.
pub type ShapeFn = fn(&InferenceContext<'_>) -> Result<Vec<PartialShape>>;
/// Computes the values of a node's outputs while the graph is built, where that is cheap and possible.
pub type ValueFn = fn(&InferenceContext<'_>) -> Option<Vec<Option<Tensor>>>;
/// Makes the kernel of a node.
pub type KernelFn = Arc<dyn Fn(&KernelBuild<'_>) -> Result<BuiltKernel> + Send + Sync>;

/// What the executor itself must know of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ControlFlow {
    /// An ordinary node: runs when all inputs are there, and not at all if one is dead.
    #[default]
    None,
    /// Passes its first input to output 0 or 1 as its second says; the other output is dead.
    Switch,
    /// Passes on the first of its inputs that is alive.
    Merge,
    /// Passes its input into a frame.
    Enter,
    /// Passes its input out of a frame.
    Exit,
    /// Passes its input to the next iteration.
    NextIteration,
    /// Runs even if a control input is dead.
    ControlTrigger,
    /// Runs even on a dead input, to hand the news on.
    Send,
}

/// How an op takes part in differentiation.
#[derive(Clone)]
pub enum Differentiation {
    /// By this function.
    By(GradFn),
    /// Gradients end here.
    Zero,
    /// Asking for a gradient is an error.
    Missing,
}

/// The type of an input or output.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    /// Always this.
    Fixed(DType),
    /// Named by a type attribute.
    Attr(String),
    /// A list, one entry for each type in a list attribute.
    List(String),
}

/// One input or output of an op.
#[derive(Clone, Debug)]
pub struct Arg {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub ty: ArgType,
    /// The attribute that says how many there are, for `N*T`.
    pub number: Option<String>,
    /// Whether a reference passes here.
    pub is_ref: bool,
}

/// One attribute of an op.
#[derive(Clone, Debug)]
pub struct AttrDef {
    /// Its name.
    pub name: String,
    /// `int`, `list(type)`, …
    pub kind: String,
    /// What it is when a node does not say.
    pub default: Option<Attr>,
    /// The element types it may be.
    pub allowed_types: Option<Vec<DType>>,
    /// The strings it may be.
    pub allowed_strings: Option<Vec<String>>,
    /// The least value of an int, or length of a list.
    pub minimum: Option<i64>,
}

/// A kind of node.
#[derive(Clone)]
pub struct Op {
    /// The name nodes call it by.
    pub name: String,
    /// Inputs in order.
    pub inputs: Vec<Arg>,
    /// Outputs in order.
    pub outputs: Vec<Arg>,
    /// Attributes.
    pub attrs: Vec<AttrDef>,
    /// Two nodes of it with equal inputs are not the same: never folded or merged, kernel kept between steps.
    pub is_stateful: bool,
    /// Inputs may be swapped.
    pub is_commutative: bool,
    /// May be regrouped like a sum.
    pub is_aggregate: bool,
    /// A reference input may be a variable without value.
    pub allows_uninitialized_input: bool,
    /// Whether a reference that comes in is passed on although the op's types do not say so: whoever uses the output
    /// reads the variable as it is then. TensorFlow's reads of reference variables share the variable's memory, and
    /// programs rely on seeing what is written to it after the read.
    pub passes_references: bool,
    /// Worth a thread of its own even on small inputs.
    pub is_costly: bool,
    /// Each element of the output depends on the same element of the inputs, after broadcasting, and a chain of such
    /// ops on floats can be computed in one pass.
    pub is_elementwise: bool,
    /// What the executor must know.
    pub control_flow: ControlFlow,
    /// Shapes of the outputs.
    pub shape_fn: Option<ShapeFn>,
    /// Values of the outputs known while building.
    pub value_fn: Option<ValueFn>,
    /// The kernel.
    pub kernel: Option<KernelFn>,
    /// The gradient.
    pub gradient: Differentiation,
    /// The gradient where that of an output is only some rows.
    pub row_gradient: Option<RowGradFn>,
    arg_specs: Vec<(bool, String)>,
}

impl Op {
    /// An op with nothing said about it yet.
    pub fn new(name: impl Into<String>) -> Op {
        Op {
            name: name.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attrs: Vec::new(),
            is_stateful: false,
            is_commutative: false,
            is_aggregate: false,
            allows_uninitialized_input: false,
            passes_references: false,
            is_costly: false,
            is_elementwise: false,
            control_flow: ControlFlow::None,
            shape_fn: None,
            value_fn: None,
            kernel: None,
            gradient: Differentiation::Missing,
            row_gradient: None,
            arg_specs: Vec::new(),
        }
    }

    /// Adds an input, such as `x: T`.
    pub fn input(mut self, spec: &str) -> Op {
        self.arg_specs.push((true, spec.to_string()));
        self
    }

    /// Adds an output, such as `y: T`.
    pub fn output(mut self, spec: &str) -> Op {
        self.arg_specs.push((false, spec.to_string()));
        self
    }

    /// Adds an attribute, such as `T: {half, float, double}`.
    pub fn attr(mut self, spec: &str) -> Op {
        self.attrs.push(parse_attr(&self.name, spec));
        self
    }

    /// Marks the op as stateful.
    pub fn stateful(mut self) -> Op {
        self.is_stateful = true;
        self
    }

    /// Marks the op as commutative.
    pub fn commutative(mut self) -> Op {
        self.is_commutative = true;
        self
    }

    /// Marks the op as an aggregate.
    pub fn aggregate(mut self) -> Op {
        self.is_aggregate = true;
        self
    }

    /// Lets references through to whoever uses the output.
    pub fn passes_references(mut self) -> Op {
        self.passes_references = true;
        self
    }

    /// Lets reference inputs be variables without value.
    pub fn allows_uninitialized_input(mut self) -> Op {
        self.allows_uninitialized_input = true;
        self
    }

    /// Says that one run is long enough to be worth a thread of its own.
    pub fn costly(mut self) -> Op {
        self.is_costly = true;
        self
    }

    /// Says how the executor treats it.
    pub fn control_flow(mut self, control_flow: ControlFlow) -> Op {
        self.control_flow = control_flow;
        self
    }

    /// Gives the shape function.
    pub fn shape(mut self, shape_fn: ShapeFn) -> Op {
        self.shape_fn = Some(shape_fn);
        self
    }

    /// Gives the function that knows output values while building.
    pub fn value(mut self, value_fn: ValueFn) -> Op {
        self.value_fn = Some(value_fn);
        self
    }

    /// Gives the kernel.
    pub fn kernel(mut self, kernel: KernelFn) -> Op {
        self.kernel = Some(kernel);
        self
    }

    /// Gives the gradient.
    pub fn gradient(mut self, gradient: GradFn) -> Op {
        self.gradient = Differentiation::By(gradient);
        self
    }

    /// Gives the gradient for when that of an output is only some rows; without it, such rows are made a whole first.
    pub fn row_gradient(mut self, gradient: RowGradFn) -> Op {
        self.row_gradient = Some(gradient);
        self
    }

    /// Says that gradients end here.
    pub fn not_differentiable(mut self) -> Op {
        self.gradient = Differentiation::Zero;
        self
    }

    /// The definition of one attribute.
    pub fn attr_def(&self, name: &str) -> Option<&AttrDef> {
        self.attrs.iter().find(|a| a.name == name)
    }

    /// Reads the input and output specifications, now that all attributes are known.
    pub(crate) fn resolved(mut self) -> Op {
        for (is_input, spec) in std::mem::take(&mut self.arg_specs) {
            let arg = parse_arg(&self, &spec);
            if is_input { self.inputs.push(arg) } else { self.outputs.push(arg) }
        }
        self
    }

    /// Whether the op is written differently on the outside than a plain function: it has an effect or a state.
    pub fn has_reference_output(&self) -> bool {
        self.outputs.iter().any(|o| o.is_ref)
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op({})", self.name)
    }
}

fn parse_arg(op: &Op, spec: &str) -> Arg {
    let fail = |why: &str| -> ! { panic!("op {}: bad argument '{spec}': {why}", op.name) };
    let Some((name, rest)) = spec.split_once(':') else { fail("wanted 'name: type'") };
    let mut rest = rest.trim();
    let mut is_ref = false;
    if let Some(inner) = rest.strip_prefix("Ref(").and_then(|r| r.strip_suffix(')')) {
        (rest, is_ref) = (inner.trim(), true);
    }
    let mut number = None;
    if let Some((count, inner)) = rest.split_once('*') {
        if op.attr_def(count.trim()).is_none_or(|a| a.kind != "int") {
            fail("the count is not an int attribute");
        }
        (number, rest) = (Some(count.trim().to_string()), inner.trim());
    }
    if let Some(inner) = rest.strip_prefix("Ref(").and_then(|r| r.strip_suffix(')')) {
        (rest, is_ref) = (inner.trim(), true);
    }
    let ty = match op.attr_def(rest).map(|a| a.kind.as_str()) {
        Some("type") => ArgType::Attr(rest.to_string()),
        Some("list(type)") => ArgType::List(rest.to_string()),
        Some(_) => fail("the attribute is not a type"),
        None => match DType::parse(rest) {
            Ok(dtype) => ArgType::Fixed(dtype),
            Err(_) => fail("neither an attribute nor an element type"),
        },
    };
    Arg { name: name.trim().to_string(), ty, number, is_ref }
}

/// Sets of types that many ops share.
fn named_types(name: &str) -> Option<Vec<DType>> {
    use DType::*;
    Some(match name {
        "numbertype" => {
            vec![F32, F64, I32, U8, I16, I8, C64, I64, QI8, QU8, QI32, BF16, QI16, QU16, U16, C128, F16, U32, U64]
        }
        "realnumbertype" => vec![F32, F64, I32, U8, I16, I8, I64, BF16, U16, F16, U32, U64],
        "indextype" => vec![I32, I64],
        _ => return None,
    })
}

fn parse_attr(op: &str, spec: &str) -> AttrDef {
    let fail = |why: &str| -> ! { panic!("op {op}: bad attribute '{spec}': {why}") };
    let Some((name, rest)) = spec.split_once(':') else { fail("wanted 'name: kind'") };
    let mut rest = rest.trim();
    let mut def = AttrDef {
        name: name.trim().to_string(),
        kind: String::new(),
        default: None,
        allowed_types: None,
        allowed_strings: None,
        minimum: None,
    };
    let is_list = rest.starts_with("list(");
    if is_list {
        rest = rest[5..].trim_start();
    }
    let mut kind = if let Some(inner) = rest.strip_prefix('{') {
        let Some((items, tail)) = inner.split_once('}') else { fail("an unclosed set") };
        rest = tail;
        let items: Vec<&str> = items.split(',').map(str::trim).collect();
        if items[0].starts_with('\'') {
            def.allowed_strings = Some(items.iter().map(|i| i.trim_matches('\'').to_string()).collect());
            "string".to_string()
        } else {
            let types = items.iter().map(|i| DType::parse(i).unwrap_or_else(|_| fail("an unknown type in the set")));
            def.allowed_types = Some(types.collect());
            "type".to_string()
        }
    } else {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..end];
        rest = &rest[end..];
        def.allowed_types = named_types(word);
        if def.allowed_types.is_some() { "type".to_string() } else { word.to_string() }
    };
    if is_list {
        let Some(tail) = rest.trim_start().strip_prefix(')') else { fail("an unclosed list") };
        rest = tail;
        kind = format!("list({kind})");
    }
    def.kind = kind;
    let known = ["string", "int", "float", "bool", "type", "shape", "tensor", "func"];
    let bare = def.kind.strip_prefix("list(").and_then(|k| k.strip_suffix(')')).unwrap_or(&def.kind);
    if !known.contains(&bare) {
        fail("an unknown kind");
    }
    rest = rest.trim();
    if let Some(tail) = rest.strip_prefix(">=") {
        let tail = tail.trim_start();
        let end = tail.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(tail.len());
        def.minimum = Some(tail[..end].parse().unwrap_or_else(|_| fail("a bad minimum")));
        rest = tail[end..].trim();
    }
    if let Some(text) = rest.strip_prefix('=') {
        def.default = Some(parse_default(&def.kind, text.trim()).unwrap_or_else(|| fail("a bad default")));
    } else if !rest.is_empty() {
        fail("something after the end");
    }
    def
}

/// Reads an attribute value as definitions and the text notation write it.
pub(crate) fn parse_default(kind: &str, text: &str) -> Option<Attr> {
    if let Some(inner) = kind.strip_prefix("list(").and_then(|k| k.strip_suffix(')')) {
        let items = text.strip_prefix('[')?.strip_suffix(']')?.trim();
        if items.is_empty() {
            return Some(Attr::EmptyList);
        }
        let items: Vec<Attr> = split_list(items).into_iter().map(|i| parse_default(inner, i)).collect::<Option<_>>()?;
        return Some(match inner {
            "string" => Attr::Strings(
                items.into_iter().filter_map(|a| if let Attr::String(x) = a { Some(x) } else { None }).collect(),
            ),
            "int" => Attr::Ints(
                items.into_iter().filter_map(|a| if let Attr::Int(x) = a { Some(x) } else { None }).collect(),
            ),
            "float" => Attr::Floats(
                items.into_iter().filter_map(|a| if let Attr::Float(x) = a { Some(x) } else { None }).collect(),
            ),
            "bool" => Attr::Bools(
                items.into_iter().filter_map(|a| if let Attr::Bool(x) = a { Some(x) } else { None }).collect(),
            ),
            "type" => Attr::Types(
                items.into_iter().filter_map(|a| if let Attr::Type(x) = a { Some(x) } else { None }).collect(),
            ),
            "shape" => Attr::Shapes(
                items.into_iter().filter_map(|a| if let Attr::Shape(x) = a { Some(x) } else { None }).collect(),
            ),
            _ => return None,
        });
    }
    Some(match kind {
        "string" => match unquote(text)? {
            (bytes, "") => Attr::String(bytes.into()),
            _ => return None,
        },
        "int" => Attr::Int(text.parse().ok()?),
        "float" => Attr::Float(text.parse().ok()?),
        "bool" => Attr::Bool(text.parse().ok()?),
        "type" => Attr::Type(DType::parse(text).ok()?),
        "shape" => Attr::Shape(parse_shape(text.strip_prefix("shape").unwrap_or(text).trim())?),
        _ => return None,
    })
}

/// The characters that are not within quotes, and where they are. A quote that is not closed quotes nothing.
pub(crate) fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some((_, rest)) = unquote(&text[at..]) {
            at = text.len() - rest.len();
        }
        let c = text[at..].chars().next()?;
        at += c.len_utf8();
        Some((at - c.len_utf8(), c))
    })
}

/// Splits at commas that are outside brackets and quotes.
pub(crate) fn split_list(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0i32, 0, Vec::new());
    for (i, c) in outside_quotes(text) {
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        items.push(text[start..].trim());
    }
    items
}

/// `[2,?]`, `[]`, `<unknown>`.
pub(crate) fn parse_shape(text: &str) -> Option<PartialShape> {
    if text == "<unknown>" {
        return Some(PartialShape::unknown());
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let dim = |d: &str| if d == "?" || d == "-1" { Some(None) } else { d.parse().ok().map(Some) };
    if inner.is_empty() {
        return Some(PartialShape::scalar());
    }
    inner.split(',').map(|d| dim(d.trim())).collect::<Option<Vec<_>>>().map(PartialShape::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read() {
        let op = Op::new("X")
            .input("a: N*T")
            .input("b: Ref(T)")
            .input("c: int32")
            .output("d: L")
            .attr("T: {half, float} = float")
            .attr("N: int >= 2")
            .attr("L: list(type) >= 1")
            .attr("padding: {'SAME', 'VALID'} = 'SAME'")
            .attr("shapes: list(shape) >= 0 = []")
            .attr("strides: list(int) = [1, 2]")
            .attr("Tidx: indextype = int32")
            .attr("name: string = ''")
            .attr("ls: list({int32, int64})")
            .attr("s: shape = [2,?]")
            .resolved();
        assert_eq!(op.inputs[0].number.as_deref(), Some("N"));
        assert!(op.inputs[1].is_ref);
        assert_eq!(op.inputs[2].ty, ArgType::Fixed(DType::I32));
        assert_eq!(op.outputs[0].ty, ArgType::List("L".into()));
        assert_eq!(op.attr_def("T").unwrap().default, Some(Attr::Type(DType::F32)));
        assert_eq!(op.attr_def("N").unwrap().minimum, Some(2));
        assert_eq!(op.attr_def("padding").unwrap().allowed_strings.as_ref().unwrap().len(), 2);
        assert_eq!(op.attr_def("strides").unwrap().default, Some(Attr::Ints(vec![1, 2])));
        assert_eq!(op.attr_def("ls").unwrap().kind, "list(type)");
        assert_eq!(op.attr_def("name").unwrap().default, Some(Attr::from("")));
    }

    #[test]
    #[should_panic(expected = "op X: bad argument 'a: U'")]
    fn a_bad_specification_names_the_op() {
        Op::new("X").input("a: U").resolved();
    }
}
