//! Arithmetic on outputs: elementwise functions, comparisons, reductions, matrix products.

use crate::Output;
use crate::operators::Operand;
use framework::Scope;
use tensor::{DType, Element, Result};

/// Lists the elementwise functions of one argument.
macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident $op:literal;)*) => {
        impl Output {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self) -> Output {
                self.unary($op)
            }
        )*}
    };
}
unary! {
    /// The absolute value of each element.
    abs "Abs";
    /// The smallest whole number not below each element.
    ceil "Ceil";
    /// The cosine of each element.
    cos "Cos";
    /// e to the power of each element.
    exp "Exp";
    /// The largest whole number not above each element.
    floor "Floor";
    /// The same value under a name of its own.
    identity "Identity";
    /// The natural logarithm of each element.
    log "Log";
    /// The logarithm of one plus each element, exact near zero.
    log1p "Log1p";
    /// The opposite of each boolean.
    logical_not "LogicalNot";
    /// Each element, rounded to even.
    round "Round";
    /// One over the square root of each element.
    rsqrt "Rsqrt";
    /// One over each element.
    reciprocal "Reciprocal";
    /// 1 / (1 + e^-x) of each element.
    sigmoid "Sigmoid";
    /// -1, 0 or 1, as each element is.
    sign "Sign";
    /// The square root of each element.
    sqrt "Sqrt";
    /// The square of each element.
    square "Square";
    /// The same value; gradients end here.
    stop_gradient "StopGradient";
    /// The hyperbolic tangent of each element.
    tanh "Tanh";
    /// Zeros of the same shape.
    zeros_like "ZerosLike";
    /// Ones of the same shape.
    ones_like "OnesLike";
}

/// Lists the elementwise functions of two arguments, which are broadcast.
macro_rules! binary {
    ($($(#[$doc:meta])* $method:ident $op:literal;)*) => {
        impl Output {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self, other: impl Operand) -> Output {
                self.binary($op, other)
            }
        )*}
    };
}
binary! {
    /// Whether elements are equal.
    equal "Equal";
    /// Whether elements differ.
    not_equal "NotEqual";
    /// Whether elements are greater than the other's.
    greater "Greater";
    /// Whether elements are the other's or greater.
    greater_equal "GreaterEqual";
    /// Whether elements are less than the other's.
    less "Less";
    /// Whether elements are the other's or less.
    less_equal "LessEqual";
    /// Whether both are true.
    logical_and "LogicalAnd";
    /// Whether at least one is true.
    logical_or "LogicalOr";
    /// The greater of two elements.
    maximum "Maximum";
    /// The lesser of two elements.
    minimum "Minimum";
    /// Each element to the power of the other's.
    pow "Pow";
    /// The quotient rounded down.
    floor_div "FloorDiv";
    /// The remainder of the quotient rounded down.
    floor_mod "FloorMod";
    /// The square of the difference.
    squared_difference "SquaredDifference";
    /// The quotient, and zero where the other is zero.
    div_no_nan "DivNoNan";
}

/// Lists the reductions.
macro_rules! reductions {
    ($($what:literal $all:ident $axes:ident $op:literal;)*) => {
        impl Output {$(
            #[doc = concat!("The ", $what, " of all elements.")]
            #[track_caller]
            pub fn $all(&self) -> Output {
                self.graph().output([self], |s, [x]| {
                    let axes = all_axes(s, x)?;
                    s.op($op, &[x, axes])
                })
            }

            #[doc = concat!("The ", $what, " over some dimensions; `keep` leaves them in with size 1.")]
            #[track_caller]
            pub fn $axes(&self, axes: &[i32], keep: bool) -> Output {
                self.graph().output([self], |s, [x]| {
                    let name = s.unique_name($op);
                    let axes = indices(s, &name, axes)?;
                    s.node($op).name(name + "/").inputs(&[x, axes]).attr("keep_dims", keep).output()
                })
            }
        )*}
    };
}
reductions! {
    "sum" sum sum_axes "Sum";
    "mean" mean mean_axes "Mean";
    "product" prod prod_axes "Prod";
    "greatest" max max_axes "Max";
    "least" min min_axes "Min";
    "conjunction" all all_axes "All";
    "disjunction" any any_axes "Any";
}

fn indices(s: &Scope, name: &str, axes: &[i32]) -> Result<framework::Output> {
    s.with_absolute_name(name, || {
        s.node("Const")
            .name("reduction_indices")
            .attr("dtype", DType::I32)
            .attr("value", tensor::Tensor::from(axes.to_vec()))
            .output()
    })
}

