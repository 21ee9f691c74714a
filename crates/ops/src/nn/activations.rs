//! Activations and their gradients: one row each.

use crate::math::pairs::{map_each, map_pairs};
use framework::gradient::GradFn;
use framework::typed::{FloatKernel, RealKernel, floats, wide_floats, wide_reals};
use framework::{Float, Grad, GradValue, KernelBuild, KernelContext, Op, Output, Real, Scope, shapes};
use tensor::{Element, Result, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    const REALS: &str =
        "{float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}";
    const FLOATS: &str = "{half, bfloat16, float, double}";
    vec![
        forward("Relu", REALS, |s, g| gradient(s, "ReluGrad", g.outputs[0], g)).kernel(wide_reals(|_| Ok(Relu))),
        backward("ReluGrad", "features", "realnumbertype", flat).kernel(wide_reals(|_| Ok(ReluGrad))),
        forward("Relu6", "realnumbertype", |s, g| gradient(s, "Relu6Grad", g.outputs[0], g))
            .kernel(wide_reals(|_| Ok(Relu6))),
        backward("Relu6Grad", "features", "realnumbertype", flat).kernel(wide_reals(|_| Ok(Relu6Grad))),
        forward("Elu", FLOATS, |s, g| gradient(s, "EluGrad", g.outputs[0], g)).kernel(wide_floats(|_| Ok(Elu))),
        backward("EluGrad", "outputs", FLOATS, bent).kernel(floats(|_| Ok(EluGrad))),
        forward("Selu", FLOATS, |s, g| gradient(s, "SeluGrad", g.outputs[0], g)).kernel(floats(|_| Ok(Selu))),
        backward("SeluGrad", "outputs", FLOATS, bent).kernel(floats(|_| Ok(SeluGrad))),
        forward("LeakyRelu", "{half, bfloat16, float, double} = float", leaky_gradient)
            .attr("alpha: float = 0.2")
            .kernel(floats(LeakyRelu::new)),
        backward("LeakyReluGrad", "features", "{half, bfloat16, float, double} = float", leaky_flat)
            .attr("alpha: float = 0.2")
            .kernel(floats(|b| Ok(LeakyReluGrad(LeakyRelu::new(b)?)))),
        forward("Softplus", FLOATS, |s, g| gradient(s, "SoftplusGrad", g.inputs[0], g))
            .kernel(floats(|_| Ok(Softplus))),
        forward("Softsign", FLOATS, |s, g| gradient(s, "SoftsignGrad", g.inputs[0], g))
            .kernel(floats(|_| Ok(Softsign))),
        Op::new("SoftsignGrad")
            .input("gradients: T")
            .input("features: T")
            .output("backprops: T")
            .attr(&format!("T: {FLOATS}"))
            .shape(shapes::merged)
            .kernel(floats(|_| Ok(SoftsignGrad))),
        backward("SoftplusGrad", "features", FLOATS, softplus_curvature).kernel(floats(|_| Ok(SoftplusGrad))),
    ]
}

/// x where positive, else 0.
pub fn relu(s: &Scope, x: Output) -> Result<Output> {
    s.op("Relu", &[x])
}

/// x, held between 0 and 6.
pub fn relu6(s: &Scope, x: Output) -> Result<Output> {
    s.op("Relu6", &[x])
}

/// x where positive, else e^x - 1.
pub fn elu(s: &Scope, x: Output) -> Result<Output> {
    s.op("Elu", &[x])
}

/// Elu, scaled so that layers of it normalise themselves.
pub fn selu(s: &Scope, x: Output) -> Result<Output> {
    s.op("Selu", &[x])
}

/// x where positive, else `alpha` times x.
pub fn leaky_relu(s: &Scope, x: Output, alpha: f32) -> Result<Output> {
    s.node("LeakyRelu").input(x).attr("alpha", alpha).output()
}

/// log(1 + e^x).
pub fn softplus(s: &Scope, x: Output) -> Result<Output> {
    s.op("Softplus", &[x])
}

fn forward(name: &str, types: &str, gradient: GradFn) -> Op {
    Op::new(name)
        .input("features: T")
        .output("activations: T")
        .attr(&format!("T: {types}"))
        .shape(shapes::unchanged)
        .gradient(gradient)
}

fn backward(name: &str, second: &str, types: &str, gradient: GradFn) -> Op {
    Op::new(name)
        .input("gradients: T")
        .input(&format!("{second}: T"))
        .output("backprops: T")
        .attr(&format!("T: {types}"))
        .shape(shapes::merged)
        .gradient(gradient)
}

fn gradient(s: &Scope, op: &str, by: Output, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![Some(s.op(op, &[g.dy[0], by])?.into())])
}

