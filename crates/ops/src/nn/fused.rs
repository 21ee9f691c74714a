//! `_FusedMatMul`, `_FusedConv2D` and `_FusedBatchNormEx`: what TensorFlow's graph optimizer makes of a product, a
//! convolution or a normalisation with what follows it.

use super::convolution::{Convolution, Kind, Pass};
use crate::math::matmul::MatMul;
use framework::typed::{FloatKernel, NumberKernel, floats};
use framework::{Float, KernelBuild, KernelContext, Op};
use linalg::elementwise::{FieldFunction, add_assign, apply_in_place, map_in_place, zip_in_place};
use linalg::parallel::Pool;
use tensor::{Result, Tensor, invalid, unsupported};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("_FusedMatMul")
            .input("a: T")
            .input("b: T")
            .input("args: num_args*T")
            .output("product: T")
            .attr("transpose_a: bool = false")
            .attr("transpose_b: bool = false")
            .attr("T: {bfloat16, half, float}")
            .attr("num_args: int >= 0")
            .attr("fused_ops: list(string) = []")
            .attr("epsilon: float = 0.0001")
            .attr("leakyrelu_alpha: float = 0.2")
            .costly()
            .shape(crate::math::matmul::shape)
            .kernel(floats(|b| Ok(Fused { base: Product(MatMul::new(b)?), then: Then::new(b)? }))),
        Op::new("_FusedConv2D")
            .input("input: T")
            .input("filter: T")
            .input("args: TArgs")
            .input("host_args: num_host_args*float")
            .output("output: T")
            .attr("T: {half, float, double, int8, qint8}")
            .attr("TArgs: list(type) >= 1")
            .attr("num_args: int >= 0")
            .attr("num_host_args: int >= 0 = 0")
            .attr("strides: list(int)")
            .attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
            .attr("explicit_paddings: list(int) = []")
            .attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
            .attr("filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'")
            .attr("dilations: list(int) = [1, 1, 1, 1]")
            .attr("use_cudnn_on_gpu: bool = true")
            .attr("fused_ops: list(string) = []")
            .attr("epsilon: float = 0.0001")
            .attr("leakyrelu_alpha: float = 0.2")
            .costly()
            .shape(super::convolution::conv2d_shape)
            .kernel(floats(|b| {
                Ok(Fused { base: Convolution::new(b, Kind::Full, Pass::Forward)?, then: Then::new(b)? })
            })),
        Op::new("_FusedBatchNormEx")
            .input("x: T")
            .input("scale: U")
            .input("offset: U")
            .input("mean: U")
            .input("variance: U")
            .input("side_input: num_side_inputs*T")
            .output("y: T")
            .output("batch_mean: U")
            .output("batch_variance: U")
            .output("reserve_space_1: U")
            .output("reserve_space_2: U")
            .output("reserve_space_3: U")
            .attr("T: {half, float, bfloat16}")
            .attr("U: {float}")
            .attr("epsilon: float = 0.0001")
            .attr("exponential_avg_factor: float = 1.0")
            .attr("num_side_inputs: int >= 0 = 0")
            .attr("activation_mode: string = 'Identity'")
            .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
            .attr("is_training: bool = true")
            .costly()
            .shape(super::batch_norm::forward_shape)
            .kernel(floats(|b| Ok(Fused { base: super::batch_norm::Forward::new(b)?, then: Then::after_norm(b)? }))),
    ]
}

/// A kernel whose output is changed before anybody sees it.
struct Fused<K> {
    base: K,
    then: Then,
}

/// What is done to the output, in order.
struct Then(Vec<Stage>);

/// One step; the numbers are those of the inputs it uses.
enum Stage {
    /// One number for each channel.
    Bias(usize),
    /// A tensor of the same shape.
    Add(usize),
    /// Scale, offset, mean and variance of each channel, from this input on.
    Normalize {
        first: usize,
        epsilon: f32,
    },
    Relu,
    Relu6,
    Elu,
    LeakyRelu(f32),
    Tanh,
    Sigmoid,
    GeluExact,
    GeluApproximate,
}

