//! Attributes: the compile-time arguments of a node.

use crate::graph::NameAttrList;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use tensor::{
    DType, PartialShape, Quoted, Result, Tensor, dtype_from_proto, invalid, shape_from_proto, shape_to_proto,
};

/// A node's attributes by name.
pub type Attrs = BTreeMap<String, Attr>;

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Attr {
    String(Bytes),
    Int(i64),
    Float(f32),
    Bool(bool),
    Type(DType),
    /// A reference to a type: only old graphs say this in an attribute.
    RefType(DType),
    Shape(PartialShape),
    Tensor(Tensor),
    Function(NameAttrList),
    /// Stands for an attribute of the enclosing function.
    Placeholder(String),
    /// A list whose element type only the op's definition tells.
    EmptyList,
    Strings(Vec<Bytes>),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Bools(Vec<bool>),
    Types(Vec<DType>),
    Shapes(Vec<PartialShape>),
    Tensors(Vec<Tensor>),
    Functions(Vec<NameAttrList>),
}

impl Attr {
    /// From its message.
    pub fn from_proto(message: &proto::AttrValue) -> Result<Attr> {
        use proto::attr_value::Value;
        Ok(match message.value.as_ref() {
            None => return Err(invalid!("an attribute has no value")),
            Some(Value::S(s)) => Attr::String(s.clone()),
            Some(Value::I(i)) => Attr::Int(*i),
            Some(Value::F(f)) => Attr::Float(*f),
            Some(Value::B(b)) => Attr::Bool(*b),
            Some(Value::Type(number)) => match dtype_from_proto(*number)? {
                (dtype, false) => Attr::Type(dtype),
                (dtype, true) => Attr::RefType(dtype),
            },
            Some(Value::Shape(shape)) => Attr::Shape(shape_from_proto(shape)?),
            Some(Value::Tensor(tensor)) => Attr::Tensor(Tensor::from_proto(tensor)?),
            Some(Value::Func(f)) => Attr::Function(NameAttrList::from_proto(f)?),
            Some(Value::Placeholder(name)) => Attr::Placeholder(name.clone()),
            Some(Value::List(list)) => list_from_proto(list)?,
        })
    }