/// All dimensions of an output: known now, or counted when it runs.
pub(crate) fn all_axes(s: &Scope, x: framework::Output) -> Result<framework::Output> {
    match s.shape(x)?.rank() {
        Some(rank) => s.constant((0..rank as i32).collect::<Vec<i32>>()),
        None => {
            let rank = s.op("Rank", &[x])?;
            s.op("Range", &[s.constant(0i32)?, rank, s.constant(1i32)?])
        }
    }
}

impl Output {
    #[track_caller]
    pub(crate) fn unary(&self, op: &str) -> Output {
        self.graph().output([self], |s, [x]| s.op(op, &[x]))
    }

    #[track_caller]
    pub(crate) fn binary(&self, op: &str, other: impl Operand) -> Output {
        let s = self.graph().scope();
        let full = s.unique_name(op);
        let other = self.graph().here(|| s.with_absolute_name(&full, || other.output_like(self, "y")));
        self.graph().output([self, &other], |s, inputs| s.node(op).name(full + "/").inputs(&inputs).output())
    }

    /// The matrix product; of more than two dimensions, that of the innermost two for each of the others.
    #[track_caller]
    pub fn matmul(&self, other: &Output) -> Output {
        self.matmul_transposed(other, false, false)
    }

    /// The matrix product with either side transposed.
    #[track_caller]
    pub fn matmul_transposed(&self, other: &Output, transpose_self: bool, transpose_other: bool) -> Output {
        self.graph().output([self, other], |s, [a, b]| {
            let batched = |x| Ok::<_, tensor::Error>(s.shape(x)?.rank().is_some_and(|rank| rank > 2));
            if batched(a)? || batched(b)? {
                let node = s.node("BatchMatMulV2").name("MatMul").inputs(&[a, b]);
                return node.attr("adj_x", transpose_self).attr("adj_y", transpose_other).output();
            }
            let node = s.node("MatMul").inputs(&[a, b]);
            node.attr("transpose_a", transpose_self).attr("transpose_b", transpose_other).output()
        })
    }

    /// The elements as another type: `x.cast::<f32>()`.
    #[track_caller]
    pub fn cast<T: Element>(&self) -> Output {
        self.cast_to(T::DTYPE)
    }

    /// The elements as another type that is known only when the program runs.
    #[track_caller]
    pub fn cast_to(&self, dtype: DType) -> Output {
        if self.dtype() == dtype {
            return self.clone();
        }
        self.graph().output([self], |s, [x]| s.node("Cast").input(x).attr("DstT", dtype).output())
    }

    /// Where along a dimension the greatest element is, as int64.
    #[track_caller]
    pub fn argmax(&self, axis: i32) -> Output {
        self.arg("ArgMax", axis)
    }

    /// Where along a dimension the least element is, as int64.
    #[track_caller]
    pub fn argmin(&self, axis: i32) -> Output {
        self.arg("ArgMin", axis)
    }

    #[track_caller]
    fn arg(&self, op: &str, axis: i32) -> Output {
        self.graph().output([self], |s, [x]| {
            let name = s.unique_name(op);
            let axis = s.with_absolute_name(&name, || {
                s.node("Const")
                    .name("dimension")
                    .attr("dtype", DType::I32)
                    .attr("value", tensor::Tensor::from(axis))
                    .output()
            })?;
            s.node(op).name(name + "/").inputs(&[x, axis]).output()
        })
    }

    /// Elements of `yes` where this is true, and of `no` where it is not; all three are broadcast.
    #[track_caller]
    pub fn select(&self, yes: &Output, no: &Output) -> Output {
        self.graph().output([self, yes, no], |s, inputs| s.op("SelectV2", &inputs))
    }

    /// Each element, or the nearer end of the range.
    #[track_caller]
    pub fn clip_by_value(&self, least: impl Operand, greatest: impl Operand) -> Output {
        let graph = self.graph().clone();
        let s = graph.scope();
        let full = s.unique_name("clip_by_value");
        let (below, least) = graph.here(|| {
            s.with_absolute_name(&full, || {
                let greatest = greatest.output_like(self, "Minimum/y");
                let below = graph.op("Minimum", [self, &greatest]);
                (below, least.output_like(self, "y"))
            })
        });
        graph.output([&below, &least], |s, inputs| s.node("Maximum").name(full + "/").inputs(&inputs).output())
    }
}
