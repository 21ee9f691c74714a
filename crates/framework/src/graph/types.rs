//! Attributes and input types against an op's definition.

use crate::attr::{Attr, Attrs, FromAttr};
use crate::op::{Arg, ArgType, AttrDef, Op};
use tensor::{DType, Result, internal, invalid};

/// A node's name: letters, digits and `_.\/>-`, starting with a letter, digit, dot or underscore.
pub(super) fn check_name(name: &str) -> Result<()> {
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    if !first || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.\\/>-".contains(c)) {
        return Err(invalid!("'{name}' is not a valid node name"));
    }
    Ok(())
}

/// The types of all inputs or all outputs, list arguments unrolled.
pub(super) fn arg_types(args: &[Arg], attrs: &Attrs) -> Result<Vec<(DType, bool)>> {
    let mut types = Vec::with_capacity(args.len());
    for arg in args {
        match &arg.ty {
            ArgType::List(name) => {
                let list = attr::<Vec<DType>>(attrs, name)?;
                types.extend(list.into_iter().map(|d| (d, arg.is_ref)));
            }
            ArgType::Fixed(_) | ArgType::Attr(_) => {
                let dtype = match &arg.ty {
                    ArgType::Attr(name) => attr::<DType>(attrs, name)?,
                    ArgType::Fixed(dtype) => *dtype,
                    ArgType::List(_) => unreachable!("handled above"),
                };
                let count = match &arg.number {
                    Some(name) => attr::<i64>(attrs, name)?,
                    None => 1,
                };
                if !(0..=MAX_LIST).contains(&count) {
                    return Err(invalid!("'{}' is a list of {count}; at most {MAX_LIST} are possible", arg.name));
                }
                types.extend(std::iter::repeat_n((dtype, arg.is_ref), count as usize));
            }
        }
    }
    Ok(types)
}

/// No node has more inputs or outputs than this: a number in a message cannot exhaust memory.
const MAX_LIST: i64 = 1 << 20;

fn attr<T: FromAttr>(attrs: &Attrs, name: &str) -> Result<T> {
    let found = attrs.get(name).and_then(T::from_attr);
    found.ok_or_else(|| invalid!("attribute '{name}' is missing or of the wrong kind"))
}

/// The attributes of a node: those given, those that follow from the inputs, and defaults; all checked.
pub(super) fn complete_attrs(op: &Op, given: &Attrs, inputs: &[(DType, bool)]) -> Result<Attrs> {
    let mut attrs = given.clone();
    infer_attrs(op, &mut attrs, inputs)?;
    for def in &op.attrs {
        if !attrs.contains_key(&def.name) {
            let default = def.default.clone();
            let value = default
                .ok_or_else(|| invalid!("attribute '{}' ({}) of {} is not given", def.name, def.kind, op.name))?;
            attrs.insert(def.name.clone(), value);
        }
        check_attr(op, def, &attrs[&def.name])?;
    }
    Ok(attrs)
}

