//! Softmax over rows, and the cross-entropy losses built on it.
//!
//! A row's maximum is subtracted before exponentials are taken, so large logits neither overflow nor lose precision.

use crate::elementwise::exp_one;
use crate::number::{Field, Float, Int, Number, Real};
use crate::parallel::{Pool, SharedMut};
use crate::simd::{same, same_mut, vectorized};

/// Elements worth a thread.
const GRAIN: usize = 1 << 12;

/// `e^x / Σ e^x` of every row of `classes` elements, in parallel.
pub fn softmax<T: Float>(pool: &Pool, classes: usize, logits: &[T], out: &mut [T]) {
    assert_eq!(logits.len(), out.len(), "logits and result differ in length");
    pool.for_each_row(out, classes, (GRAIN / classes.max(1)).max(1), &|first, part| {
        let from = &logits[first * classes..][..part.len()];
        if let (Some(from), Some(part)) = (same::<T, f32>(from), same_mut::<T, f32>(part)) {
            for (from, to) in from.chunks_exact(classes).zip(part.chunks_exact_mut(classes)) {
                let sum = exp_shifted(from, row_max(from), to);
                scale(to, 1.0 / sum);
            }
            return;
        }
        for (from, to) in from.chunks_exact(classes).zip(part.chunks_exact_mut(classes)) {
            let most = maximum(from);
            let sum = from.iter().fold(T::Acc::ZERO, |sum, x| sum.add(x.to_acc().sub(most).exp()));
            for (to, x) in to.iter_mut().zip(from) {
                *to = T::from_acc(x.to_acc().sub(most).exp().div(sum));
            }
        }
    });
}

/// `x - log Σ e^x` of every row of `classes` elements, in parallel.
pub fn log_softmax<T: Float>(pool: &Pool, classes: usize, logits: &[T], out: &mut [T]) {
    assert_eq!(logits.len(), out.len(), "logits and result differ in length");
    pool.for_each_row(out, classes, (GRAIN / classes.max(1)).max(1), &|first, part| {
        let from = &logits[first * classes..][..part.len()];
        for (from, to) in from.chunks_exact(classes).zip(part.chunks_exact_mut(classes)) {
            let (most, log) = log_sum(from, to);
            for (to, x) in to.iter_mut().zip(from) {
                *to = T::from_acc(x.to_acc().sub(most).sub(log));
            }
        }
    });
}

/// The cross entropy of every row's softmax with a row of label probabilities, and its gradient, in parallel.
///
/// `loss` has one element per row; `grad`, like the logits, is softmax - labels. As in TensorFlow, an infinite logit
/// makes the loss of its row NaN even where its label is zero.
pub fn softmax_cross_entropy<T: Float>(
    pool: &Pool,
    classes: usize,
    logits: &[T],
    labels: &[T],
    loss: &mut [T],
    grad: &mut [T],
) {
    assert!(logits.len() == labels.len() && logits.len() == grad.len(), "logits, labels and gradient differ in length");
    assert_eq!(logits.len(), loss.len() * classes, "one loss per row");
    for_each_row(pool, classes, loss, grad, &|row, loss, grad| {
        let (logits, labels) = (&logits[row * classes..][..classes], &labels[row * classes..][..classes]);
        if let (Some(logits), Some(labels), Some(grad)) =
            (same::<T, f32>(logits), same::<T, f32>(labels), same_mut::<T, f32>(grad))
        {
            let most = row_max(logits);
            let sum = exp_shifted(logits, most, grad);
            let log = sum.ln();
            *loss = T::from_f32(entropy_and_gradient(logits, labels, grad, most, log, 1.0 / sum));
            return;
        }
        let (most, log) = log_sum(logits, grad);
        let mut total = T::Acc::ZERO;
        for ((grad, x), label) in grad.iter_mut().zip(logits).zip(labels) {
            let log_probability = x.to_acc().sub(most).sub(log);
            total = total.sub(label.to_acc().mul(log_probability));
            *grad = T::from_acc(log_probability.exp().sub(label.to_acc()));
        }
        *loss = T::from_acc(total);
    });
}

