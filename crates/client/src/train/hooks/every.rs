//! `Every`: how often a hook does something, in steps or in time.

use std::time::{Duration, Instant};

/// How often something is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// Every so many steps.
    Steps(u64),
    /// Whenever as much time has passed.
    Time(Duration),
}

impl Every {
    /// Every so many steps.
    pub fn steps(steps: u64) -> Every {
        Every::Steps(steps.max(1))
    }

    /// Every so many seconds.
    pub fn secs(secs: f64) -> Every {
        Every::Time(Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
    }
}

/// When something was done last, and whether it is due again.
#[derive(Clone, Debug)]
pub(crate) struct Timer {
    every: Every,
    last: Option<(i64, Instant)>,
}

impl Timer {
    pub(crate) fn new(every: Every) -> Timer {
        Timer { every, last: None }
    }

    /// Whether it is due at this step: the first time always, and never twice at the same step.
    pub(crate) fn is_due(&self, step: i64) -> bool {
        let Some((last, time)) = self.last else { return true };
        if step == last {
            return false;
        }
        match self.every {
            Every::Steps(steps) => step.saturating_sub(last) >= i64::try_from(steps).unwrap_or(i64::MAX) || step < last,
            Every::Time(limit) => time.elapsed() >= limit,
        }
    }

    /// Notes that it is done now; steps and time since the last time.
    pub(crate) fn done(&mut self, step: i64) -> Option<(i64, Duration)> {
        let now = Instant::now();
        let before = self.last.replace((step, now));
        before.map(|(last, time)| (step - last, now - time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_from_the_last_time() {
        let mut timer = Timer::new(Every::steps(3));
        assert!(timer.is_due(7));
        assert_eq!(timer.done(7), None);
        let due: Vec<i64> = (0..12).filter(|&step| timer.is_due(step)).collect();
        assert_eq!(due, [0, 1, 2, 3, 4, 5, 6, 10, 11], "a step before the last one means that training went back");
        assert_eq!(timer.done(10).unwrap().0, 3);
    }

    #[test]
    fn time_counts_too() {
        let mut timer = Timer::new(Every::secs(0.0));
        timer.done(1);
        assert!(timer.is_due(2) && !timer.is_due(1));
        let mut slow = Timer::new(Every::secs(1e300));
        slow.done(1);
        assert!(!slow.is_due(2));
    }
}
