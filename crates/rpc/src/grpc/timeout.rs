//! The header `grpc-timeout`: how long the caller will wait, as up to eight digits and a unit.

use http::HeaderName;
use std::time::Duration;

/// The header's name.
pub static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

const UNITS: [(char, u64); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60 * 1_000_000_000),
    ('H', 3600 * 1_000_000_000),
];
const DIGITS_MAX: u64 = 99_999_999;

/// The header's value: in the finest unit that holds it, rounded up.
pub fn format(limit: Duration) -> String {
    let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let fitting = UNITS.iter().find(|(_, unit)| nanos.div_ceil(*unit) <= DIGITS_MAX);
    fitting.map_or(format!("{DIGITS_MAX}H"), |(letter, unit)| format!("{}{letter}", nanos.div_ceil(*unit)))
}

/// The time the header's value means; `None` if it means none.
pub fn parse(value: &str) -> Option<Duration> {
    let (_, nanos) = *UNITS.iter().find(|(letter, _)| value.ends_with(*letter))?;
    let digits = &value[..value.len() - 1];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(Duration::from_nanos(nanos.saturating_mul(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_and_read() {
        let cases = [
            (Duration::ZERO, "0n"),
            (Duration::from_millis(50), "50000000n"),
            (Duration::from_millis(500), "500000u"),
            (Duration::from_secs(99), "99000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(86_400 * 30), "2592000S"),
        ];
        for (limit, text) in cases {
            assert_eq!(format(limit), text);
            assert_eq!(parse(text), Some(limit));
        }
        assert_eq!(parse("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parse("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(format(Duration::MAX).pop(), Some('H'));
    }

    #[test]
    fn what_is_not_a_limit_is_none() {
        for text in ["", "5", "S", "-1S", "1.5S", "123456789S", "5s", "é", "5é", "５S"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