/// The cross entropy of every row's softmax with one right class, and its gradient, in parallel.
///
/// A label outside `0..classes` gives NaN for its row, in loss and gradient.
pub fn sparse_softmax_cross_entropy<T: Float, I: Int>(
    pool: &Pool,
    classes: usize,
    logits: &[T],
    labels: &[I],
    loss: &mut [T],
    grad: &mut [T],
) {
    assert!(logits.len() == grad.len() && labels.len() == loss.len(), "the slices differ in length");
    assert_eq!(logits.len(), loss.len() * classes, "one loss per row");
    for_each_row(pool, classes, loss, grad, &|row, loss, grad| {
        let logits = &logits[row * classes..][..classes];
        let label = match usize::try_from(labels[row].to_i128()) {
            Ok(label) if label < classes => label,
            _ => {
                *loss = T::NAN;
                return grad.fill(T::NAN);
            }
        };
        if let (Some(logits), Some(grad)) = (same::<T, f32>(logits), same_mut::<T, f32>(grad)) {
            let most = row_max(logits);
            let sum = exp_shifted(logits, most, grad);
            scale(grad, 1.0 / sum);
            grad[label] -= 1.0;
            *loss = T::from_f32(sum.ln() - (logits[label] - most));
            return;
        }
        let (most, log) = log_sum(logits, grad);
        for (grad, x) in grad.iter_mut().zip(logits) {
            *grad = T::from_acc(x.to_acc().sub(most).sub(log).exp());
        }
        grad[label] = grad[label].sub(T::ONE);
        *loss = T::from_acc(log.sub(logits[label].to_acc().sub(most)));
    });
}

fn for_each_row<T: Float>(
    pool: &Pool,
    classes: usize,
    loss: &mut [T],
    grad: &mut [T],
    body: &(dyn Fn(usize, &mut T, &mut [T]) + Sync),
) {
    let grad = SharedMut::new(grad);
    pool.for_each_mut(loss, (GRAIN / classes.max(1)).max(1), &|first, part| {
        for (i, loss) in part.iter_mut().enumerate() {
            let row = first + i;
            // SAFETY: every row belongs to one element of the loss, and those are handed out once.
            body(row, loss, unsafe { grad.slice(row * classes..(row + 1) * classes) });
        }
    });
}

fn maximum<T: Float>(row: &[T]) -> T::Acc {
    row.iter().fold(T::Acc::MIN, |most, x| Real::max(most, x.to_acc()))
}

/// A row's maximum, and the logarithm of the sum of exponentials of what lies below it; uses `scratch`.
fn log_sum<T: Float>(row: &[T], scratch: &mut [T]) -> (T::Acc, T::Acc) {
    if let (Some(row), Some(scratch)) = (same::<T, f32>(row), same_mut::<T, f32>(scratch)) {
        let most = row_max(row);
        let log = exp_shifted(row, most, scratch).ln();
        return (T::Acc::from_f32(most), T::Acc::from_f32(log));
    }
    let most = maximum(row);
    (most, row.iter().fold(T::Acc::ZERO, |sum, x| sum.add(x.to_acc().sub(most).exp())).log())
}

vectorized! {
    fn row_max[][](row: &[f32]) -> f32 = row_max_body;
}
vectorized! {
    /// `to = e^(row - most)`, and the sum.
    fn exp_shifted[][](row: &[f32], most: f32, to: &mut [f32]) -> f32 = exp_shifted_body;
}
vectorized! {
    fn scale[][](row: &mut [f32], factor: f32) = scale_body;
}
vectorized! {
    /// The loss; `grad` goes from exponentials to probabilities less labels.
    fn entropy_and_gradient[][](logits: &[f32], labels: &[f32], grad: &mut [f32], most: f32, log: f32, factor: f32)
        -> f32 = entropy_and_gradient_body;
}

const LANES: usize = 32;

/// Folds lanes pairwise into one.
#[inline(always)]
fn merge(mut lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = f(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn sum(row: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += x;
    }
    merge(lanes, |a, b| a + b)
}

#[inline(always)]
fn row_max_body<const FMA: bool>(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, x);
    }
    // A NaN never wins here; the exponentials that follow carry it into the sum.
    merge(lanes, larger)
}

#[inline(always)]
fn exp_shifted_body<const FMA: bool>(row: &[f32], most: f32, to: &mut [f32]) -> f32 {
    for (to, x) in to.iter_mut().zip(row) {
        *to = exp_one::<FMA>(x - most);
    }
    sum(&to[..row.len()])
}

#[inline(always)]
fn scale_body<const FMA: bool>(row: &mut [f32], factor: f32) {
    for x in row {
        *x *= factor;
    }
}

