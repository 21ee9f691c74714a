//! One step of each optimizer, in place, in a single pass over a variable, its slots and its gradient.
//!
//! Every optimizer is a struct of its settings with two functions: `apply` runs over everything in parallel, `apply_row`
//! over a stretch on the caller's thread (for sparse gradients). Formulas and their order of rounding are those of
//! TensorFlow's kernels.

use crate::number::Float;
use crate::parallel::{Pool, SharedMut};
use crate::simd::vectorized;

/// Elements worth a thread.
const GRAIN: usize = 1 << 14;

macro_rules! optimizer {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
        ($($state:ident),*; $grad:ident) |$settings:ident| $(let $hoisted:ident = $value:expr;)* $body:block) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<T> {
            $($(#[$field_doc])* pub $field: $field_type,)*
        }

        impl<T: Float> $name<T> {
            /// Updates everything, in parallel; panics unless the slices have one length.
            #[allow(clippy::too_many_arguments)]
            pub fn apply(&self, pool: &Pool, $($state: &mut [T],)* $grad: &[T]) {
                let len = $grad.len();
                assert!($($state.len() == len)&&*, "variable, slots and gradient differ in length");
                $(let $state = SharedMut::new($state);)*
                pool.for_each(len, GRAIN, &|range| {
                    // SAFETY: `for_each` hands out disjoint ranges within `0..len`.
                    $(let $state = unsafe { $state.slice(range.clone()) };)*
                    self.apply_row($($state,)* &$grad[range]);
                });
            }

            /// Updates a stretch, on the caller's thread; panics unless the slices have one length.
            #[allow(clippy::too_many_arguments)]
            pub fn apply_row(&self, $($state: &mut [T],)* $grad: &[T]) {
                #[inline(always)]
                #[allow(clippy::too_many_arguments)]
                fn body<T: Float, const FMA: bool>($settings: &$name<T>, $($state: &mut [T],)* $grad: &[T]) {
                    let $settings = *$settings; // a copy, which no update of a variable can change
                    $(let $hoisted = $value;)*
                    let len = $grad.len();
                    $(let $state = &mut $state[..len];)*
                    for i in 0..len {
                        let $grad = $grad[i];
                        $(let $state = &mut $state[i];)*
                        $body
                    }
                }
                // One element at a time, so that old processors do not double the code.
                #[allow(clippy::too_many_arguments)]
                fn through<T: Float>(settings: &$name<T>, $($state: &mut [T],)* $grad: &[T]) {
                    #[inline(never)]
                    #[allow(clippy::too_many_arguments)]
                    fn each<T: Float>(settings: &$name<T>, $($state: &mut T,)* $grad: T) {
                        body::<T, false>(settings, $(std::slice::from_mut($state),)* &[$grad]);
                    }
                    for (i, &$grad) in $grad.iter().enumerate() {
                        each(settings, $(&mut $state[i],)* $grad);
                    }
                }
                vectorized! {
                    fn run[T][T: Float](settings: &$name<T>, $($state: &mut [T],)* $grad: &[T]) = body or through;
                }
                run::<T>(self, $($state,)* $grad);
            }
        }
    };
}

optimizer! {
    /// Gradient descent.
    GradientDescent {
        /// The learning rate.
        lr: T,
    }
    (var; grad) |settings| {
        *var = var.sub(grad.mul(settings.lr));
    }
}

optimizer! {
    /// Gradient descent with momentum, plain or Nesterov's.
    Momentum {
        /// The learning rate.
        lr: T,
        /// How much of the accumulated direction is kept.
        momentum: T,
        /// Whether to look ahead along the direction.
        nesterov: bool,
    }
    (var, accum; grad) |settings| {
        *accum = accum.mul(settings.momentum).add(grad);
        *var = if settings.nesterov {
            var.sub(grad.mul(settings.lr).add(accum.mul(settings.momentum).mul(settings.lr)))
        } else {
            var.sub(accum.mul(settings.lr))
        };
    }
}

optimizer! {
    /// Momentum that holds the learning rate in its slot, plain or Nesterov's.
    KerasMomentum {
        /// The learning rate.
        lr: T,
        /// How much of the accumulated step is kept.
        momentum: T,
        /// Whether to look ahead along the step.
        nesterov: bool,
    }
    (var, accum; grad) |settings| {
        *accum = accum.mul(settings.momentum).sub(grad.mul(settings.lr));
        *var = if settings.nesterov {
            var.add(accum.mul(settings.momentum).sub(grad.mul(settings.lr)))
        } else {
            var.add(*accum)
        };
    }
}