impl Then {
    fn new(b: &KernelBuild<'_>) -> Result<Then> {
        let names: Vec<String> = b.attr("fused_ops")?;
        let mut next = 2;
        let mut stages = Vec::with_capacity(names.len());
        for name in &names {
            let (stage, uses) = match name.as_str() {
                "BiasAdd" => (Stage::Bias(next), 1),
                "Add" => (Stage::Add(next), 1),
                "FusedBatchNorm" => (Stage::Normalize { first: next, epsilon: b.attr("epsilon")? }, 4),
                "Relu" => (Stage::Relu, 0),
                "Relu6" => (Stage::Relu6, 0),
                "Elu" => (Stage::Elu, 0),
                "LeakyRelu" => (Stage::LeakyRelu(b.attr("leakyrelu_alpha")?), 0),
                "Tanh" => (Stage::Tanh, 0),
                "Sigmoid" => (Stage::Sigmoid, 0),
                "GeluExact" => (Stage::GeluExact, 0),
                "GeluApproximate" => (Stage::GeluApproximate, 0),
                _ => return Err(unsupported!("Fusion is not implemented: [{}]", names.join(","))),
            };
            next += uses;
            stages.push(stage);
        }
        if names.is_empty() {
            return Err(invalid!("Fused {} must have at least one fused op.", b.node.op.name));
        }
        let given = b.node.inputs.len();
        if given != next {
            return Err(invalid!("[{}] takes {} arguments, found {}", names.join(","), next - 2, given.max(2) - 2));
        }
        Ok(Then(stages))
    }

    fn after_norm(b: &KernelBuild<'_>) -> Result<Then> {
        let mut stages: Vec<Stage> = (5..b.node.inputs.len()).map(Stage::Add).collect();
        match b.attr::<String>("activation_mode")?.as_str() {
            "Identity" => {}
            "Relu" => stages.push(Stage::Relu),
            other => return Err(unsupported!("activation mode {other} after a normalisation is not implemented")),
        }
        Ok(Then(stages))
    }

    /// Changes what the base kernel left in output 0. Channels are the last dimension.
    fn finish<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut y = ctx.take_output(0)?.into_owned::<T>()?;
        let channels = y.shape().dims().last().copied().unwrap_or(1);
        let shape = y.shape().clone();
        let of_channels = |input: &Tensor| match input.dims() {
            [count] if *count == channels => Ok(()),
            _ => Err(invalid!("wanted one number for each of {channels} channels, found shape {}", input.shape())),
        };
        for stage in &self.0 {
            match stage {
                Stage::Bias(i) => {
                    of_channels(ctx.input(*i))?;
                    let bias = ctx.input(*i).as_slice::<T>()?;
                    rows(ctx.pool(), &mut y, channels, &|row| add_assign(row, bias));
                }
                Stage::Add(i) => {
                    if *ctx.input(*i).shape() != shape {
                        return Err(invalid!("wanted a tensor of shape {shape}, found {}", ctx.input(*i).shape()));
                    }
                    zip_in_place(ctx.pool(), &mut y, ctx.input(*i).as_slice::<T>()?, |a: T, b: T| a.add(b));
                }
                Stage::Normalize { first, epsilon } => {
                    (*first..first + 4).try_for_each(|i| of_channels(ctx.input(i)))?;
                    let (by, plus) = linear::<T>(ctx, *first, *epsilon)?;
                    rows(ctx.pool(), &mut y, channels, &|row| {
                        for (x, (by, plus)) in row.iter_mut().zip(by.iter().zip(&plus)) {
                            *x = x.mul(*by).add(*plus);
                        }
                    });
                }
                other => activate(ctx.pool(), other, &mut y),
            }
        }
        ctx.set_output(0, y)
    }
}

/// A normalisation by given moments as a factor and a summand for each channel.
fn linear<T: Float>(ctx: &KernelContext<'_>, first: usize, epsilon: f32) -> Result<(Vec<T>, Vec<T>)> {
    let [scale, offset, mean, variance] = [0, 1, 2, 3].map(|i| ctx.input(first + i).as_slice::<T>());
    let (scale, offset, mean, variance) = (scale?, offset?, mean?, variance?);
    let epsilon = T::from_f64(f64::from(epsilon));
    let by: Vec<T> = scale.iter().zip(variance).map(|(s, v)| s.mul(v.add(epsilon).rsqrt())).collect();
    let plus = offset.iter().zip(mean.iter().zip(&by)).map(|(o, (m, by))| o.sub(m.mul(*by))).collect();
    Ok((by, plus))
}

fn rows<T: Float>(pool: &Pool, data: &mut [T], channels: usize, change: &(dyn Fn(&mut [T]) + Sync)) {
    /// Elements worth a thread.
    const GRAIN: usize = 1 << 15;
    pool.for_each_row(data, channels, GRAIN / channels.max(1) + 1, &|_, part| {
        part.chunks_exact_mut(channels).for_each(change);
    });
}

