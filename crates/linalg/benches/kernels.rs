//! The speed of the kernels, in the units in which TensorFlow's were measured.
//!
//! `cargo bench -p ferroflow-linalg [-- part of a name]`; prints the median and the best of many runs.

use linalg::conv::{self, Conv2d};
use linalg::fused::{Binary, Input, Program, Unary};
use linalg::matmul::{Gemm, GemmShape};
use linalg::parallel::Pool;
use linalg::pooling::{self, Windows};
use linalg::random::Philox;
use linalg::{elementwise, gather, optim, random, reduce, softmax, transpose};
use num_complex::Complex;
use std::time::{Duration, Instant};

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let threads = match std::env::var("THREADS") {
        Ok(threads) => threads.parse().expect("THREADS is a number"),
        Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let pool = Pool::new(threads);
    let bench = Bench { pool: pool.clone(), only };
    println!("{threads} threads\n{:<44} {:>10} {:>10} {:<9} {:>11}", "kernel", "median", "best", "unit", "µs");
    // As kernels run: on a thread of the pool, which then is one of those that share a loop.
    let (done, wait) = std::sync::mpsc::channel();
    pool.spawn(Box::new(move || {
        products(&bench);
        cold_products(&bench);
        products_of_zeros(&bench);
        other_products(&bench);
        elementwise_loops(&bench);
        rows(&bench);
        moves(&bench);
        images(&bench);
        convolutions(&bench);
        updates(&bench);
        done.send(()).expect("somebody waits");
    }));
    wait.recv().expect("the benchmarks end");
}

struct Bench {
    pool: Pool,
    only: String,
}