optimizer! {
    /// Adam: steps scaled by the moments of the gradient.
    Adam {
        /// The learning rate.
        lr: T,
        /// The decay of the first moment.
        beta1: T,
        /// The decay of the second moment.
        beta2: T,
        /// `beta1` to the power of this step's number.
        beta1_power: T,
        /// `beta2` to the power of this step's number.
        beta2_power: T,
        /// Keeps the divisor from zero.
        epsilon: T,
        /// Whether to look ahead along the first moment.
        nesterov: bool,
    }
    (var, m, v; grad) |settings|
    let rate = settings.lr.mul(T::ONE.sub(settings.beta2_power).sqrt()).div(T::ONE.sub(settings.beta1_power));
    let rest1 = T::ONE.sub(settings.beta1);
    let rest2 = T::ONE.sub(settings.beta2);
    {
        *m = m.add(grad.sub(*m).mul(rest1));
        *v = v.add(grad.square().sub(*v).mul(rest2));
        let direction = if settings.nesterov { grad.mul(rest1).add(settings.beta1.mul(*m)) } else { *m };
        *var = var.sub(direction.mul(rate).div(v.sqrt().add(settings.epsilon)));
    }
}

optimizer! {
    /// Adam whose second moment never shrinks.
    AdamAmsgrad {
        /// The learning rate.
        lr: T,
        /// The decay of the first moment.
        beta1: T,
        /// The decay of the second moment.
        beta2: T,
        /// `beta1` to the power of this step's number.
        beta1_power: T,
        /// `beta2` to the power of this step's number.
        beta2_power: T,
        /// Keeps the divisor from zero.
        epsilon: T,
    }
    (var, m, v, vhat; grad) |settings|
    let rate = settings.lr.mul(T::ONE.sub(settings.beta2_power).sqrt()).div(T::ONE.sub(settings.beta1_power));
    let rest1 = T::ONE.sub(settings.beta1);
    let rest2 = T::ONE.sub(settings.beta2);
    {
        *m = m.add(grad.sub(*m).mul(rest1));
        *v = v.add(grad.square().sub(*v).mul(rest2));
        *vhat = vhat.max(*v);
        *var = var.sub(m.mul(rate).div(vhat.sqrt().add(settings.epsilon)));
    }
}

optimizer! {
    /// Adam with the largest gradient in place of the second moment.
    AdaMax {
        /// The learning rate.
        lr: T,
        /// The decay of the first moment.
        beta1: T,
        /// The decay of the largest gradient.
        beta2: T,
        /// `beta1` to the power of this step's number.
        beta1_power: T,
        /// Keeps the divisor from zero.
        epsilon: T,
    }
    (var, m, v; grad) |settings|
    let rate = settings.lr.div(T::ONE.sub(settings.beta1_power));
    let rest1 = T::ONE.sub(settings.beta1);
    {
        *m = m.add(grad.sub(*m).mul(rest1));
        *v = settings.beta2.mul(*v).max(grad.abs());
        *var = var.sub(rate.mul(m.div(v.add(settings.epsilon))));
    }
}

optimizer! {
    /// Adagrad: steps divided by the root of the sum of squared gradients.
    Adagrad {
        /// The learning rate.
        lr: T,
        /// Added to the root; zero for the first version of the op.
        epsilon: T,
        /// Whether the sum is updated too.
        update_slots: bool,
    }
    (var, accum; grad) |settings| {
        if settings.update_slots {
            *accum = accum.add(grad.square());
        }
        *var = var.sub(grad.mul(settings.lr).div(accum.sqrt().add(settings.epsilon)));
    }
}

optimizer! {
    /// Adagrad in its dual-averaging form, with both penalties.
    AdagradDa {
        /// The learning rate.
        lr: T,
        /// The penalty on magnitudes.
        l1: T,
        /// The penalty on squares.
        l2: T,
        /// The number of this step.
        step: T,
    }
    (var, sum, squares; grad) |settings|
    let penalty1 = settings.l1.mul(settings.step);
    let penalty2 = settings.l2.mul(settings.step).mul(settings.lr);
    {
        *sum = sum.add(grad);
        *squares = squares.add(grad.square());
        let direction = if settings.l1 > T::ZERO {
            sum.sign().mul(sum.abs().sub(penalty1).max(T::ZERO))
        } else {
            *sum
        };
        *var = settings.lr.neg().mul(direction).div(penalty2.add(squares.sqrt()));
    }
}