fn activate<T: Float>(pool: &Pool, stage: &Stage, data: &mut [T]) {
    let number = |x: f64| T::from_f64(x);
    match stage {
        Stage::Relu => map_in_place(pool, data, |x: T| if x < T::ZERO { T::ZERO } else { x }),
        Stage::Relu6 => {
            let six = number(6.0);
            map_in_place(pool, data, |x: T| {
                if x < T::ZERO {
                    T::ZERO
                } else if x > six {
                    six
                } else {
                    x
                }
            });
        }
        Stage::Elu => map_in_place(pool, data, T::elu),
        Stage::LeakyRelu(alpha) => {
            let alpha = number(f64::from(*alpha));
            map_in_place(pool, data, |x: T| if x > T::ZERO { x } else { x.mul(alpha) });
        }
        Stage::Tanh => apply_in_place(pool, FieldFunction::Tanh, data),
        Stage::Sigmoid => apply_in_place(pool, FieldFunction::Sigmoid, data),
        Stage::GeluExact => {
            let (half, root) = (number(0.5), number(std::f64::consts::FRAC_1_SQRT_2));
            map_in_place(pool, data, |x: T| x.mul(half).mul(T::ONE.add(x.mul(root).erf())));
        }
        Stage::GeluApproximate => {
            let (half, root) = (number(0.5), number((2.0 / std::f64::consts::PI).sqrt()));
            let cubic = number(0.044715);
            map_in_place(pool, data, |x: T| {
                let inner = root.mul(x.add(cubic.mul(x).mul(x).mul(x)));
                x.mul(half).mul(T::ONE.add(inner.tanh()))
            });
        }
        Stage::Bias(_) | Stage::Add(_) | Stage::Normalize { .. } => {}
    }
}

impl<K: FloatKernel> FloatKernel for Fused<K> {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.base.compute::<T>(ctx)?;
        self.then.finish::<T>(ctx)
    }
}

struct Product(MatMul);

impl FloatKernel for Product {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.0.compute::<T>(ctx)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, run};
    use framework::Attr;
    use tensor::Code;

    fn fused(names: &[&str]) -> (&'static str, Attr) {
        ("fused_ops", Attr::Strings(names.iter().map(|n| (*n).to_string().into()).collect()))
    }

    #[test]
    fn a_product_is_followed_by_bias_and_activation() {
        let (a, b) = (f32s([2, 1], &[1.0, -2.0]), f32s([1, 2], &[1.0, 3.0]));
        let bias = f32s([2], &[0.5, -4.0]);
        for (names, want) in [
            (&["BiasAdd"][..], [1.5, -1.0, -1.5, -10.0]),
            (&["BiasAdd", "Relu"], [1.5, 0.0, 0.0, 0.0]),
            (&["BiasAdd", "LeakyRelu"], [1.5, -0.2, -0.3, -2.0]),
            (&["BiasAdd", "Tanh"], [0.905_148_27, -0.761_594_2, -0.905_148_27, -1.0]),
        ] {
            check("_FusedMatMul", &[fused(names)], &[a.clone(), b.clone(), bias.clone()], &[f32s([2, 2], &want)]);
        }
        let error = run("_FusedMatMul", &[fused(&["BiasAdd", "Unheard"])], &[a.clone(), b.clone(), bias]).unwrap_err();
        assert_eq!(error.code, Code::Unimplemented);
        assert!(run("_FusedMatMul", &[fused(&["BiasAdd"])], &[a.clone(), b.clone(), f32s([1], &[1.0])]).is_err());
        assert!(run("_FusedMatMul", &[fused(&["BiasAdd"])], &[a, b]).is_err());
    }

    #[test]
    fn a_convolution_is_normalised_by_given_moments() {
        let (x, filter) = (f32s([1, 1, 2, 1], &[1.0, 2.0]), f32s([1, 1, 1, 1], &[2.0]));
        let one = |v: f32| f32s([1], &[v]);
        let inputs = [x, filter, one(3.0), one(0.5), one(1.0), one(4.0)];
        let attrs = [
            fused(&["FusedBatchNorm", "Relu"]),
            ("epsilon", Attr::Float(0.0)),
            ("strides", vec![1i64, 1, 1, 1].into()),
            ("padding", "VALID".into()),
            ("num_args", 4i64.into()),
        ];
        check("_FusedConv2D", &attrs, &inputs, &[f32s([1, 1, 2, 1], &[2.0, 5.0])]);
    }
}
