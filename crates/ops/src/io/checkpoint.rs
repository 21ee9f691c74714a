//! `SaveV2`, `RestoreV2` and `MergeV2Checkpoints`: tensors to and from checkpoints on disk.

use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelContext, Op, shapes};
use std::path::PathBuf;
use std::sync::Arc;
use storage::{BundleReader, BundleWriter, LocalFiles, MergeOptions, Stored, TensorSlice, merge_bundles};
use tensor::{Code, DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SaveV2")
            .input("prefix: string")
            .input("tensor_names: string")
            .input("shape_and_slices: string")
            .input("tensors: dtypes")
            .attr("dtypes: list(type) >= 1")
            .stateful()
            .costly()
            .shape(shapes::no_outputs)
            .kernel(kernel(|_| Ok(Save))),
        Op::new("RestoreV2")
            .input("prefix: string")
            .input("tensor_names: string")
            .input("shape_and_slices: string")
            .output("tensors: dtypes")
            .attr("dtypes: list(type) >= 1")
            .stateful()
            .costly()
            .shape(restore_shape)
            .kernel(kernel(|b| Ok(Restore { dtypes: b.attr("dtypes")? }))),
        // What the planner makes of the former, so that a model need not be in memory twice; no client writes these.
        Op::new("_RestoreCheck")
            .input("prefix: string")
            .input("tensor_names: string")
            .input("shape_and_slices: string")
            .output("checked_prefix: string")
            .attr("dtypes: list(type) >= 1")
            .stateful()
            .costly()
            .shape(shapes::scalar)
            .kernel(kernel(|b| Ok(RestoreCheck { dtypes: b.attr("dtypes")? }))),
        Op::new("_RestorePart")
            .input("checked_prefix: string")
            .input("tensor_names: string")
            .input("shape_and_slices: string")
            .output("tensor: dtype")
            .attr("dtype: type")
            .attr("index: int >= 0")
            .stateful()
            .costly()
            .shape(shapes::unknown)
            .kernel(kernel(|b| Ok(RestorePart { dtype: b.attr("dtype")?, index: b.attr::<i64>("index")? as usize }))),
        Op::new("MergeV2Checkpoints")
            .input("checkpoint_prefixes: string")
            .input("destination_prefix: string")
            .attr("delete_old_dirs: bool = true")
            .attr("allow_missing_files: bool = false")
            .stateful()
            .costly()
            .shape(shapes::no_outputs)
            .kernel(kernel(|b| {
                Ok(Merge(MergeOptions {
                    delete_old_dirs: b.attr("delete_old_dirs")?,
                    allow_missing: b.attr("allow_missing_files")?,
                }))
            })),
    ]
}

/// Known where the slices are, and say something.
fn restore_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let slices = c.input_value(2).and_then(|t| t.as_strings().ok());
    let shapes = (0..c.num_outputs()).map(|i| match slices.and_then(|s| s.get(i)) {
        Some(text) if !text.is_empty() => {
            let (full, slice) = TensorSlice::parse_with_shape(&String::from_utf8_lossy(text))?;
            Ok(slice.shape_within(&full)?.into())
        }
        _ => Ok(PartialShape::unknown()),
    });
    shapes.collect()
}

fn path(tensor: &Tensor) -> Result<PathBuf> {
    let text = tensor
        .string_item()
        .map_err(|_| invalid!("Input prefix should have a single element, got {} instead.", tensor.num_elements()))?;
    let text = std::str::from_utf8(text).map_err(|_| invalid!("a checkpoint's prefix is not UTF-8"))?;
    Ok(PathBuf::from(text))
}

/// The names and slices of the tensors to save or restore, one of each for every tensor.
fn names_and_slices(ctx: &KernelContext<'_>, count: usize) -> Result<Vec<(String, String)>> {
    for (what, tensor) in [("tensor_names", ctx.input(1)), ("shape_and_slices", ctx.input(2))] {
        if tensor.shape().rank() != 1 || tensor.num_elements() != count {
            return Err(invalid!("Input {what} should be an 1-D tensor of {count}, got shape {}", tensor.shape()));
        }
    }
    (0..count).map(|index| name_and_slice(ctx, index)).collect()
}