optimizer! {
    /// Adadelta: steps in the units of past steps.
    Adadelta {
        /// The learning rate.
        lr: T,
        /// The decay of both sums of squares.
        rho: T,
        /// Keeps the roots from zero.
        epsilon: T,
    }
    (var, accum, accum_update; grad) |settings|
    let rest = T::ONE.sub(settings.rho);
    {
        *accum = accum.mul(settings.rho).add(grad.square().mul(rest));
        let update = accum_update.add(settings.epsilon).sqrt().mul(accum.add(settings.epsilon).rsqrt()).mul(grad);
        *var = var.sub(update.mul(settings.lr));
        *accum_update = accum_update.mul(settings.rho).add(update.square().mul(rest));
    }
}

optimizer! {
    /// RMSProp: steps divided by the root of the decaying mean of squared gradients.
    RmsProp {
        /// The learning rate.
        lr: T,
        /// The decay of the mean square.
        rho: T,
        /// How much of the last step is kept.
        momentum: T,
        /// Keeps the root from zero.
        epsilon: T,
    }
    (var, ms, mom; grad) |settings|
    let rest = T::ONE.sub(settings.rho);
    {
        *ms = ms.add(grad.square().sub(*ms).mul(rest));
        *mom = mom.mul(settings.momentum).add(grad.mul(settings.lr).mul(ms.add(settings.epsilon).rsqrt()));
        *var = var.sub(*mom);
    }
}

optimizer! {
    /// RMSProp with the variance in place of the mean square.
    CenteredRmsProp {
        /// The learning rate.
        lr: T,
        /// The decay of both means.
        rho: T,
        /// How much of the last step is kept.
        momentum: T,
        /// Keeps the root from zero.
        epsilon: T,
    }
    (var, mg, ms, mom; grad) |settings|
    let rest = T::ONE.sub(settings.rho);
    {
        *ms = ms.add(grad.square().sub(*ms).mul(rest));
        *mg = mg.add(grad.sub(*mg).mul(rest));
        let variance = ms.sub(mg.square()).add(settings.epsilon);
        *mom = mom.mul(settings.momentum).add(grad.mul(settings.lr).mul(variance.rsqrt()));
        *var = var.sub(*mom);
    }
}

optimizer! {
    /// Follow the regularised leader.
    Ftrl {
        /// The learning rate.
        lr: T,
        /// The penalty on magnitudes.
        l1: T,
        /// The penalty on squares.
        l2: T,
        /// A penalty on squares that only enters the direction; zero for the first version of the op.
        l2_shrinkage: T,
        /// How the rate falls with the sum of squares; zero or less.
        lr_power: T,
        /// Whether the slot `linear` is kept multiplied by the rate.
        multiply_linear_by_lr: bool,
    }
    (var, accum, linear; grad) |settings|
    let is_root = settings.lr_power == T::from_f64(-0.5);
    let exponent = settings.lr_power.neg();
    let two = T::from_f64(2.0);
    {
        let shrunk = grad.add(two.mul(settings.l2_shrinkage).mul(*var));
        let next = accum.add(grad.square());
        let (before, after) =
            if is_root { (accum.sqrt(), next.sqrt()) } else { (accum.pow(exponent), next.pow(exponent)) };
        let quadratic = if settings.multiply_linear_by_lr {
            *linear = linear.add(shrunk.mul(settings.lr).sub(after.sub(before).mul(*var)));
            after.add(two.mul(settings.l2).mul(settings.lr))
        } else {
            *linear = linear.add(shrunk.sub(after.sub(before).div(settings.lr).mul(*var)));
            after.div(settings.lr).add(two.mul(settings.l2))
        };
        let bound = if settings.multiply_linear_by_lr { settings.l1.mul(settings.lr) } else { settings.l1 };
        let clipped = linear.max(bound.neg()).min(bound);
        *var = clipped.sub(*linear).div(quadratic);
        *accum = next;
    }
}

