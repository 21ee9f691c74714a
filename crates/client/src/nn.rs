//! Layers and losses of neural networks.

use crate::Output;
use tensor::{DType, Result, Shape, invalid};

/// What a window does at the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros are put around, so that the size stays (divided by the stride).
    Same,
    /// Windows lie wholly inside.
    Valid,
}

impl Padding {
    fn name(self) -> &'static str {
        match self {
            Padding::Same => "SAME",
            Padding::Valid => "VALID",
        }
    }
}

/// How a convolution walks: `Conv2d { strides: [2, 2], ..Conv2d::same() }`.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    /// Steps along height and width.
    pub strides: [i64; 2],
    /// Distances between the filter's elements along height and width.
    pub dilations: [i64; 2],
    /// The border.
    pub padding: Padding,
}

impl Conv2d {
    /// Steps of one, the size stays.
    pub fn same() -> Conv2d {
        Conv2d { strides: [1, 1], dilations: [1, 1], padding: Padding::Same }
    }

    /// Steps of one, windows wholly inside.
    pub fn valid() -> Conv2d {
        Conv2d { padding: Padding::Valid, ..Conv2d::same() }
    }
}

/// How a pooling walks: `Pool { padding: Padding::Valid, ..Pool::by(2) }`.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// The window's height and width.
    pub window: [i64; 2],
    /// Steps along height and width.
    pub strides: [i64; 2],
    /// The border.
    pub padding: Padding,
}

impl Pool {
    /// Windows of this size side by side.
    pub fn by(size: i64) -> Pool {
        Pool { window: [size; 2], strides: [size; 2], padding: Padding::Same }
    }
}

fn spatial([height, width]: [i64; 2]) -> Vec<i64> {
    vec![1, height, width, 1]
}

impl Output {
    /// Each element, or zero if it is negative.
    #[track_caller]
    pub fn relu(&self) -> Output {
        self.unary("Relu")
    }

    /// Each element, or 0 or 6 beyond those.
    #[track_caller]
    pub fn relu6(&self) -> Output {
        self.unary("Relu6")
    }

    /// Each element, or e^x - 1 if it is negative.
    #[track_caller]
    pub fn elu(&self) -> Output {
        self.unary("Elu")
    }

    /// log(1 + e^x) of each element.
    #[track_caller]
    pub fn softplus(&self) -> Output {
        self.unary("Softplus")
    }

    /// Along the last dimension, e^x over the sum of all e^x.
    #[track_caller]
    pub fn softmax(&self) -> Output {
        self.unary("Softmax")
    }

    /// The logarithm of the softmax.
    #[track_caller]
    pub fn log_softmax(&self) -> Output {
        self.unary("LogSoftmax")
    }

    /// Of logits: the cross-entropy between their softmax and the labels' probabilities (one-hot, say), for each row.
    #[track_caller]
    pub fn softmax_cross_entropy(&self, labels: &Output) -> Output {
        self.graph().output([self, labels], |s, [logits, labels]| {
            let op = "SoftmaxCrossEntropyWithLogits";
            let shape = s.shape(logits)?;
            if shape.rank() == Some(2) {
                return s.op(op, &[logits, labels]);
            }
            let (rows, classes) = rows_and_classes(&shape)?;
            let flat = s.constant([-1, classes])?;
            let losses = s.op(op, &[s.op("Reshape", &[logits, flat])?, s.op("Reshape", &[labels, flat])?])?;
            s.op("Reshape", &[losses, s.constant(rows)?])
        })
    }

    /// Of logits: the cross-entropy between their softmax and each row's right class, given by number.
    #[track_caller]
    pub fn sparse_softmax_cross_entropy(&self, labels: &Output) -> Output {
        self.graph().output([self, labels], |s, [logits, labels]| {
            let op = "SparseSoftmaxCrossEntropyWithLogits";
            let shape = s.shape(logits)?;
            if shape.rank() == Some(2) {
                return s.op(op, &[logits, labels]);
            }
            let (rows, classes) = rows_and_classes(&shape)?;
            let logits = s.op("Reshape", &[logits, s.constant([-1, classes])?])?;
            let losses = s.op(op, &[logits, s.op("Reshape", &[labels, s.constant([-1])?])?])?;
            s.op("Reshape", &[losses, s.constant(rows)?])
        })
    }

