//! `tf.data`: datasets, which describe elements, and iterators, which produce them one by one.
//!
//! A dataset is an immutable value that travels as a variant; [`Dataset::iterate`] starts a pass over its elements. A
//! pass is asked for one element at a time and may have to wait, as when it calls a function.

mod batch;
mod cache;
pub(crate) mod files;
mod functions;
mod iterator;
mod padded_batch;
mod pass_through;
mod selection;
mod shuffle;
mod sources;

use framework::{KernelContext, Op, StepContext};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tensor::{PartialShape, Result, Tensor, Variant, VariantValue, invalid};

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        batch::ops(),
        cache::ops(),
        files::ops(),
        functions::ops(),
        iterator::ops(),
        padded_batch::ops(),
        pass_through::ops(),
        selection::ops(),
        shuffle::ops(),
        sources::ops(),
    ]
    .concat()
}

/// One element: a tensor for each component.
pub(crate) type Element = Vec<Tensor>;

/// The next element on its way; `None` is the end.
pub(crate) type Next<'a> = Pin<Box<dyn Future<Output = Result<Option<Element>>> + Send + 'a>>;

/// A description of elements.
pub(crate) trait Dataset: Send + Sync + 'static {
    /// Starts a pass over the elements.
    fn iterate(&self) -> Result<Box<dyn Elements>>;
}

/// A pass over a dataset's elements. After the end it stays at the end.
pub(crate) trait Elements: Send {
    /// The next element. Functions are called as a part of the step that asks.
    fn next<'a>(&'a mut self, step: &'a StepContext) -> Next<'a>;
}

/// A dataset that several hold.
pub(crate) type Shared = Arc<dyn Dataset>;

/// A dataset as a tensor's element.
struct Wrapped(Shared);

impl VariantValue for Wrapped {
    fn type_name(&self) -> &str {
        "tensorflow::DatasetVariantWrapper"
    }
}

/// The dataset that a tensor holds.
pub(crate) fn unwrap(tensor: &Tensor) -> Result<Shared> {
    match tensor.as_variants()? {
        [variant] if tensor.shape().is_scalar() => {
            let wrapped = variant.get::<Wrapped>();
            Ok(wrapped.ok_or_else(|| invalid!("Tensor must be a Dataset object."))?.0.clone())
        }
        _ => Err(invalid!("Dataset tensor must be a scalar of dtype DT_VARIANT.")),
    }
}

/// The dataset in an input.
pub(crate) fn input(ctx: &KernelContext<'_>, index: usize) -> Result<Shared> {
    unwrap(ctx.input(index))
}

/// Sets output 0 to a dataset.
pub(crate) fn output(ctx: &mut KernelContext<'_>, dataset: impl Dataset) -> Result<()> {
    output_shared(ctx, Arc::new(dataset))
}

/// Sets output 0 to a dataset that others hold too.
pub(crate) fn output_shared(ctx: &mut KernelContext<'_>, dataset: Shared) -> Result<()> {
    ctx.set_output(0, Tensor::from_variants([], vec![Variant::new(Wrapped(dataset))])?)
}

/// A scalar number in an input.
pub(crate) fn number(ctx: &KernelContext<'_>, index: usize, name: &str) -> Result<i64> {
    match ctx.input(index).shape().is_scalar() {
        true => ctx.input(index).item::<i64>(),
        false => Err(invalid!("{name} must be a scalar")),
    }
}

/// A scalar text in an input.
pub(crate) fn text(ctx: &KernelContext<'_>, index: usize, name: &str) -> Result<String> {
    let value = ctx.input(index);
    if !value.shape().is_scalar() {
        return Err(invalid!("{name} must be a scalar"));
    }
    String::from_utf8(value.string_item()?.to_vec()).map_err(|_| invalid!("{name} is not UTF-8"))
}

/// The shape of a dataset's tensor.
pub(crate) fn scalar_shape(c: &framework::InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    framework::shapes::scalar(c)
}

/// Calls a function that is generic over items with those of a type.
macro_rules! by_item {
    ($dtype:expr, $f:ident ( $($arg:expr),* )) => {
        match ($dtype, $dtype.size()) {
            (tensor::DType::String, _) => $f::<bytes::Bytes>($($arg),*),
            (tensor::DType::Resource, _) => $f::<tensor::ResourceHandle>($($arg),*),
            (tensor::DType::Variant, _) => $f::<tensor::Variant>($($arg),*),
            (_, 1) => $f::<u8>($($arg),*),
            (_, 2) => $f::<u16>($($arg),*),
            (_, 4) => $f::<u32>($($arg),*),
            (_, 8) => $f::<u64>($($arg),*),
            _ => $f::<u128>($($arg),*),
        }
    };
}
pub(crate) use by_item;

/// An element that needs no waiting.
pub(crate) fn ready<'a>(next: Result<Option<Element>>) -> Next<'a> {
    Box::pin(std::future::ready(next))
}