optimizer! {
    /// Gradient descent followed by the shrinkage that both penalties ask for.
    ProximalGradientDescent {
        /// The learning rate.
        lr: T,
        /// The penalty on magnitudes.
        l1: T,
        /// The penalty on squares.
        l2: T,
    }
    (var; grad) |settings|
    let bound = settings.lr.mul(settings.l1);
    let shrink = T::ONE.add(settings.l2.mul(settings.lr));
    {
        let moved = var.sub(grad.mul(settings.lr));
        *var = if settings.l1 > T::ZERO {
            moved.sign().mul(moved.abs().sub(bound).max(T::ZERO)).div(shrink)
        } else {
            moved.div(shrink)
        };
    }
}

optimizer! {
    /// Adagrad followed by the shrinkage that both penalties ask for.
    ProximalAdagrad {
        /// The learning rate.
        lr: T,
        /// The penalty on magnitudes.
        l1: T,
        /// The penalty on squares.
        l2: T,
    }
    (var, accum; grad) |settings| {
        *accum = accum.add(grad.square());
        let rate = settings.lr.mul(accum.rsqrt());
        let moved = var.sub(grad.mul(rate));
        let shrink = T::ONE.add(settings.l2.mul(rate));
        *var = if settings.l1 > T::ZERO {
            moved.sign().mul(moved.abs().sub(rate.mul(settings.l1)).max(T::ZERO)).div(shrink)
        } else {
            moved.div(shrink)
        };
    }
}

optimizer! {
    /// Steps enlarged where gradient and momentum agree in sign, by adding.
    AddSign {
        /// The learning rate.
        lr: T,
        /// The step where neither agrees nor disagrees.
        alpha: T,
        /// The weight of agreement.
        sign_decay: T,
        /// The decay of the momentum.
        beta: T,
    }
    (var, m; grad) |settings|
    let rest = T::ONE.sub(settings.beta);
    {
        *m = m.mul(settings.beta).add(grad.mul(rest));
        let agreement = grad.sign().mul(m.sign());
        *var = var.sub(settings.lr.mul(settings.alpha.add(settings.sign_decay.mul(agreement))).mul(grad));
    }
}