/// Types and counts that the inputs tell.
fn infer_attrs(op: &Op, attrs: &mut Attrs, inputs: &[(DType, bool)]) -> Result<()> {
    let lengths = input_lengths(op, attrs, inputs.len())?;
    let mut at = 0;
    for (arg, length) in op.inputs.iter().zip(lengths) {
        let found = inputs.get(at..at + length).unwrap_or_default();
        at += length;
        if let Some(number) = &arg.number
            && !attrs.contains_key(number)
        {
            attrs.insert(number.clone(), Attr::Int(length as i64));
        }
        match &arg.ty {
            ArgType::Attr(name) if !attrs.contains_key(name) => {
                if let Some((dtype, _)) = found.first() {
                    attrs.insert(name.clone(), Attr::Type(*dtype));
                }
            }
            ArgType::List(name) if !attrs.contains_key(name) => {
                attrs.insert(name.clone(), Vec::from_iter(found.iter().map(|(d, _)| *d)).into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// How many inputs each input argument takes. Lists whose length no attribute tells share what is left over.
fn input_lengths(op: &Op, attrs: &Attrs, total: usize) -> Result<Vec<usize>> {
    let known: Vec<Option<usize>> = op
        .inputs
        .iter()
        .map(|arg| match (&arg.ty, &arg.number) {
            (ArgType::List(name), _) => attrs.get(name).and_then(Vec::<DType>::from_attr).map(|l| l.len()),
            (_, Some(number)) => attrs.get(number).and_then(i64::from_attr).map(|n| n.clamp(0, MAX_LIST) as usize),
            _ => Some(1),
        })
        .collect();
    let fixed: usize = known.iter().flatten().sum();
    let open = known.iter().filter(|k| k.is_none()).count();
    let rest = total.saturating_sub(fixed);
    let share = rest.checked_div(open).unwrap_or(0);
    Ok(known.into_iter().map(|k| k.unwrap_or(share)).collect())
}

fn check_attr(op: &Op, def: &AttrDef, value: &Attr) -> Result<()> {
    let bad = |why: String| invalid!("attribute '{}' of {}: {why}", def.name, op.name);
    if matches!(value, Attr::Placeholder(_)) {
        return Ok(()); // stands for whatever the enclosing function is given
    }
    let fits = value.kind() == def.kind || (matches!(value, Attr::EmptyList) && def.kind.starts_with("list("));
    if !fits {
        return Err(bad(format!("wanted {}, found {}", def.kind, value.kind())));
    }
    if let Some(allowed) = &def.allowed_types {
        let found = match value {
            Attr::Type(d) | Attr::RefType(d) => std::slice::from_ref(d),
            Attr::Types(list) => list,
            _ => &[],
        };
        if let Some(wrong) = found.iter().find(|d| !allowed.contains(d)) {
            let names: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
            return Err(bad(format!("{wrong} is not in the list of allowed values: {}", names.join(", "))));
        }
    }
    if let Some(allowed) = &def.allowed_strings {
        let found = match value {
            Attr::String(s) => std::slice::from_ref(s),
            Attr::Strings(list) => list,
            _ => &[],
        };
        if let Some(wrong) = found.iter().find(|s| !allowed.iter().any(|a| a.as_bytes() == &s[..])) {
            return Err(bad(format!(
                "{:?} is not in the list of allowed values: {}",
                String::from_utf8_lossy(wrong),
                allowed.join(", ")
            )));
        }
    }
    if let Some(minimum) = def.minimum {
        let found = match value {
            Attr::Int(i) => *i,
            Attr::Strings(l) => l.len() as i64,
            Attr::Ints(l) => l.len() as i64,
            Attr::Floats(l) => l.len() as i64,
            Attr::Bools(l) => l.len() as i64,
            Attr::Types(l) => l.len() as i64,
            Attr::Shapes(l) => l.len() as i64,
            Attr::Tensors(l) => l.len() as i64,
            Attr::Functions(l) => l.len() as i64,
            Attr::EmptyList => 0,
            _ => return Err(internal!("attribute '{}' of {} cannot have a minimum", def.name, op.name)),
        };
        if found < minimum {
            return Err(bad(format!(
                "{} must be at least {minimum}, found {found}",
                if def.kind == "int" { "it" } else { "its length" }
            )));
        }
    }
    Ok(())
}

/// The number and types of the inputs against what op and attributes say.
pub(super) fn check_inputs(op: &Op, attrs: &Attrs, found: &[(DType, bool)]) -> Result<()> {
    let wanted = arg_types(&op.inputs, attrs)?;
    if wanted.len() != found.len() {
        return Err(invalid!("{} wants {} inputs, found {}", op.name, wanted.len(), found.len()));
    }
    for (i, ((want, want_ref), (have, have_ref))) in wanted.iter().zip(found).enumerate() {
        if want != have {
            return Err(invalid!("input {i} of {} should be {want}, found {have}", op.name));
        }
        if *want_ref && !have_ref {
            return Err(invalid!(
                "input {i} of {} should be a reference to a variable of {want}, found a value",
                op.name
            ));
        }
    }
    Ok(())
}