/// The gradient of a gradient of straight pieces: the same op again, and nothing by the place on the piece.
fn flat(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let op = s.with_graph(|graph| graph.node(g.node).op.name.clone());
    let zeros = s.op("ZerosLike", &[g.inputs[1]])?;
    Ok(vec![Some(s.op(&op, &[g.dy[0], g.inputs[1]])?.into()), Some(zeros.into())])
}

/// The same for an exponential below zero, whose slope is a linear function of its value.
fn bent(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let op = s.with_graph(|graph| graph.node(g.node).op.name.clone());
    let y = g.inputs[1];
    let first = s.op(&op, &[g.dy[0], y])?;
    let below = s.op("Less", &[y, s.constant_of(s.dtype(y)?, 0.0)?])?;
    let product = s.op("Mul", &[g.dy[0], g.inputs[0]])?;
    let second = s.op("Select", &[below, product, s.op("ZerosLike", &[y])?])?;
    Ok(vec![Some(first.into()), Some(second.into())])
}

fn leaky_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let alpha: f32 = g.attr(s, "alpha")?;
    let dx = s.node("LeakyReluGrad").inputs(&[g.dy[0], g.inputs[0]]).attr("alpha", alpha).output()?;
    Ok(vec![Some(dx.into())])
}

fn leaky_flat(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let alpha: f32 = g.attr(s, "alpha")?;
    let first = s.node("LeakyReluGrad").inputs(&[g.dy[0], g.inputs[1]]).attr("alpha", alpha).output()?;
    Ok(vec![Some(first.into()), Some(s.op("ZerosLike", &[g.inputs[1]])?.into())])
}

/// dy·x-slope again, and dy·gradient·sigmoid'(x) = dy·gradient / (e^-x + 2 + e^x).
fn softplus_curvature(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let x = g.inputs[1];
    let first = s.op("SoftplusGrad", &[g.dy[0], x])?;
    let up = s.op("Exp", &[x])?;
    let down = s.op("Exp", &[s.op("Neg", &[x])?])?;
    let below = s.op("Add", &[s.op("Add", &[up, down])?, s.constant_of(s.dtype(x)?, 2.0)?])?;
    let second = s.op("RealDiv", &[s.op("Mul", &[g.dy[0], g.inputs[0]])?, below])?;
    Ok(vec![Some(first.into()), Some(second.into())])
}

/// Output 0 is `f` of every pair of elements of inputs 0 and 1, which have one shape.
fn zip<T: Element>(ctx: &mut KernelContext<'_>, f: impl Fn(T, T) -> T + Sync) -> Result<()> {
    check_shapes(ctx)?;
    map_pairs(ctx, f)
}

fn check_shapes(ctx: &KernelContext<'_>) -> Result<()> {
    let (dy, x) = (ctx.input(0).shape(), ctx.input(1).shape());
    if dy == x {
        return Ok(());
    }
    Err(invalid!(
        "Inputs to operation {} of type {} must have the same size and shape.  Input 0: {dy} != input 1: {x}",
        ctx.node().name,
        ctx.node().op.name
    ))
}

struct Relu;

impl RealKernel for Relu {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        // Written so that NaN stays NaN.
        map_each(ctx, |x: T| if x < T::ZERO { T::ZERO } else { x })
    }
}

struct ReluGrad;

impl RealKernel for ReluGrad {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        zip(ctx, |dy: T, x: T| if x > T::ZERO { dy } else { T::ZERO })
    }
}

struct Relu6;

impl RealKernel for Relu6 {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let six = T::from_i64(6);
        map_each(ctx, move |x: T| {
            let x = if x < T::ZERO { T::ZERO } else { x };
            if x > six { six } else { x }
        })
    }
}

struct Relu6Grad;

impl RealKernel for Relu6Grad {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let six = T::from_i64(6);
        zip(ctx, move |dy: T, x: T| if x > T::ZERO && x < six { dy } else { T::ZERO })
    }
}

struct Elu;

impl FloatKernel for Elu {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        map_each(ctx, T::elu)
    }
}

struct EluGrad;

impl FloatKernel for EluGrad {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        zip(ctx, |dy: T, y: T| if y < T::ZERO { y.add(T::ONE).mul(dy) } else { dy })
    }
}

/// The constants for which mean 0 and variance 1 are a fixed point.
const SELU_SCALE: f64 = 1.0507009873554804934193349852946;
const SELU_SCALE_ALPHA: f64 = 1.7580993408473768599402175208123;

struct Selu;

