//! The MNIST network with one hidden layer, in one process: `--data_dir DIR --steps N`.

use clap::Parser as _;
use ferroflow::prelude::*;

pub mod mnist_data;

fn main() -> Result<()> {
    let accuracy = train(&mnist_data::Flags::parse())?;
    println!("accuracy on the test pictures: {:.2} %", 100.0 * accuracy);
    Ok(())
}

/// Trains, and gives the part of the test pictures that are told right.
pub fn train(flags: &mnist_data::Flags) -> Result<f32> {
    const HIDDEN: usize = 100;
    let mut digits = flags.digits()?;

    let g = Graph::new();
    let step = g.global_step();
    let hid_w = g.variable("hid_w", initializers::truncated_normal(0.0, 1.0 / 28.0, [784, HIDDEN]).seed(1));
    let hid_b = g.variable("hid_b", initializers::zeros([HIDDEN]));
    let sm_w = g.variable("sm_w", initializers::truncated_normal(0.0, 0.1, [HIDDEN, 10]).seed(2));
    let sm_b = g.variable("sm_b", initializers::zeros([10]));
    let x = g.placeholder::<f32>([None, Some(784)]);
    let labels = g.placeholder::<f32>([None, Some(10)]);

    let hidden = x.matmul(&hid_w).bias_add(&hid_b).relu();
    let y = hidden.matmul(&sm_w).bias_add(&sm_b).softmax();
    let loss = -(&labels * y.clip_by_value(1e-10, 1.0).log()).sum();
    let train = Adam::new(0.005).minimize(&loss).increment(&step);
    let accuracy = y.argmax(1).equal(labels.argmax(1)).cast::<f32>().mean();
    let init = g.initialize_all();

    let session = Session::new(&g)?;
    session.run(&init)?;
    for i in 0..flags.steps.unwrap_or(2000) {
        let (images, answers) = digits.train.next_batch(100);
        let (loss, ()) = session.run_with((&loss, &train), feed! { x => images, labels => answers })?;
        if i % 200 == 0 {
            println!("step {i:5}   loss {:8.3}", loss.item::<f32>()?);
        }
    }
    let test = feed! { x => digits.test.images(), labels => digits.test.labels() };
    session.run_with(&accuracy, test)?.item()
}
