//! The table ops: declare, fill, look up, change. `table.rs` has the table itself.

use super::table::{Table, TableSpec};
use crate::data_flow::{Declared, resolve};
use framework::kernel::{function, kernel};
use framework::op::KernelFn;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, shapes};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        declares("HashTableV2", kernel(|b| Declare::new(b, false))),
        declares("MutableHashTableV2", kernel(|b| Declare::new(b, true))),
        takes_entries("InitializeTableV2", "Tkey", "Tval", function(initialize)).not_differentiable(),
        takes_entries("LookupTableInsertV2", "Tin", "Tout", function(insert)).not_differentiable(),
        takes_entries("LookupTableImportV2", "Tin", "Tout", function(import)),
        Op::new("LookupTableFindV2")
            .input("table_handle: resource")
            .input("keys: Tin")
            .input("default_value: Tout")
            .output("values: Tout")
            .attr("Tin: type")
            .attr("Tout: type")
            .stateful()
            .not_differentiable()
            .shape(|c| Ok(vec![c.input(1).clone()]))
            .kernel(function(find)),
        Op::new("LookupTableRemoveV2")
            .input("table_handle: resource")
            .input("keys: Tin")
            .attr("Tin: type")
            .stateful()
            .shape(shapes::no_outputs)
            .kernel(function(remove)),
        Op::new("LookupTableExportV2")
            .input("table_handle: resource")
            .output("keys: Tkeys")
            .output("values: Tvalues")
            .attr("Tkeys: type")
            .attr("Tvalues: type")
            .stateful()
            .shape(|_| Ok(vec![PartialShape::of_rank(1), PartialShape::unknown()]))
            .kernel(kernel(|b| Ok(Export { keys: b.attr("Tkeys")?, values: b.attr("Tvalues")? }))),
        Op::new("LookupTableSizeV2")
            .input("table_handle: resource")
            .output("size: int64")
            .stateful()
            .not_differentiable()
            .shape(shapes::scalar)
            .kernel(function(size)),
    ]
}

fn declares(name: &str, kernel: KernelFn) -> Op {
    let op = Op::new(name).output("table_handle: resource").attr("container: string = ''");
    let op = op.attr("shared_name: string = ''").attr("use_node_name_sharing: bool = false");
    let op = op.attr("key_dtype: type").attr("value_dtype: type").stateful().not_differentiable();
    op.shape(shapes::scalar).kernel(kernel)
}

fn takes_entries(name: &str, key: &str, value: &str, kernel: KernelFn) -> Op {
    let op = Op::new(name).input("table_handle: resource");
    let op = op.input(&format!("keys: {key}")).input(&format!("values: {value}"));
    let op = op.attr(&format!("{key}: type")).attr(&format!("{value}: type")).stateful();
    op.shape(entries_shape).kernel(kernel)
}

fn entries_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.input(1).merge(c.input(2))?;
    Ok(Vec::new())
}

/// Makes a table, or finds one of its shared name.
struct Declare {
    declared: Declared<Table>,
    spec: TableSpec,
}

impl Declare {
    fn new(b: &KernelBuild<'_>, is_mutable: bool) -> Result<Declare> {
        use DType::*;
        let spec = TableSpec { key_dtype: b.attr("key_dtype")?, value_dtype: b.attr("value_dtype")?, is_mutable };
        let serves_value = matches!(spec.value_dtype, Bool | F64 | F32 | I32 | I64 | String)
            || (spec.value_dtype == Variant && is_mutable);
        if !matches!(spec.key_dtype, I32 | I64 | String) || !serves_value {
            return Err(invalid!(
                "No OpKernel was registered to support Op '{}' with keys of {} and values of {}",
                b.node.op.name,
                spec.key_dtype,
                spec.value_dtype
            ));
        }
        Ok(Declare { declared: Declared::new_table(b)?, spec })
    }
}

impl Kernel for Declare {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.declared.output(
            ctx,
            |_| Ok(Table::new(self.spec.clone())),
            |found, name| match found.spec() == &self.spec {
                true => Ok(()),
                false => Err(invalid!(
                    "Conflicting key/value dtypes {}->{} with {}-{} for table {name}",
                    self.spec.key_dtype,
                    self.spec.value_dtype,
                    found.spec().key_dtype,
                    found.spec().value_dtype
                )),
            },
        )
    }
}

fn table(ctx: &KernelContext<'_>) -> Result<Arc<Table>> {
    resolve(ctx.resources(), ctx.input_value(0))
}

fn initialize(ctx: &mut KernelContext<'_>) -> Result<()> {
    let table = table(ctx)?;
    if table.spec().is_mutable {
        return Err(invalid!("a mutable table is not initializable: entries are inserted or imported"));
    }
    if ctx.input(1).shape().rank() != 1 {
        return Err(invalid!("Keys must be a vector, but received shape: {}", ctx.input(1).shape()));
    }
    table.initialize(ctx.input(1), ctx.input(2))
}

fn insert(ctx: &mut KernelContext<'_>) -> Result<()> {
    table(ctx)?.insert(ctx.input(1), ctx.input(2))
}

fn import(ctx: &mut KernelContext<'_>) -> Result<()> {
    table(ctx)?.import(ctx.input(1), ctx.input(2))
}

fn find(ctx: &mut KernelContext<'_>) -> Result<()> {
    let found = table(ctx)?.find(ctx.input(1), ctx.input(2))?;
    ctx.set_output(0, found)
}

fn remove(ctx: &mut KernelContext<'_>) -> Result<()> {
    table(ctx)?.remove(ctx.input(1))
}

struct Export {
    keys: DType,
    values: DType,
}

impl Kernel for Export {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let table = table(ctx)?;
        table.check_types(self.keys, self.values)?;
        let (keys, values) = table.export()?;
        ctx.set_output(0, keys)?;
        ctx.set_output(1, values)
    }
}

fn size(ctx: &mut KernelContext<'_>) -> Result<()> {
    let size = table(ctx)?.len();
    ctx.set_output(0, Tensor::scalar(size as i64))
}
