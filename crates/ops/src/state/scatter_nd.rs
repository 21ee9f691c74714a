//! `ScatterNdAdd` and its kin: slices put into a variable, or a tensor, at the places that index vectors name.

use super::existing_variable;
use super::variable::same_reference;
use crate::array::scatter_places;
use framework::typed::{Item, MoveKernel, NumberKernel, RealKernel, moves_of, numbers_by, reals_by};
use framework::{BuiltKernel, KernelBuild, KernelContext, Number, Op, Real, Value, shapes};
use std::sync::Arc;
use tensor::{DType, Result, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    let attrs = |op: Op, types: &str, indices: &str| {
        op.attr(types).attr(&format!("Tindices: {indices}")).attr("bad_indices_policy: string = ''")
    };
    let reference = |name: &str, types: &str, locks: bool, fold: Fold| {
        let op = Op::new(name).input("ref: Ref(T)").input("indices: Tindices").input("updates: T");
        attrs(op.output("output_ref: Ref(T)"), types, "indextype")
            .attr(&format!("use_locking: bool = {locks}"))
            .shape(same_reference)
            .kernel(kernel(fold))
    };
    let resource = |name: &str, fold: Fold| {
        let op = Op::new(name).input("ref: resource").input("indices: Tindices").input("updates: T");
        attrs(op, "T: type", "indextype")
            .attr("use_locking: bool = true")
            .stateful()
            .shape(shapes::no_outputs)
            .kernel(kernel(fold))
    };
    let tensor = |name: &str, indices: &str, fold: Fold| {
        let op = Op::new(name).input("tensor: T").input("indices: Tindices").input("updates: T").output("output: T");
        attrs(op, "T: type", indices).shape(shapes::unchanged).kernel(kernel(fold))
    };
    vec![
        reference("ScatterNdAdd", "T: numbertype", false, Fold::Add).not_differentiable(),
        reference("ScatterNdSub", "T: numbertype", false, Fold::Sub).not_differentiable(),
        reference("ScatterNdUpdate", "T: type", true, Fold::Put).not_differentiable(),
        resource("ResourceScatterNdAdd", Fold::Add),
        resource("ResourceScatterNdSub", Fold::Sub),
        resource("ResourceScatterNdUpdate", Fold::Put),
        resource("ResourceScatterNdMin", Fold::Min),
        resource("ResourceScatterNdMax", Fold::Max),
        tensor("TensorScatterUpdate", "{int16, int32, int64, uint16}", Fold::Put).gradient(|s, g| {
            let zeros = s.op("ZerosLike", &[g.inputs[2]])?;
            let rest = s.op("TensorScatterUpdate", &[g.dy[0], g.inputs[1], zeros])?;
            let placed = crate::array::gather_nd(s, g.dy[0], g.inputs[1])?;
            Ok(vec![Some(rest.into()), None, Some(placed.into())])
        }),
        tensor("TensorScatterAdd", "indextype", Fold::Add).gradient(|s, g| {
            let placed = crate::array::gather_nd(s, g.dy[0], g.inputs[1])?;
            Ok(vec![Some(g.dy[0].into()), None, Some(placed.into())])
        }),
        tensor("TensorScatterSub", "indextype", Fold::Sub).gradient(|s, g| {
            let placed = s.op("Neg", &[crate::array::gather_nd(s, g.dy[0], g.inputs[1])?])?;
            Ok(vec![Some(g.dy[0].into()), None, Some(placed.into())])
        }),
        tensor("TensorScatterMin", "indextype", Fold::Min),
        tensor("TensorScatterMax", "indextype", Fold::Max),
    ]
}

/// How an update changes what is there.
#[derive(Clone, Copy, PartialEq)]
enum Fold {
    Put,
    Add,
    Sub,
    Min,
    Max,
}

fn kernel(fold: Fold) -> framework::op::KernelFn {
    Arc::new(move |b: &KernelBuild<'_>| -> Result<BuiltKernel> {
        match fold {
            Fold::Put => moves_of(b.dtype("T")?, Scatter(fold)),
            Fold::Add if b.dtype("T")? == DType::Bool => moves_of(b.dtype("T")?, Scatter(fold)),
            Fold::Add | Fold::Sub => numbers_by(b, "T", Scatter(fold)),
            Fold::Min | Fold::Max => reals_by(b, "T", Scatter(fold)),
        }
    })
}

struct Scatter(Fold);

impl MoveKernel for Scatter {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        // Sums of booleans: whatever is true stays so.
        let is_sum = self.0 == Fold::Add;
        update(ctx, &mut |target, updates, places, row| {
            let updates = I::items(updates)?;
            let items = I::items_mut(target)?;
            for (from, place) in updates.chunks_exact(row).zip(places) {
                let Some(place) = place else { continue };
                for (to, from) in items[place * row..][..row].iter_mut().zip(from) {
                    if !is_sum || *from != I::zero() {
                        to.clone_from(from);
                    }
                }
            }
            Ok(())
        })
    }
}

impl NumberKernel for Scatter {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let fold = if self.0 == Fold::Sub { T::sub } else { T::add };
        update(ctx, &mut |target, updates, places, row| {
            folded(target.as_mut_slice::<T>()?, updates.as_slice()?, places, row, fold);
            Ok(())
        })
    }
}

impl RealKernel for Scatter {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let fold = if self.0 == Fold::Min { T::min } else { T::max };
        update(ctx, &mut |target, updates, places, row| {
            folded(target.as_mut_slice::<T>()?, updates.as_slice()?, places, row, fold);
            Ok(())
        })
    }
}

fn folded<T: Copy>(target: &mut [T], updates: &[T], places: &[Option<usize>], row: usize, fold: fn(T, T) -> T) {
    for (from, place) in updates.chunks_exact(row).zip(places) {
        let Some(place) = place else { continue };
        for (to, from) in target[place * row..][..row].iter_mut().zip(from) {
            *to = fold(*to, *from);
        }
    }
}

/// Changes a tensor, given updates, where their slices belong, and how long a slice is.
type Change<'a> = &'a mut dyn FnMut(&mut Tensor, &Tensor, &[Option<usize>], usize) -> Result<()>;

fn update(ctx: &mut KernelContext<'_>, change: Change<'_>) -> Result<()> {
    let mut apply = |target: &mut Tensor, by: &Tensor, updates: &Tensor, policy: &str| {
        if target.dtype() != updates.dtype() {
            return Err(invalid!("what is changed is {}, the updates are {}", target.dtype(), updates.dtype()));
        }
        let (row, places) = scatter_places(by, updates.shape(), target.shape(), policy)?;
        if row == 0 || places.is_empty() {
            return Ok(());
        }
        change(target, updates, &places, row)
    };
    let policy: String = ctx.node().attr("bad_indices_policy")?;
    if ctx.node().op.inputs[0].name == "tensor" {
        let mut target = ctx.take(0);
        apply(&mut target, ctx.input(1), ctx.input(2), &policy)?;
        return ctx.set_output(0, target);
    }
    let variable = existing_variable(ctx, 0)?;
    let (by, updates) = (ctx.input(1), ctx.input(2));
    variable.update(|target| apply(target, by, updates, &policy))?;
    if ctx.num_outputs() == 1 {
        ctx.set_value(0, Value::Ref(variable))?;
    }
    Ok(())
}
