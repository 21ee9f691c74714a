//! What a value is: element types, shapes, tensors, and the one error type.
//!
//! ```
//! use tensor::{Shape, Tensor};
//!
//! let t = Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0])?;
//! assert_eq!(t.shape(), &Shape::from([2, 2]));
//! assert_eq!(t.as_slice::<f32>()?, &[1.0, 2.0, 3.0, 4.0]);
//! assert!(t.as_slice::<i32>().is_err(), "an error, never a reinterpretation");
//! # Ok::<(), tensor::Error>(())
//! ```

mod arriving;
mod buffer;
mod dtype;
mod error;
mod format;
mod proto;
mod quote;
mod shape;
#[cfg(target_os = "linux")]
mod shared;
mod tensor;

pub use arriving::ArrivingTensor;
pub use buffer::{give_back_memory, memory_limit};
pub use bytes::Bytes;
pub use dtype::{DType, Element, Word};
pub use error::{Code, Error, Result};
pub use half::{bf16, f16};
pub use linalg::number::{Field, Float, Int, Number, Real};
pub use num_complex::Complex;
pub use proto::{dtype_from_proto, shape_from_proto, shape_to_proto};
pub use quote::{Quoted, unquote};
pub use shape::{PartialShape, Shape, broadcast, broadcast_partial};
#[cfg(target_os = "linux")]
pub use shared::{SharedNumber, SharedPlace, map_shared, shared_place};
pub use tensor::{OwnedTensor, ResourceHandle, Tensor, Variant, VariantValue};
