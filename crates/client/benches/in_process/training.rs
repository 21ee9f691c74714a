//! Whole training steps of models built by the face.

use crate::workloads::{Unit, Workload};
use ferroflow::initializers::{constant, truncated_normal, zeros};
use ferroflow::prelude::*;

/// Stripes as images and the digit 0 as labels: what the values are does not change the time.
fn digits(batch: usize) -> Result<(Tensor, Tensor)> {
    let labels = (0..batch * 10).map(|i| if i % 10 == 0 { 1.0f32 } else { 0.0 }).collect();
    let images = (0..batch * 784).map(|i| (i % 255) as f32 / 255.0).collect();
    Ok((Tensor::from_vec([batch, 784], images)?, Tensor::from_vec([batch, 10], labels)?))
}

/// A training step of a model built by the face.
fn training(
    name: &'static str,
    g: &Graph,
    train: &Operation,
    feeds: Vec<(&Output, Tensor)>,
    wanted: &'static str,
) -> Result<Workload> {
    let init = g.initialize_all();
    Ok(Workload {
        name,
        graph: g.to_graph_def()?,
        init: Some(init.name()),
        target: train.name(),
        feeds: feeds.into_iter().map(|(output, value)| (format!("{}:0", output.name()), value)).collect(),
        repeats: 1,
        work: 1.0,
        unit: Unit::Micros,
        wanted,
        optimized: true,
        optimized_there: true,
    })
}

/// The guide's model: 784-100-10 with a clipped logarithm, Adam.
pub fn mnist_mlp(name: &'static str) -> Result<Workload> {
    let g = Graph::new();
    let (x, y_) = (g.placeholder::<f32>([None, Some(784)]), g.placeholder::<f32>([None, Some(10)]));
    let w1 = g.variable("hid_w", truncated_normal(0.0, 1.0 / 28.0, [784, 100]).seed(1));
    let b1 = g.variable("hid_b", zeros([100]));
    let w2 = g.variable("sm_w", truncated_normal(0.0, 0.1, [100, 10]).seed(2));
    let b2 = g.variable("sm_b", zeros([10]));
    let hidden = x.matmul(&w1).bias_add(&b1).relu();
    let y = hidden.matmul(&w2).bias_add(&b2).softmax();
    let loss = -(&y_ * y.clip_by_value(1e-10f32, 1.0f32).log()).sum();
    let train = Adam::new(0.01).minimize(&loss);
    let (images, labels) = digits(100)?;
    training(name, &g, &train, vec![(&x, images), (&y_, labels)], "2.0")
}

/// Two convolutions 5x5 of 32 and 64 channels with pooling, a layer of 1024, dropout, Adam.
pub fn mnist_cnn(name: &'static str) -> Result<Workload> {
    let g = Graph::new();
    let (x, y_) = (g.placeholder::<f32>([None, Some(784)]), g.placeholder::<f32>([None, Some(10)]));
    let weight = |name: &str, shape: &[usize]| g.variable(name, truncated_normal(0.0, 0.1, shape.to_vec()).seed(1));
    let bias = |name: &str, size: usize| g.variable(name, constant(0.1, [size]));
    let image = x.reshape(&[-1, 28, 28, 1]);
    let layer = |x: &Output, w: &Variable, b: &Variable| (x.conv2d(w, Conv2d::same()) + b).relu().max_pool(Pool::by(2));
    let h = layer(&image, &weight("w1", &[5, 5, 1, 32]), &bias("b1", 32));
    let h = layer(&h, &weight("w2", &[5, 5, 32, 64]), &bias("b2", 64));
    let h = h.reshape(&[-1, 7 * 7 * 64]);
    let h = (h.matmul(&weight("w3", &[7 * 7 * 64, 1024])) + &bias("b3", 1024)).relu();
    let h = h.dropout(&g.constant(0.5f32));
    let logits = h.matmul(&weight("w4", &[1024, 10])) + &bias("b4", 10);
    let train = Adam::new(1e-4).minimize(&logits.softmax_cross_entropy(&y_).mean());
    let (images, labels) = digits(50)?;
    training(name, &g, &train, vec![(&x, images), (&y_, labels)], "1.0")
}