#[inline(always)]
fn entropy_and_gradient_body<const FMA: bool>(
    logits: &[f32],
    labels: &[f32],
    grad: &mut [f32],
    most: f32,
    log: f32,
    factor: f32,
) -> f32 {
    for (grad, label) in grad.iter_mut().zip(labels) {
        *grad = *grad * factor - label;
    }
    let mut lanes = [0.0; LANES];
    let ((logits, logits_rest), (labels, labels_rest)) = (logits.as_chunks::<LANES>(), labels.as_chunks::<LANES>());
    for (logits, labels) in logits.iter().zip(labels) {
        for ((lane, x), label) in lanes.iter_mut().zip(logits).zip(labels) {
            *lane += label * (log - (x - most));
        }
    }
    for ((lane, x), label) in lanes.iter_mut().zip(logits_rest).zip(labels_rest) {
        *lane += label * (log - (x - most));
    }
    merge(lanes, |a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};
    use half::f16;

    fn slow(logits: &[f64]) -> Vec<f64> {
        let most = logits.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let sum: f64 = logits.iter().map(|x| (x - most).exp()).sum();
        logits.iter().map(|x| (x - most).exp() / sum).collect()
    }

    fn check<T: Float>(tolerance: f64) {
        let pool = Pool::new(3);
        for (seed, (rows, classes)) in seeds().zip([(1, 1), (3, 10), (100, 10), (7, 1000), (64, 33), (2, 16)]) {
            let mut numbers = Numbers::new(seed);
            let scaled = |x: T| x.mul(T::from_f64(20.0));
            let logits: Vec<T> = numbers.vec(rows * classes).into_iter().map(scaled).collect();
            let labels: Vec<T> =
                numbers.vec(rows * classes).into_iter().map(|x: T| if x < T::ZERO { T::ZERO } else { x }).collect();
            let classes_of: Vec<i32> = (0..rows).map(|_| numbers.below(classes) as i32).collect();
            let mut soft = vec![T::ZERO; rows * classes];
            let (mut log_soft, mut grad, mut sparse_grad) = (soft.clone(), soft.clone(), soft.clone());
            let (mut loss, mut sparse_loss) = (vec![T::ZERO; rows], vec![T::ZERO; rows]);
            softmax(&pool, classes, &logits, &mut soft);
            log_softmax(&pool, classes, &logits, &mut log_soft);
            softmax_cross_entropy(&pool, classes, &logits, &labels, &mut loss, &mut grad);
            sparse_softmax_cross_entropy(&pool, classes, &logits, &classes_of, &mut sparse_loss, &mut sparse_grad);
            let close = |got: T, want: f64, what: &str| {
                assert!(
                    (got.to_f64() - want).abs() <= tolerance * (1.0 + want.abs()),
                    "{what}: {got} is not {want}, seed {seed}"
                );
            };
            for row in 0..rows {
                let at = row * classes;
                let truth = slow(&logits[at..at + classes].iter().map(|x| x.to_f64()).collect::<Vec<_>>());
                let mut cost = 0.0;
                for i in 0..classes {
                    let label = labels[at + i].to_f64();
                    let right = f64::from(classes_of[row] == i as i32);
                    close(soft[at + i], truth[i], "softmax");
                    close(log_soft[at + i], truth[i].ln(), "log softmax");
                    close(grad[at + i], truth[i] - label, "gradient");
                    close(sparse_grad[at + i], truth[i] - right, "sparse gradient");
                    cost -= label * truth[i].ln();
                }
                close(loss[row], cost, "loss");
                close(sparse_loss[row], -truth[classes_of[row] as usize].ln(), "sparse loss");
            }
        }
    }

    #[test]
    fn rows_agree_with_the_formula() {
        check::<f32>(5e-6);
        check::<f64>(1e-13);
        check::<f16>(1e-2);
    }

    #[test]
    fn infinite_logits_and_bad_labels_stay_in_their_rows() {
        let pool = Pool::inline();
        let logits = [f32::NEG_INFINITY, 0.0, 0.0, 1.0, 2.0, 3.0];
        let (mut loss, mut grad) = ([0.0f32; 2], [0.0f32; 6]);
        softmax_cross_entropy(&pool, 3, &logits, &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0], &mut loss, &mut grad);
        assert!(loss[0].is_nan() && loss[1].is_finite());
        assert_eq!(grad[..3], [0.0, -0.5, 0.5]);
        sparse_softmax_cross_entropy(&pool, 3, &logits, &[1i64, -1], &mut loss, &mut grad);
        assert!(loss[0].is_finite() && loss[1].is_nan() && grad[3..].iter().all(|x| x.is_nan()));
    }
}