    /// To its message.
    pub fn to_proto(&self) -> proto::AttrValue {
        use proto::attr_value::{ListValue, Value};
        let list = |list: ListValue| Value::List(list);
        let value = match self {
            Attr::String(s) => Value::S(s.clone()),
            Attr::Int(i) => Value::I(*i),
            Attr::Float(f) => Value::F(*f),
            Attr::Bool(b) => Value::B(*b),
            Attr::Type(d) => Value::Type(d.number()),
            Attr::RefType(d) => Value::Type(d.number() + 100),
            Attr::Shape(s) => Value::Shape(shape_to_proto(s)),
            Attr::Tensor(t) => Value::Tensor(t.to_proto()),
            Attr::Function(f) => Value::Func(f.to_proto()),
            Attr::Placeholder(name) => Value::Placeholder(name.clone()),
            Attr::EmptyList => list(ListValue::default()),
            Attr::Strings(v) => list(ListValue { s: v.clone(), ..Default::default() }),
            Attr::Ints(v) => list(ListValue { i: v.clone(), ..Default::default() }),
            Attr::Floats(v) => list(ListValue { f: v.clone(), ..Default::default() }),
            Attr::Bools(v) => list(ListValue { b: v.clone(), ..Default::default() }),
            Attr::Types(v) => list(ListValue { r#type: v.iter().map(|d| d.number()).collect(), ..Default::default() }),
            Attr::Shapes(v) => list(ListValue { shape: v.iter().map(shape_to_proto).collect(), ..Default::default() }),
            Attr::Tensors(v) => {
                list(ListValue { tensor: v.iter().map(Tensor::to_proto).collect(), ..Default::default() })
            }
            Attr::Functions(v) => {
                list(ListValue { func: v.iter().map(NameAttrList::to_proto).collect(), ..Default::default() })
            }
        };
        proto::AttrValue { value: Some(value) }
    }

    /// What kind of attribute this is, as op definitions say it.
    pub fn kind(&self) -> &'static str {
        match self {
            Attr::String(_) => "string",
            Attr::Int(_) => "int",
            Attr::Float(_) => "float",
            Attr::Bool(_) => "bool",
            Attr::Type(_) | Attr::RefType(_) => "type",
            Attr::Shape(_) => "shape",
            Attr::Tensor(_) => "tensor",
            Attr::Function(_) => "func",
            Attr::Placeholder(_) => "placeholder",
            Attr::EmptyList => "list",
            Attr::Strings(_) => "list(string)",
            Attr::Ints(_) => "list(int)",
            Attr::Floats(_) => "list(float)",
            Attr::Bools(_) => "list(bool)",
            Attr::Types(_) => "list(type)",
            Attr::Shapes(_) => "list(shape)",
            Attr::Tensors(_) => "list(tensor)",
            Attr::Functions(_) => "list(func)",
        }
    }
}

fn list_from_proto(list: &proto::attr_value::ListValue) -> Result<Attr> {
    Ok(if !list.s.is_empty() {
        Attr::Strings(list.s.clone())
    } else if !list.i.is_empty() {
        Attr::Ints(list.i.clone())
    } else if !list.f.is_empty() {
        Attr::Floats(list.f.clone())
    } else if !list.b.is_empty() {
        Attr::Bools(list.b.clone())
    } else if !list.r#type.is_empty() {
        Attr::Types(list.r#type.iter().map(|&t| Ok(dtype_from_proto(t)?.0)).collect::<Result<_>>()?)
    } else if !list.shape.is_empty() {
        Attr::Shapes(list.shape.iter().map(shape_from_proto).collect::<Result<_>>()?)
    } else if !list.tensor.is_empty() {
        Attr::Tensors(list.tensor.iter().map(Tensor::from_proto).collect::<Result<_>>()?)
    } else if !list.func.is_empty() {
        Attr::Functions(list.func.iter().map(NameAttrList::from_proto).collect::<Result<_>>()?)
    } else {
        Attr::EmptyList
    })
}

/// A Rust type an attribute can be read as.
pub trait FromAttr: Sized {
    /// The value, if the attribute is of this kind.
    fn from_attr(attr: &Attr) -> Option<Self>;
}

/// Lists which attribute is read as which Rust type, and made from it.
macro_rules! conversions {
    ($($t:ty, $variant:ident;)*) => {$(
        impl FromAttr for $t {
            fn from_attr(attr: &Attr) -> Option<$t> {
                if let Attr::$variant(value) = attr { Some(value.clone()) } else { None }
            }
        }
        impl From<$t> for Attr {
            fn from(value: $t) -> Attr { Attr::$variant(value) }
        }
    )*};
}
conversions! {
    Bytes, String; i64, Int; f32, Float; bool, Bool; DType, Type; PartialShape, Shape; Tensor, Tensor;
    NameAttrList, Function;
}

/// The same for lists, where an empty list fits every kind.
macro_rules! list_conversions {
    ($($t:ty, $variant:ident;)*) => {$(
        impl FromAttr for Vec<$t> {
            fn from_attr(attr: &Attr) -> Option<Vec<$t>> {
                match attr {
                    Attr::$variant(values) => Some(values.clone()),
                    Attr::EmptyList => Some(Vec::new()),
                    _ => None,
                }
            }
        }
        impl From<Vec<$t>> for Attr {
            fn from(values: Vec<$t>) -> Attr {
                if values.is_empty() { Attr::EmptyList } else { Attr::$variant(values) }
            }
        }
    )*};
}
list_conversions! {
    Bytes, Strings; i64, Ints; f32, Floats; bool, Bools; DType, Types; PartialShape, Shapes; Tensor, Tensors;
    NameAttrList, Functions;
}

impl FromAttr for String {
    fn from_attr(attr: &Attr) -> Option<String> {
        if let Attr::String(bytes) = attr { String::from_utf8(bytes.to_vec()).ok() } else { None }
    }
}
impl FromAttr for Vec<String> {
    fn from_attr(attr: &Attr) -> Option<Vec<String>> {
        let texts = Vec::<Bytes>::from_attr(attr)?;
        texts.into_iter().map(|text| String::from_utf8(text.to_vec()).ok()).collect()
    }
}
impl From<&str> for Attr {
    fn from(value: &str) -> Attr {
        Attr::String(Bytes::copy_from_slice(value.as_bytes()))
    }
}
impl From<String> for Attr {
    fn from(value: String) -> Attr {
        Attr::String(value.into())
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
            f.write_str("[")?;
            for (i, item) in items.enumerate() {
                write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
            }
            f.write_str("]")
        }
        match self {
            Attr::String(s) => write!(f, "{}", Quoted(s)),
            Attr::Int(i) => write!(f, "{i}"),
            Attr::Float(x) => write!(f, "{x:?}"),
            Attr::Bool(b) => write!(f, "{b}"),
            Attr::Type(d) => write!(f, "{d}"),
            Attr::RefType(d) => write!(f, "{d}_ref"),
            Attr::Shape(s) => write!(f, "shape{s}"),
            Attr::Tensor(t) => write!(f, "{t:?}"),
            Attr::Function(func) => write!(f, "@{}", func.name),
            Attr::Placeholder(name) => write!(f, "${name}"),
            Attr::EmptyList => f.write_str("[]"),
            Attr::Strings(v) => list(f, v.iter().map(|s| Quoted(s))),
            Attr::Ints(v) => list(f, v.iter()),
            Attr::Floats(v) => list(f, v.iter().map(|x| format!("{x:?}"))),
            Attr::Bools(v) => list(f, v.iter()),
            Attr::Types(v) => list(f, v.iter()),
            Attr::Shapes(v) => list(f, v.iter().map(|s| format!("shape{s}"))),
            Attr::Tensors(v) => list(f, v.iter().map(|t| format!("{t:?}"))),
            Attr::Functions(v) => list(f, v.iter().map(|x| format!("@{}", x.name))),
        }
    }
}
