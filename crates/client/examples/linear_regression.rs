//! Finds the line behind noisy points: `y = 3 x + 2`.

use ferroflow::prelude::*;

fn main() -> Result<()> {
    let (w, b) = fit(200)?;
    println!("y = {w:.3} x + {b:.3}");
    Ok(())
}

/// The slope and the offset after this many steps.
pub fn fit(steps: usize) -> Result<(f32, f32)> {
    let xs: Vec<f32> = (0..100).map(|i| i as f32 / 50.0 - 1.0).collect();
    let ys: Vec<f32> = xs.iter().enumerate().map(|(i, x)| 3.0 * x + 2.0 + 0.01 * (i as f32).sin()).collect();

    let g = Graph::new();
    let x = g.placeholder::<f32>([None]);
    let y = g.placeholder::<f32>([None]);
    let w = g.variable("w", 0.0f32);
    let b = g.variable("b", 0.0f32);
    let loss = (&x * &w + &b - &y).square().mean();
    let train = GradientDescent::new(0.3).minimize(&loss);
    let init = g.initialize_all();

    let session = Session::new(&g)?;
    session.run(&init)?;
    for step in 0..steps {
        let ((), loss) = session.run_with((&train, &loss), feed! { x => xs.clone(), y => ys.clone() })?;
        if step % 50 == 0 {
            println!("step {step:4}   loss {:.5}", loss.item::<f32>()?);
        }
    }
    let (w, b) = session.run((&w, &b))?;
    Ok((w.item()?, b.item()?))
}