/// The name and the slice of one of the tensors.
fn name_and_slice(ctx: &KernelContext<'_>, index: usize) -> Result<(String, String)> {
    let (names, slices) = (ctx.input(1).as_strings()?, ctx.input(2).as_strings()?);
    let (Some(name), Some(slice)) = (names.get(index), slices.get(index)) else {
        let (names, slices) = (names.len(), slices.len());
        return Err(invalid!("tensor {index} is wanted of {names} names and {slices} slices"));
    };
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_string);
    match (text(name), text(slice)) {
        (Ok(name), Ok(slice)) => Ok((name, slice)),
        _ => Err(invalid!("the name or slice of a tensor is not UTF-8: {:?}", String::from_utf8_lossy(name))),
    }
}

struct Save;

impl Kernel for Save {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let prefix = path(ctx.input(0))?;
        let count = ctx.num_inputs() - 3;
        let names = names_and_slices(ctx, count)?;
        let stored = names.iter().enumerate().map(|(i, (name, slice))| {
            let slice = (!slice.is_empty()).then(|| TensorSlice::parse_with_shape(slice)).transpose()?;
            Ok(Stored { name, slice, tensor: ctx.input(3 + i) })
        });
        let stored = stored.collect::<Result<Vec<_>>>()?;
        let mut writer = BundleWriter::create(Arc::new(LocalFiles), &prefix)?;
        writer.add_all(&stored)?;
        writer.finish()
    }
}

struct Restore {
    dtypes: Vec<DType>,
}

impl Kernel for Restore {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let prefix = path(ctx.input(0))?;
        let names = names_and_slices(ctx, self.dtypes.len())?;
        let reader = BundleReader::open(Arc::new(LocalFiles), &prefix)?;
        for (i, ((name, slice), &dtype)) in names.iter().zip(&self.dtypes).enumerate() {
            ctx.set_output(i, restore(&reader, name, slice, dtype)?)?;
        }
        Ok(())
    }
}

fn restore(reader: &BundleReader, name: &str, slice: &str, dtype: DType) -> Result<Tensor> {
    match check(reader, name, slice, dtype)? {
        None => reader.read(name),
        Some(slice) => reader.read_slice(name, &slice),
    }
}

/// Whether a tensor is there and is what is wanted; the part of it that is, unless it is the whole.
fn check(reader: &BundleReader, name: &str, slice: &str, dtype: DType) -> Result<Option<TensorSlice>> {
    let info = reader.lookup(name)?;
    if info.dtype != dtype {
        return Err(invalid!(
            "tensor_name = {name}; expected dtype {dtype} does not equal original dtype {}",
            info.dtype
        ));
    }
    if slice.is_empty() {
        return Ok(None);
    }
    let (full, slice) = TensorSlice::parse_with_shape(slice)?;
    if full != info.shape {
        return Err(invalid!(
            "tensor_name = {name}; shape in shape_and_slice spec {full} does not match the shape stored in checkpoint: {}",
            info.shape
        ));
    }
    Ok(Some(slice))
}

struct RestoreCheck {
    dtypes: Vec<DType>,
}

impl Kernel for RestoreCheck {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let prefix = path(ctx.input(0))?;
        let names = names_and_slices(ctx, self.dtypes.len())?;
        let reader = BundleReader::open(Arc::new(LocalFiles), &prefix)?;
        for ((name, slice), &dtype) in names.iter().zip(&self.dtypes) {
            check(&reader, name, slice, dtype)?;
        }
        ctx.set_output(0, ctx.input(0).clone())
    }
}

struct RestorePart {
    dtype: DType,
    index: usize,
}

impl Kernel for RestorePart {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let prefix = path(ctx.input(0))?;
        let (name, slice) = name_and_slice(ctx, self.index)?;
        let reader = BundleReader::open(Arc::new(LocalFiles), &prefix)?;
        ctx.set_output(0, restore(&reader, &name, &slice, self.dtype)?)
    }
}

struct Merge(MergeOptions);

impl Kernel for Merge {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let merged = path(ctx.input(1))?;
        if ctx.input(0).shape().rank() != 1 {
            return Err(invalid!("Input checkpoint_prefixes should be an 1-D tensor, got {}", ctx.input(0).shape()));
        }
        let prefixes = ctx.input(0).as_strings()?.iter().map(|text| {
            let text = std::str::from_utf8(text).map_err(|_| invalid!("a checkpoint's prefix is not UTF-8"))?;
            Ok(PathBuf::from(text))
        });
        let prefixes = prefixes.collect::<Result<Vec<_>>>()?;
        merge_bundles(&LocalFiles, &prefixes, &merged, self.0).map_err(|e| match e.code {
            Code::NotFound => invalid!("allow_missing_files is set to false, but a file does not exist: {}", e.message),
            _ => e,
        })
    }
}