optimizer! {
    /// Steps enlarged where gradient and momentum agree in sign, by multiplying.
    PowerSign {
        /// The learning rate.
        lr: T,
        /// The logarithm of the base that agreement raises.
        logbase: T,
        /// The weight of agreement.
        sign_decay: T,
        /// The decay of the momentum.
        beta: T,
    }
    (var, m; grad) |settings|
    let rest = T::ONE.sub(settings.beta);
    {
        *m = m.mul(settings.beta).add(grad.mul(rest));
        let agreement = grad.sign().mul(m.sign());
        *var = var.sub(settings.lr.mul(settings.logbase.mul(settings.sign_decay).mul(agreement).exp()).mul(grad));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three steps from the same start as TensorFlow's op; the slots begin at the values given.
    macro_rules! check {
        ($name:literal, |$step:ident| $settings:expr, [$($slot:ident = $start:expr),*], $want:expr) => {{
            let pool = Pool::inline();
            let mut var = [1.0f32, -2.0, 0.5, 0.0];
            $(let mut $slot = [$start as f32; 4];)*
            for $step in 1..4i32 {
                let scale = 0.5 + 0.5 * $step as f32;
                let grad = [0.5f32, -1.25, 0.001, 3.0].map(|x| x * scale);
                $settings.apply(&pool, &mut var, $(&mut $slot,)* &grad);
            }
            let got: Vec<f32> = [&var[..], $(&$slot[..]),*].concat();
            for (i, (got, want)) in got.iter().zip($want).enumerate() {
                assert!((got - want).abs() <= 2e-6 * f32::max(want.abs(), 1e-3), "{} element {i}: {got} is not {want}", $name);
            }
        }};
    }

    /// The values are those of TensorFlow 2.21's ResourceApply ops.
    #[test]
    #[allow(clippy::excessive_precision, unused_variables)]
    fn three_steps_are_those_of_tensorflow() {
        check!(
            "GradientDescent",
            |step| GradientDescent { lr: 0.1 },
            [],
            [0.774999976, -1.4375, 0.499550015, -1.35000002]
        );
        check!(
            "Momentum False",
            |step| Momentum { lr: 0.1, momentum: 0.9, nesterov: false },
            [a = 0.0],
            [0.621999979, -1.05500007, 0.499244004, -2.26800013, 2.07999992, -5.19999981, 0.00416000001, 12.4799995]
        );
        check!(
            "KerasMomentum False",
            |step| KerasMomentum { lr: 0.1, momentum: 0.9, nesterov: false },
            [a = 0.0],
            [
                0.621999979,
                -1.05500007,
                0.499244004,
                -2.26800013,
                -0.208000004,
                0.519999981,
                -0.000416000024,
                -1.24800003
            ]
        );
        check!(
            "Adam False",
            |step| Adam {
                lr: 0.1,
                beta1: 0.9,
                beta2: 0.999,
                beta1_power: 0.9f64.powi(step) as f32,
                beta2_power: 0.999f64.powi(step) as f32,
                epsilon: 1e-8,
                nesterov: false
            },
            [a = 0.0, b = 0.0],
            [
                0.702193141,
                -1.70219314,
                0.20225367,
                -0.297806889,
                0.208000049,
                -0.5200001,
                0.000416000083,
                1.24800026,
                0.00181141449,
                0.0113213398,
                7.2456583e-09,
                0.0652109236
            ]
        );
        check!(
            "Momentum True",
            |step| Momentum { lr: 0.1, momentum: 0.9, nesterov: true },
            [a = 0.0],
            [0.434799999, -0.587000072, 0.498869598, -3.39120007, 2.07999992, -5.19999981, 0.00416000001, 12.4799995]
        );
        check!(
            "KerasMomentum True",
            |step| KerasMomentum { lr: 0.1, momentum: 0.9, nesterov: true },
            [a = 0.0],
            [
                0.434799999,
                -0.587000132,
                0.498869598,
                -3.39120007,
                -0.208000004,
                0.519999981,
                -0.000416000024,
                -1.24800003
            ]
        );
        check!(
            "Adam True",
            |step| Adam {
                lr: 0.1,
                beta1: 0.9,
                beta2: 0.999,
                beta1_power: 0.9f64.powi(step) as f32,
                beta2_power: 0.999f64.powi(step) as f32,
                epsilon: 1e-8,
                nesterov: true
            },
            [a = 0.0, b = 0.0],
            [
                0.522583842,
                -1.52258372,
                0.0226862282,
                -0.477416337,
                0.208000049,
                -0.5200001,
                0.000416000083,
                1.24800026,
                0.00181141449,
                0.0113213398,
                7.2456583e-09,
                0.0652109236
            ]
        );
        check!(
            "AdamAmsgrad",
            |step| AdamAmsgrad {
                lr: 0.1,
                beta1: 0.9,
                beta2: 0.999,
                beta1_power: 0.9f64.powi(step) as f32,
                beta2_power: 0.999f64.powi(step) as f32,
                epsilon: 1e-8
            },
            [a = 0.0, b = 0.0, c = 0.0],
            [
                0.702193141,
                -1.70219314,
                0.20225367,
                -0.297806889,
                0.208000049,
                -0.5200001,
                0.000416000083,
                1.24800026,
                0.00181141449,
                0.0113213398,
                7.2456583e-09,
                0.0652109236,
                0.00181141449,
                0.0113213398,
                7.2456583e-09,
                0.0652109236
            ]
        );
        check!(
            "AdaMax",
            |step| AdaMax { lr: 0.1, beta1: 0.9, beta2: 0.999, beta1_power: 0.9f64.powi(step) as f32, epsilon: 1e-8 },
            [a = 0.0, b = 0.0],
            [
                0.73903662,
                -1.73903668,
                0.239038616,
                -0.260963321,
                0.208000049,
                -0.5200001,
                0.000416000083,
                1.24800026,
                1.0,
                2.5,
                0.00200000009,
                6.0
            ]
        );
        check!(
            "Adagrad",
            |step| Adagrad { lr: 0.1, epsilon: 0.0, update_slots: true },
            [a = 0.1],
            [0.764660776, -1.74670398, 0.498576999, -0.256733477, 1.91250002, 11.4281254, 0.100007251, 65.3499985]
        );
        check!(
            "AdagradV2",
            |step| Adagrad { lr: 0.1, epsilon: 0.01, update_slots: true },
            [a = 0.1],
            [0.767398179, -1.74802876, 0.498620629, -0.25616017, 1.91250002, 11.4281254, 0.100007251, 65.3499985]
        );
        check!(
            "AdagradDa 0",
            |step| AdagradDa { lr: 0.1, l1: 0.0, l2: 0.01, step: step as f32 },
            [a = 0.0, b = 0.1],
            [
                -0.162345663,
                0.166245461,
                -0.00140960119,
                -0.166935936,
                2.25,
                -5.625,
                0.00449999981,
                13.5,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985
            ]
        );
        check!(
            "ProximalGradientDescent 0",
            |step| ProximalGradientDescent { lr: 0.1, l1: 0.0, l2: 0.01 },
            [],
            [0.772405267, -1.43251014, 0.49805373, -1.34760368]
        );
        check!(
            "ProximalAdagrad 0",
            |step| ProximalAdagrad { lr: 0.1, l1: 0.0, l2: 0.01 },
            [a = 0.1],
            [0.761691451, -1.74391425, 0.49387145, -0.2566351, 1.91250002, 11.4281254, 0.100007251, 65.3499985]
        );
        check!(
            "AdagradDa 0.05",
            |step| AdagradDa { lr: 0.1, l1: 0.05, l2: 0.01, step: step as f32 },
            [a = 0.0, b = 0.1],
            [
                -0.151522607,
                0.161812246,
                -0.0,
                -0.165081084,
                2.25,
                -5.625,
                0.00449999981,
                13.5,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985
            ]
        );
        check!(
            "ProximalGradientDescent 0.05",
            |step| ProximalGradientDescent { lr: 0.1, l1: 0.05, l2: 0.01 },
            [],
            [0.757435203, -1.41754007, 0.483083725, -1.33263373]
        );
        check!(
            "ProximalAdagrad 0.05",
            |step| ProximalAdagrad { lr: 0.1, l1: 0.05, l2: 0.01 },
            [a = 0.1],
            [0.744431376, -1.73636818, 0.446736574, -0.253437638, 1.91250002, 11.4281254, 0.100007251, 65.3499985]
        );
        check!(
            "Adadelta",
            |step| Adadelta { lr: 0.1, rho: 0.95, epsilon: 1e-6 },
            [a = 0.0, b = 0.0],
            [
                0.99840492,
                -1.99840486,
                0.499575645,
                -0.00159511156,
                0.0880000219,
                0.550000131,
                3.52000114e-07,
                3.1680007,
                4.1451226e-06,
                4.14535316e-06,
                3.09148021e-07,
                4.14539045e-06
            ]
        );
        check!(
            "RmsProp",
            |step| RmsProp { lr: 0.1, rho: 0.9, momentum: 0.5, epsilon: 1e-3 },
            [a = 0.1, b = 0.0],
            [
                0.260374725,
                -0.954955161,
                0.497898459,
                -1.16306913,
                0.24377504,
                1.1408689,
                0.0729006827,
                6.22440147,
                0.332355618,
                -0.42052263,
                0.00108049356,
                0.447552472
            ]
        );
        check!(
            "CenteredRmsProp",
            |step| CenteredRmsProp { lr: 0.1, rho: 0.9, momentum: 0.5, epsilon: 1e-3 },
            [a = 0.0, b = 0.1, c = 0.0],
            [
                0.223436654,
                -0.873485327,
                0.497898459,
                -1.26663864,
                0.208000049,
                -0.5200001,
                0.000416000083,
                1.24800026,
                0.24377504,
                1.1408689,
                0.0729006827,
                6.22440147,
                0.357894659,
                -0.467464,
                0.00108049437,
                0.502001762
            ]
        );
        check!(
            "Ftrl -0.5 False",
            |step| Ftrl {
                lr: 0.1,
                l1: 0.05,
                l2: 0.01,
                l2_shrinkage: 0.0,
                lr_power: -0.5,
                multiply_linear_by_lr: false
            },
            [a = 0.1, b = 0.0],
            [
                0.220700219,
                -1.25024903,
                0.0,
                -0.254962206,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -3.10654736,
                42.340313,
                0.00449210219,
                20.6660767
            ]
        );
        check!(
            "FtrlV2 -0.5 False",
            |step| Ftrl {
                lr: 0.1,
                l1: 0.05,
                l2: 0.01,
                l2_shrinkage: 0.02,
                lr_power: -0.5,
                multiply_linear_by_lr: false
            },
            [a = 0.1, b = 0.0],
            [
                0.211616486,
                -1.24003935,
                0.0,
                -0.254800677,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -2.98074389,
                41.9949646,
                0.0244921017,
                20.6530151
            ]
        );
        check!(
            "Ftrl -0.5 True",
            |step| Ftrl { lr: 0.1, l1: 0.05, l2: 0.01, l2_shrinkage: 0.0, lr_power: -0.5, multiply_linear_by_lr: true },
            [a = 0.1, b = 0.0],
            [
                0.220700219,
                -1.25024915,
                0.0,
                -0.254962176,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -0.31065473,
                4.23403168,
                0.00044921026,
                2.06660771
            ]
        );
        check!(
            "FtrlV2 -0.5 True",
            |step| Ftrl {
                lr: 0.1,
                l1: 0.05,
                l2: 0.01,
                l2_shrinkage: 0.02,
                lr_power: -0.5,
                multiply_linear_by_lr: true
            },
            [a = 0.1, b = 0.0],
            [
                0.211616486,
                -1.24003911,
                0.0,
                -0.254800677,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -0.298074365,
                4.19949579,
                0.00244921027,
                2.06530166
            ]
        );
        check!(
            "Ftrl -0.7 False",
            |step| Ftrl {
                lr: 0.1,
                l1: 0.05,
                l2: 0.01,
                l2_shrinkage: 0.0,
                lr_power: -0.7,
                multiply_linear_by_lr: false
            },
            [a = 0.1, b = 0.0],
            [
                0.324078053,
                -1.52238786,
                0.0,
                -0.137266934,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -5.15883636,
                83.8541718,
                0.00449299626,
                25.6526203
            ]
        );
        check!(
            "FtrlV2 -0.7 False",
            |step| Ftrl {
                lr: 0.1,
                l1: 0.05,
                l2: 0.01,
                l2_shrinkage: 0.02,
                lr_power: -0.7,
                multiply_linear_by_lr: false
            },
            [a = 0.1, b = 0.0],
            [
                0.312861174,
                -1.51360703,
                0.0,
                -0.1372208,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -4.98201132,
                83.3708038,
                0.0244929958,
                25.6440163
            ]
        );
        check!(
            "Ftrl -0.7 True",
            |step| Ftrl { lr: 0.1, l1: 0.05, l2: 0.01, l2_shrinkage: 0.0, lr_power: -0.7, multiply_linear_by_lr: true },
            [a = 0.1, b = 0.0],
            [
                0.324078023,
                -1.52238798,
                0.0,
                -0.137266934,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -0.515883565,
                8.38541698,
                0.000449299667,
                2.56526232
            ]
        );
        check!(
            "FtrlV2 -0.7 True",
            |step| Ftrl {
                lr: 0.1,
                l1: 0.05,
                l2: 0.01,
                l2_shrinkage: 0.02,
                lr_power: -0.7,
                multiply_linear_by_lr: true
            },
            [a = 0.1, b = 0.0],
            [
                0.312861204,
                -1.51360714,
                0.0,
                -0.1372208,
                1.91250002,
                11.4281254,
                0.100007251,
                65.3499985,
                -0.498201102,
                8.33708096,
                0.00244929967,
                2.56440163
            ]
        );
        check!(
            "AddSign",
            |step| AddSign { lr: 0.1, alpha: 1.0, sign_decay: 0.9, beta: 0.9 },
            [a = 0.1],
            [0.57249999, -0.931249976, 0.499145001, -2.56500006, 0.280900061, -0.447100103, 0.0733160004, 1.3209002]
        );
        check!(
            "PowerSign",
            |step| PowerSign { lr: 0.1, logbase: 1.0, sign_decay: 0.9, beta: 0.9 },
            [a = 0.1],
            [0.446589291, -0.616473258, 0.498893172, -3.32046413, 0.280900061, -0.447100103, 0.0733160004, 1.3209002]
        );
    }

    #[test]
    fn long_slices_are_updated_as_short_ones() {
        let pool = Pool::new(3);
        let len = 100_003;
        let grad: Vec<f32> = (0..len).map(|i| (i % 7) as f32 - 3.0).collect();
        let (mut var, mut accum) = (vec![1.0f32; len], vec![0.5f32; len]);
        Momentum { lr: 0.5, momentum: 0.5, nesterov: false }.apply(&pool, &mut var, &mut accum, &grad);
        for i in 0..len {
            assert_eq!(accum[i], 0.25 + grad[i], "accumulator {i}");
            assert_eq!(var[i], 1.0 - 0.5 * accum[i], "variable {i}");
        }
    }
}