    /// Of logits: the cross-entropy between their sigmoid and the labels' probabilities, for each element.
    #[track_caller]
    pub fn sigmoid_cross_entropy(&self, labels: &Output) -> Output {
        self.graph().output([self, labels], |s, [x, labels]| {
            s.with_name("logistic_loss", || {
                // max(x, 0) - x z + log(1 + e^-|x|), which overflows nowhere; selected rather than taken by absolute
                // value, so that the gradient at zero is right.
                let zeros = s.op("ZerosLike", &[x])?;
                let positive = s.op("GreaterEqual", &[x, zeros])?;
                let relu = s.op("SelectV2", &[positive, x, zeros])?;
                let negative = s.op("SelectV2", &[positive, s.op("Neg", &[x])?, x])?;
                let linear = s.op("Sub", &[relu, s.op("Mul", &[x, labels])?])?;
                s.op("AddV2", &[linear, s.op("Log1p", &[s.op("Exp", &[negative])?])?])
            })
        })
    }

    /// Half the sum of the squares of all elements.
    #[track_caller]
    pub fn l2_loss(&self) -> Output {
        self.unary("L2Loss")
    }

    /// A vector added along the last dimension.
    #[track_caller]
    pub fn bias_add(&self, bias: &Output) -> Output {
        self.graph().op("BiasAdd", [self, bias])
    }

    /// The convolution of images (batch, height, width, channels) with filters (height, width, in, out).
    #[track_caller]
    pub fn conv2d(&self, filter: &Output, how: Conv2d) -> Output {
        self.graph().output([self, filter], |s, inputs| {
            let node = s.node("Conv2D").inputs(&inputs).attr("strides", spatial(how.strides));
            node.attr("dilations", spatial(how.dilations)).attr("padding", how.padding.name()).output()
        })
    }

    /// The greatest element in each window of images (batch, height, width, channels).
    #[track_caller]
    pub fn max_pool(&self, how: Pool) -> Output {
        self.pool("MaxPool", how)
    }

    /// The mean of each window of images (batch, height, width, channels).
    #[track_caller]
    pub fn avg_pool(&self, how: Pool) -> Output {
        self.pool("AvgPool", how)
    }

    #[track_caller]
    fn pool(&self, op: &str, how: Pool) -> Output {
        self.graph().output([self], |s, [x]| {
            let node = s.node(op).input(x).attr("ksize", spatial(how.window));
            node.attr("strides", spatial(how.strides)).attr("padding", how.padding.name()).output()
        })
    }

    /// Each element kept with probability `keep` and divided by it, or zero; other ones in every run.
    #[track_caller]
    pub fn dropout(&self, keep: &Output) -> Output {
        self.graph().output([self, keep], |s, [x, keep]| {
            s.with_name("dropout", || {
                let dtype = s.dtype(x)?;
                let shape = s.op("Shape", &[x])?;
                let (seed, seed2) = s.seeds(None);
                let random = s.node("RandomUniform").name("random_uniform").input(shape).attr("dtype", dtype);
                let random = random.attr("seed", seed).attr("seed2", seed2).output()?;
                let rate = s.op("Sub", &[s.constant_of(dtype, 1.0)?, keep])?;
                let kept = s.op("GreaterEqual", &[random, rate])?;
                let scaled = s.op("RealDiv", &[x, keep])?;
                s.op("SelectV2", &[kept, scaled, s.constant_of(dtype, 0.0)?])
            })
        })
    }

    /// Whether each row's right class is among the `k` greatest predictions.
    #[track_caller]
    pub fn in_top_k(&self, targets: &Output, k: i32) -> Output {
        self.graph().output([self, targets], |s, [predictions, targets]| {
            let k = s.constant(framework::scope::scalar_of(s.dtype(targets)?, f64::from(k))?)?;
            s.op("InTopKV2", &[predictions, targets, k])
        })
    }
}

/// The shape of the losses (one size may be -1), and the number of classes.
fn rows_and_classes(shape: &tensor::PartialShape) -> Result<(Vec<i32>, i32)> {
    let unknown = || invalid!("logits need a known number of classes and at most one open dimension, found {shape}");
    let (classes, rows) = shape.dims().ok_or_else(unknown)?.split_last().ok_or_else(unknown)?;
    let size = |d: Option<usize>| d.map_or(Ok(-1), |d| i32::try_from(d).map_err(|_| unknown()));
    let rows: Vec<i32> = rows.iter().map(|&d| size(d)).collect::<Result<_>>()?;
    let classes = size(*classes)?;
    if classes < 0 || rows.iter().filter(|&&d| d < 0).count() > 1 {
        return Err(unknown());
    }
    Ok((rows, classes))
}

/// A shape as the int32 vector that ops take.
pub(crate) fn shape_vector(shape: &Shape) -> Result<Vec<i32>> {
    let size = |&d: &usize| i32::try_from(d).map_err(|_| invalid!("a dimension of {d} is too large"));
    shape.dims().iter().map(size).collect()
}

/// Whether values of this type can be drawn from a continuous distribution.
pub(crate) fn is_drawn(dtype: DType) -> bool {
    dtype.is_floating()
}
