//! Functions of statistics that the standard library lacks, in `f64`.

/// The error function.
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// One less the error function.
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// The logarithm of the magnitude of the gamma function.
pub fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The derivative of `lgamma`: NaN at the poles other than zero.
pub fn digamma(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x <= 0.0 {
        if x == 0.0 {
            return f64::NEG_INFINITY.copysign(-1.0 / x.signum());
        }
        if x == x.floor() {
            return f64::NAN;
        }
        // The reflection formula turns the negative axis into the positive one.
        let fraction = x - x.floor();
        return digamma(1.0 - x) - std::f64::consts::PI / (std::f64::consts::PI * fraction).tan();
    }
    // The recurrence moves x to where the asymptotic series converges.
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = y
        * (1.0 / 12.0
            - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0 - y * (691.0 / 32760.0))))));
    shift + x.ln() - 0.5 / x - series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digamma_has_its_known_values() {
        for (x, want) in [
            (1.0, -0.577_215_664_901_532_9),
            (0.5, -1.963_510_026_021_423_5),
            (10.0, 2.251_752_589_066_721),
            (-0.5, 0.036_489_973_978_576_5),
            (100.0, 4.600_161_852_738_087),
        ] {
            assert!((digamma(x) - want).abs() < 1e-13, "digamma({x}) = {}", digamma(x));
        }
        assert!(digamma(-2.0).is_nan());
    }
}