impl Bench {
    fn run(&self, name: &str, work: f64, unit: &str, scale: f64, mut body: impl FnMut()) {
        if !name.contains(&self.only) {
            return;
        }
        let (mut times, start) = (Vec::new(), Instant::now());
        body();
        while times.len() < 5 || start.elapsed() < Duration::from_millis(700) {
            let begin = Instant::now();
            body();
            times.push(begin.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let (median, best) = (times[times.len() / 2], times[0]);
        println!(
            "{name:<44} {:>10.3} {:>10.3} {unit:<9} {:>11.1}",
            work / median * scale,
            work / best * scale,
            median * 1e6
        );
    }
}

fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut out = vec![0.0; len];
    random::fill_uniform(&Pool::inline(), Philox::new(seed, 1), &mut out);
    out.iter_mut().for_each(|x| *x = *x * 2.0 - 1.0);
    out
}

fn products(bench: &Bench) {
    for (m, k, n) in [
        (100, 784, 100),
        (256, 256, 256),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (100, 3136, 1024),
        (784, 100, 100),
        (100, 100, 10),
        (100, 10, 100),
        (100, 1024, 10),
        (1, 1024, 1024),
    ] {
        let (a, b, mut c) = (numbers(m * k, 1), numbers(k * n, 2), vec![0.0; m * n]);
        for (label, transpose_a, transpose_b) in [("", false, false), ("_ta", true, false), ("_tb", false, true)] {
            let shape = GemmShape { transpose_a, transpose_b, ..GemmShape::new(m, n, k) };
            let flops = 2.0 * (m * k * n) as f64;
            bench.run(&format!("matmul_{m}x{k}x{n}{label}"), flops, "GFLOP/s", 1e-9, || {
                f32::gemm(&bench.pool, &shape, &a, &b, &mut c);
            });
        }
    }
}

/// The products of a small network, whose matrices come from memory each time, as where several tasks take turns.
fn cold_products(bench: &Bench) {
    const SETS: usize = 24;
    for (label, m, k, n, transpose_a) in [("", 100, 784, 100, false), ("_ta", 784, 100, 100, true)] {
        let shape = GemmShape { transpose_a, ..GemmShape::new(m, n, k) };
        let mut sets: Vec<_> =
            (0..SETS as u64).map(|seed| (numbers(m * k, seed), numbers(k * n, seed), vec![0.0; m * n])).collect();
        let mut turn = 0;
        let flops = 2.0 * (m * k * n) as f64;
        bench.run(&format!("matmul_{m}x{k}x{n}{label}_cold"), flops, "GFLOP/s", 1e-9, || {
            let (a, b, c) = &mut sets[turn % SETS];
            turn += 1;
            f32::gemm(&bench.pool, &shape, a, b, c);
        });
    }
}

/// Left matrices of which a part is zero: a fifth is left of an image of a digit, a half of a layer of rectified units.
fn products_of_zeros(bench: &Bench) {
    for (m, k, n) in [(100, 784, 100), (784, 100, 100), (100, 3136, 1024), (1024, 1024, 1024)] {
        let (full, b, mut c) = (numbers(m * k, 1), numbers(k * n, 2), vec![0.0; m * n]);
        for percent in [5, 20, 40, 60, 80] {
            let mut a = full.clone();
            a.iter_mut()
                .zip(numbers(m * k, 3))
                .filter(|(_, x)| x * 50.0 + 50.0 > percent as f32)
                .for_each(|(a, _)| *a = 0.0);
            for (label, transpose_a) in [("", false), ("_ta", true)] {
                let shape = GemmShape { transpose_a, ..GemmShape::new(m, n, k) };
                let flops = 2.0 * (m * k * n) as f64;
                bench.run(&format!("matmul_{m}x{k}x{n}{label}_{percent}%"), flops, "GFLOP/s", 1e-9, || {
                    f32::gemm(&bench.pool, &shape, &a, &b, &mut c);
                });
            }
        }
    }
}

fn other_products(bench: &Bench) {
    let side = 512;
    let shape = GemmShape::new(side, side, side);
    let flops = 2.0 * (side * side * side) as f64;
    let (a, mut c) = (vec![1.5f64; side * side], vec![0.0f64; side * side]);
    bench.run("matmul_f64_512x512x512", flops, "GFLOP/s", 1e-9, || f64::gemm(&bench.pool, &shape, &a, &a, &mut c));
    let (a, mut c) = (vec![3i32; side * side], vec![0i32; side * side]);
    bench.run("matmul_i32_512x512x512", flops, "GFLOP/s", 1e-9, || i32::gemm(&bench.pool, &shape, &a, &a, &mut c));
    let (a, mut c) = (vec![Complex::new(1.0f32, 2.0); side * side], vec![Complex::default(); side * side]);
    bench.run("matmul_c64_512x512x512", flops * 4.0, "GFLOP/s", 1e-9, || {
        Complex::<f32>::gemm(&bench.pool, &shape, &a, &a, &mut c);
    });
}

fn elementwise_loops(bench: &Bench) {
    const N: usize = 1 << 20;
    let (a, b, c, mut out) = (numbers(N, 1), numbers(N, 2), numbers(N, 3), vec![0.0; N]);
    let mut program = Program::new(3);
    let product = program.binary(Binary::Mul, program.input(0), program.input(1));
    let sum = program.binary(Binary::Add, product, program.input(2));
    program.unary(Unary::Relu, sum);
    bench.run("elementwise_relu_mul_add_1M", N as f64, "Gelem/s", 1e-9, || {
        program.eval(&bench.pool, &[Input::Full(&a), Input::Full(&b), Input::Full(&c)], &mut out);
    });
    bench.run("add_1M", N as f64, "Gelem/s", 1e-9, || {
        elementwise::zip(&bench.pool, &a, &b, &mut out, |a, b| a + b);
    });
    use elementwise::FieldFunction::*;
    for function in [Tanh, Exp, Sigmoid, Log] {
        bench.run(&format!("{function:?}_1M").to_lowercase(), N as f64, "Gelem/s", 1e-9, || {
            elementwise::apply(&bench.pool, function, &a, &mut out);
        });
    }
    let mut sum = [0.0f32];
    let all = reduce::ReducePlan::new(&[N], &[true]);
    bench.run("reduce_sum_1M", N as f64, "Gelem/s", 1e-9, || {
        reduce::reduce::<reduce::Sum<f32>>(&bench.pool, &all, &a, &mut sum);
    });
    for (label, folded) in [("axis0", [true, false]), ("axis1", [false, true])] {
        let plan = reduce::ReducePlan::new(&[1024, 1024], &folded);
        bench.run(&format!("reduce_sum_{label}_1024x1024"), N as f64, "Gelem/s", 1e-9, || {
            reduce::reduce::<reduce::Sum<f32>>(&bench.pool, &plan, &a, &mut out[..1024]);
        });
    }
    bench.run("random_normal_1M", N as f64, "Gelem/s", 1e-9, || {
        random::fill_normal(&bench.pool, Philox::new(1, 2), &mut out);
    });
    bench.run("truncated_normal_1M", N as f64, "Gelem/s", 1e-9, || {
        random::fill_truncated_normal(&bench.pool, Philox::new(1, 2), &mut out);
    });
    bench.run("random_uniform_1M", N as f64, "Gelem/s", 1e-9, || {
        random::fill_uniform(&bench.pool, Philox::new(1, 2), &mut out);
    });
}

fn rows(bench: &Bench) {
    let (rows, classes) = (1024, 1000);
    let (logits, mut labels) = (numbers(rows * classes, 1), numbers(rows * classes, 2));
    labels.iter_mut().for_each(|x| *x = x.abs() / 500.0);
    let (mut loss, mut grad) = (vec![0.0; rows], vec![0.0; rows * classes]);
    let elements = (rows * classes) as f64;
    bench.run("softmax_xent_1024x1000", elements, "Gelem/s", 1e-9, || {
        softmax::softmax_cross_entropy(&bench.pool, classes, &logits, &labels, &mut loss, &mut grad);
    });
    bench.run("softmax_1024x1000", elements, "Gelem/s", 1e-9, || {
        softmax::softmax(&bench.pool, classes, &logits, &mut grad);
    });
}

fn moves(bench: &Bench) {
    let (x, mut y) = (numbers(1 << 20, 1), vec![0.0; 1 << 20]);
    bench.run("transpose_1024x1024", (1 << 20) as f64, "Gelem/s", 1e-9, || {
        transpose::transpose(&bench.pool, &[1024, 1024], &[1, 0], &x, &mut y);
    });
    lookups(bench);
}

/// Rows of a table that no cache holds.
fn lookups(bench: &Bench) {
    const SETS: usize = 64;
    let mut table = vec![1.0f32; 64_000_000];
    let updates = vec![1e-3f32; 4096 * 64];
    let mut rows = updates.clone();
    let mut ids = vec![0i32; SETS * 4096];
    random::fill_uniform_i32(&bench.pool, Philox::new(5, 6), 0, 1_000_000, &mut ids);
    let mut sets = ids.chunks_exact(4096).cycle();
    let mut next = || sets.next().expect("they begin again");
    bench.run("gather_4096_of_1Mx64", 4096.0, "Mrows/s", 1e-6, || {
        gather::gather(&bench.pool, &table, 1, 1_000_000, 64, next(), &mut rows).expect("ids are in range");
    });
    bench.run("scatter_add_4096_of_1Mx64", 4096.0, "Mrows/s", 1e-6, || {
        let add = |to: &mut [f32], from: &[f32]| elementwise::add_assign(to, from);
        gather::scatter(&bench.pool, &mut table, 64, next(), &updates, &add).expect("ids are in range");
    });
}

fn images(bench: &Bench) {
    let windows = Windows {
        batch: 32,
        in_height: 28,
        in_width: 28,
        channels: 64,
        height: 2,
        width: 2,
        stride_height: 2,
        stride_width: 2,
        pad_top: 0,
        pad_left: 0,
        out_height: 14,
        out_width: 14,
    };
    let elements = 32 * 28 * 28 * 64;
    let (x, dy) = (numbers(elements, 1), numbers(elements / 4, 2));
    let (mut y, mut dx) = (vec![0.0; elements / 4], vec![0.0; elements]);
    bench.run("maxpool2x2_32x28x28x64", elements as f64, "Gelem/s", 1e-9, || {
        pooling::max_pool(&bench.pool, &windows, &x, &mut y);
    });
    bench.run("maxpool2x2_grad_32x28x28x64", elements as f64, "Gelem/s", 1e-9, || {
        pooling::max_pool_grad(&bench.pool, &windows, &x, &dy, &mut dx);
    });
}

fn convolutions(bench: &Bench) {
    // MNIST's two layers come third and fourth.
    for (batch, side, ci, co, k) in
        [(32, 28, 32, 64, 5), (32, 56, 64, 64, 3), (100, 28, 1, 32, 5), (100, 14, 32, 64, 5)]
    {
        let conv = Conv2d {
            batch,
            in_height: side,
            in_width: side,
            in_channels: ci,
            filter_height: k,
            filter_width: k,
            out_channels: co,
            groups: 1,
            stride_height: 1,
            stride_width: 1,
            dilation_height: 1,
            dilation_width: 1,
            pad_top: k / 2,
            pad_left: k / 2,
            out_height: side,
            out_width: side,
        };
        let pixels = batch * side * side;
        let (x, filter, dy) = (numbers(pixels * ci, 1), numbers(k * k * ci * co, 2), numbers(pixels * co, 3));
        let (mut y, mut dx, mut df) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; filter.len()]);
        let flops = 2.0 * (pixels * ci * co * k * k) as f64;
        let name = format!("conv2d_b{batch}_{side}x{side}x{ci}_{co}_k{k}");
        bench.run(&format!("{name}_fwd"), flops, "GFLOP/s", 1e-9, || {
            conv::conv2d(&bench.pool, &conv, &x, &filter, &mut y);
        });
        bench.run(&format!("{name}_grad_input"), flops, "GFLOP/s", 1e-9, || {
            conv::conv2d_backprop_input(&bench.pool, &conv, &filter, &dy, &mut dx);
        });
        bench.run(&format!("{name}_grad_filter"), flops, "GFLOP/s", 1e-9, || {
            conv::conv2d_backprop_filter(&bench.pool, &conv, &x, &dy, &mut df);
        });
    }
}

fn updates(bench: &Bench) {
    let len = 10_000_000;
    let (mut var, mut m, mut v, grad) = (vec![0.0; len], vec![0.0; len], vec![0.0; len], vec![1.0f32; len]);
    let adam = optim::Adam {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        beta1_power: 0.9,
        beta2_power: 0.999,
        epsilon: 1e-8,
        nesterov: false,
    };
    bench.run("adam_apply_10M", len as f64, "Gparam/s", 1e-9, || {
        adam.apply(&bench.pool, &mut var, &mut m, &mut v, &grad);
    });
    bench.run("sgd_apply_10M", len as f64, "Gparam/s", 1e-9, || {
        optim::GradientDescent { lr: 1e-3 }.apply(&bench.pool, &mut var, &grad);
    });
}
