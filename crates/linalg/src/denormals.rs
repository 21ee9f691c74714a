//! Numbers too small to be stored with all their digits count as zero while kernels run, as they do in TensorFlow.
//!
//! Processors take several times as long for them, and training that has converged is full of them: where the gradients
//! have become small, a step of Adam takes three times as long on a Zen 4, and more on other processors. Processors that
//! are not asked here (those that are not x86) compute with such numbers as they do otherwise.

use std::marker::PhantomData;

/// While it lives, numbers too small for all their digits are zero to the calling thread, as operands and as results.
#[derive(Debug)]
pub struct FlushDenormals {
    before: u32,
    /// The setting is the thread's.
    _not_send: PhantomData<*const ()>,
}

impl FlushDenormals {
    /// From now on, on this thread.
    #[inline]
    pub fn here() -> FlushDenormals {
        let before = control::get();
        if before & control::FLUSH != control::FLUSH {
            control::set(before | control::FLUSH);
        }
        FlushDenormals { before, _not_send: PhantomData }
    }
}

impl Drop for FlushDenormals {
    #[inline]
    fn drop(&mut self) {
        if self.before & control::FLUSH != control::FLUSH {
            control::set(self.before);
        }
    }
}

/// The register that says how a thread of this processor computes.
///
/// The language takes it for unchanged, and so the compiler may work out beforehand what follows from constants alone as if
/// nothing were flushed. Kernels compute with what they are given, and whichever of the two results they get is a right one.
#[cfg(target_arch = "x86_64")]
mod control {
    use std::arch::asm;

    /// Results that are too small are zero (bit 15), and so are operands (bit 6).
    pub(super) const FLUSH: u32 = 1 << 15 | 1 << 6;

    #[inline]
    pub(super) fn get() -> u32 {
        let mut value = 0u32;
        // SAFETY: it writes four bytes to where it is told, and every processor of this architecture has it.
        unsafe { asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
        value
    }

    #[inline]
    pub(super) fn set(value: u32) {
        // SAFETY: it reads four bytes, which `get` gave with no other bits set than those above, which every processor with
        // 64 bits has.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &value, options(nostack, readonly)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod control {
    pub(super) const FLUSH: u32 = 0;

    pub(super) fn get() -> u32 {
        0
    }

    pub(super) fn set(_: u32) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::number::Field;
    use crate::optim::Adam;
    use crate::parallel::Pool;
    use half::bf16;
    use std::hint::black_box;

    fn product() -> f32 {
        black_box(1e-30f32) * black_box(1e-10)
    }

    #[test]
    fn what_is_too_small_is_zero_while_it_is_wanted() {
        let is_flushed = || product() == 0.0 && black_box(1e-40f32) == black_box(0.0);
        assert!(!is_flushed());
        let outer = FlushDenormals::here();
        drop(FlushDenormals::here());
        assert!(is_flushed());
        drop(outer);
        assert!(!is_flushed());
    }

    #[test]
    fn threads_of_the_pool_take_it_for_zero() {
        let (tell, told) = std::sync::mpsc::channel();
        Pool::new(1).spawn(Box::new(move || tell.send(product()).unwrap()));
        assert_eq!(told.recv(), Ok(0.0));
    }

    #[test]
    fn a_power_of_what_is_too_small_is_that_of_zero() {
        let _flush = FlushDenormals::here();
        for base in [1e-40f32, -1e-40] {
            assert_eq!([base.pow(0.5), base.pow(-2.0), base.pow(0.0)], [0.0, f32::INFINITY, 1.0]);
        }
        assert_eq!((1e-310f64.pow(0.5), bf16::from_bits(1).pow(bf16::from_f32(0.5))), (0.0, bf16::ZERO));
    }

    #[test]
    fn the_moments_of_a_gradient_that_vanishes_keep_all_their_digits() {
        let _flush = FlushDenormals::here();
        let step = Adam {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            beta1_power: 0.9,
            beta2_power: 0.999,
            epsilon: 1e-8,
            nesterov: false,
        };
        let (mut var, mut m, mut v) = ([1.0f32; 20], [1.2e-38f32; 20], [1.2e-38f32; 20]);
        for _ in 0..30 {
            step.apply_row(&mut var, &mut m, &mut v, &[1e-20; 20]);
        }
        assert!(m.iter().chain(&v).all(|moment| !moment.is_subnormal()), "{m:?} {v:?}");
    }
}