impl FloatKernel for Selu {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (scale, scale_alpha) = (T::from_f64(SELU_SCALE), T::from_f64(SELU_SCALE_ALPHA));
        map_each(ctx, move |x: T| if x < T::ZERO { scale_alpha.mul(x.expm1()) } else { scale.mul(x) })
    }
}

struct SeluGrad;

impl FloatKernel for SeluGrad {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (scale, scale_alpha) = (T::from_f64(SELU_SCALE), T::from_f64(SELU_SCALE_ALPHA));
        zip(ctx, move |dy: T, y: T| if y < T::ZERO { dy.mul(y.add(scale_alpha)) } else { dy.mul(scale) })
    }
}

struct LeakyRelu {
    alpha: f32,
}

impl LeakyRelu {
    fn new(b: &KernelBuild<'_>) -> Result<LeakyRelu> {
        Ok(LeakyRelu { alpha: b.attr("alpha")? })
    }
}

impl FloatKernel for LeakyRelu {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let alpha = T::from_f32(self.alpha);
        map_each(ctx, move |x: T| if x > T::ZERO { x } else { x.mul(alpha) })
    }
}

struct LeakyReluGrad(LeakyRelu);

impl FloatKernel for LeakyReluGrad {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let alpha = T::from_f32(self.0.alpha);
        zip(ctx, move |dy: T, x: T| if x > T::ZERO { dy } else { dy.mul(alpha) })
    }
}

struct Softplus;

impl FloatKernel for Softplus {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        map_each(ctx, T::softplus)
    }
}

struct SoftplusGrad;

impl FloatKernel for SoftplusGrad {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        zip(ctx, |dy: T, x: T| dy.div(x.neg().exp().add(T::ONE)))
    }
}

struct Softsign;

impl FloatKernel for Softsign {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        map_each(ctx, T::softsign)
    }
}

struct SoftsignGrad;

impl FloatKernel for SoftsignGrad {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        zip(ctx, |dy: T, x: T| {
            let width = x.abs().add(T::ONE);
            dy.div(width.mul(width))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses};
    use framework::Attr;
    use tensor::Tensor;

    #[test]
    fn activations_have_tensorflows_values() {
        let x = f32s([5], &[-3.0, -0.5, 0.0, 2.0, 7.0]);
        check("Relu", &[], std::slice::from_ref(&x), &[f32s([5], &[0.0, 0.0, 0.0, 2.0, 7.0])]);
        check("Relu6", &[], std::slice::from_ref(&x), &[f32s([5], &[0.0, 0.0, 0.0, 2.0, 6.0])]);
        check("Elu", &[], std::slice::from_ref(&x), &[f32s([5], &[-0.95021296, -0.39346936, 0.0, 2.0, 7.0])]);
        check("Selu", &[], std::slice::from_ref(&x), &[f32s([5], &[-1.6705688, -0.691758, 0.0, 2.101402, 7.354907])]);
        check(
            "Softplus",
            &[],
            std::slice::from_ref(&x),
            &[f32s([5], &[0.04858735, 0.474077, std::f32::consts::LN_2, 2.126928, 7.0009117])],
        );
        let alpha = ("alpha", Attr::Float(0.5));
        check("LeakyRelu", &[alpha], &[x], &[f32s([5], &[-1.5, -0.25, 0.0, 2.0, 7.0])]);
    }

    #[test]
    fn a_gradient_passes_where_the_activation_rises() {
        let dy = f32s([4], &[1.0, 2.0, 3.0, 4.0]);
        let x = f32s([4], &[-1.0, 0.0, 1.0, 8.0]);
        check("ReluGrad", &[], &[dy.clone(), x.clone()], &[f32s([4], &[0.0, 0.0, 3.0, 4.0])]);
        check("Relu6Grad", &[], &[dy.clone(), x.clone()], &[f32s([4], &[0.0, 0.0, 3.0, 0.0])]);
        check("EluGrad", &[], &[dy, x], &[f32s([4], &[0.0, 2.0, 3.0, 4.0])]);
    }

    #[test]
    fn integers_have_activations_too() {
        let x = Tensor::from_slice([3], &[-2i8, 0, 9]).unwrap();
        check("Relu6", &[], &[x], &[Tensor::from_slice([3], &[0i8, 0, 6]).unwrap()]);
    }

    #[test]
    fn nan_stays_nan() {
        let y = crate::nn::testing::run("Relu", &[], &[f32s([1], &[f32::NAN])]).unwrap();
        assert!(y[0].item::<f32>().unwrap().is_nan());
    }

    #[test]
    fn a_gradient_of_another_shape_is_refused() {
        refuses("ReluGrad", &[], &[f32s([2], &[1.0, 2.0]), f32s([3], &[1.0, 2.0, 3.0])], "");
    }
}
