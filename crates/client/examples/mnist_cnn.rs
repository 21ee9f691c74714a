//! The MNIST network with two convolutions, dropout and Adam, in one process: `--data_dir DIR --steps N`.

use clap::Parser as _;
use ferroflow::prelude::*;

pub mod mnist_data;

fn main() -> Result<()> {
    let accuracy = train(&mnist_data::Flags::parse(), 50)?;
    println!("accuracy on the test pictures: {:.2} %", 100.0 * accuracy);
    Ok(())
}

/// Trains, and gives the part of the test pictures that are told right.
pub fn train(flags: &mnist_data::Flags, batch: usize) -> Result<f32> {
    let mut digits = flags.digits()?;

    let g = Graph::new();
    g.set_seed(1);
    let x = g.placeholder::<f32>([None, Some(784)]);
    let labels = g.placeholder::<f32>([None, Some(10)]);
    let keep = g.placeholder_with_default(1.0f32, Shape::scalar());
    let logits = model(&g, &x, &keep);
    let loss = logits.softmax_cross_entropy(&labels).mean();
    let train = Adam::new(1e-3).minimize(&loss);
    let accuracy = logits.argmax(1).equal(labels.argmax(1)).cast::<f32>().mean();
    let init = g.initialize_all();

    let session = Session::new(&g)?;
    session.run(&init)?;
    for i in 0..flags.steps.unwrap_or(300) {
        let (images, answers) = digits.train.next_batch(batch);
        let feeds = feed! { x => images, labels => answers, keep => 0.5f32 };
        let (loss, ()) = session.run_with((&loss, &train), feeds)?;
        if i % 20 == 0 {
            println!("step {i:5}   loss {:8.3}", loss.item::<f32>()?);
        }
    }
    let mut right = 0.0;
    let rounds = digits.test.num_examples().div_ceil(500);
    for _ in 0..rounds {
        let (images, answers) = digits.test.next_batch(500);
        right += session.run_with(&accuracy, feed! { x => images, labels => answers })?.item::<f32>()?;
    }
    Ok(right / rounds as f32)
}

fn model(g: &Graph, x: &Output, keep: &Output) -> Output {
    let weights = |name: &str, shape: &[usize]| g.variable(name, initializers::truncated_normal(0.0, 0.1, shape));
    let biases = |name: &str, count: usize| g.variable(name, initializers::constant(0.1, [count]));
    let images = x.reshape(&[-1, 28, 28, 1]);
    let first = images.conv2d(&weights("w1", &[5, 5, 1, 32]), Conv2d::same()) + biases("b1", 32);
    let first = first.relu().max_pool(Pool::by(2));
    let second = first.conv2d(&weights("w2", &[5, 5, 32, 64]), Conv2d::same()) + biases("b2", 64);
    let second = second.relu().max_pool(Pool::by(2)).reshape(&[-1, 7 * 7 * 64]);
    let hidden = (second.matmul(&weights("w3", &[7 * 7 * 64, 1024])) + biases("b3", 1024)).relu();
    hidden.dropout(keep).matmul(&weights("w4", &[1024, 10])) + biases("b4", 10)
}
