//! Printing tensors: nested brackets, long dimensions shortened in the middle.

use crate::{DType, Element, Quoted, Tensor};
use std::fmt::{self, Write as _};

/// A dimension longer than this shows its first and last [`EDGE`] entries.
const LONG: usize = 12;
const EDGE: usize = 3;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_level(f, self.dims(), 0, &|f, i| write_element(f, self, i))
    }
}

/// With its type and shape, and its strings between quotes: as the text notation of graphs has it.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ", self.dtype(), self.shape())?;
        match self.as_strings() {
            Ok(values) => write_level(f, self.dims(), 0, &|f, i| write!(f, "{}", Quoted(&values[i]))),
            Err(_) => write!(f, "{self}"),
        }
    }
}

type WriteElement<'a> = &'a dyn Fn(&mut fmt::Formatter<'_>, usize) -> fmt::Result;

fn write_level(f: &mut fmt::Formatter<'_>, dims: &[usize], start: usize, element: WriteElement<'_>) -> fmt::Result {
    let Some((&count, inner)) = dims.split_first() else { return element(f, start) };
    let stride: usize = inner.iter().product();
    f.write_char('[')?;
    for i in 0..count {
        if count > LONG && (EDGE..count - EDGE).contains(&i) {
            if i == EDGE {
                f.write_str(" ...")?;
            }
            continue;
        }
        if i > 0 {
            f.write_char(' ')?;
        }
        write_level(f, inner, start + i * stride, element)?;
    }
    f.write_char(']')
}

fn write_element(f: &mut fmt::Formatter<'_>, t: &Tensor, i: usize) -> fmt::Result {
    fn at<T: Element>(t: &Tensor, i: usize) -> T {
        t.as_slice::<T>().map_or(T::default(), |s| s[i])
    }
    match t.dtype() {
        DType::F32 => write!(f, "{}", at::<f32>(t, i)),
        DType::F64 => write!(f, "{}", at::<f64>(t, i)),
        DType::F16 => write!(f, "{}", at::<crate::f16>(t, i)),
        DType::BF16 => write!(f, "{}", at::<crate::bf16>(t, i)),
        DType::I8 => write!(f, "{}", at::<i8>(t, i)),
        DType::I16 => write!(f, "{}", at::<i16>(t, i)),
        DType::I32 => write!(f, "{}", at::<i32>(t, i)),
        DType::I64 => write!(f, "{}", at::<i64>(t, i)),
        DType::U8 => write!(f, "{}", at::<u8>(t, i)),
        DType::U16 => write!(f, "{}", at::<u16>(t, i)),
        DType::U32 => write!(f, "{}", at::<u32>(t, i)),
        DType::U64 => write!(f, "{}", at::<u64>(t, i)),
        DType::Bool => write!(f, "{}", at::<bool>(t, i)),
        DType::C64 => write!(f, "{}", at::<crate::Complex<f32>>(t, i)),
        DType::C128 => write!(f, "{}", at::<crate::Complex<f64>>(t, i)),
        DType::String => match t.as_strings() {
            Ok(values) => f.write_str(&String::from_utf8_lossy(&values[i])),
            Err(_) => Err(fmt::Error),
        },
        DType::Resource => match t.as_handles() {
            Ok(values) => write!(f, "{:?}", values[i]),
            Err(_) => Err(fmt::Error),
        },
        DType::Variant => f.write_str("<variant>"),
        other => {
            let size = other.size();
            let bytes = t.as_bytes().map_err(|_| fmt::Error)?;
            bytes[i * size..(i + 1) * size].iter().rev().try_for_each(|b| write!(f, "{b:02x}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Tensor;

    #[test]
    fn tensors_print_as_nested_brackets() {
        assert_eq!(Tensor::scalar(1.5f32).to_string(), "1.5");
        assert_eq!(Tensor::from([[1i32, 2], [3, 4]]).to_string(), "[[1 2] [3 4]]");
        assert_eq!(Tensor::from("hello").to_string(), "hello");
        let long = Tensor::from((0..100).collect::<Vec<i64>>());
        assert_eq!(long.to_string(), "[0 1 2 ... 97 98 99]");
        assert_eq!(format!("{:?}", Tensor::from([true])), "bool[1] [true]");
        assert_eq!(format!("{:?}", Tensor::from("two words")), "string[] \"two words\"");
    }
}
