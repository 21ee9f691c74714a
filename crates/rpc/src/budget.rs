//! How many bytes of unfinished messages may be held: by one connection, and by all of a server together.
//!
//! A message counts while it comes in. What is complete belongs to whoever asked for it, and is bounded elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor::{Result, exhausted};

/// A bound, and what is held of it. It may be a share of a larger one.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
    /// The most that was held since somebody asked.
    peak: AtomicUsize,
    /// Whose bytes they are, for the sentence that refuses more.
    whose: &'static str,
    whole: Option<Arc<Budget>>,
}

impl Budget {
    /// A bound for everything that `whose` names.
    pub fn new(limit: usize, whose: &'static str) -> Arc<Budget> {
        Budget::within(limit, whose, None)
    }

    /// A bound within this one.
    pub fn share(self: &Arc<Budget>, limit: usize, whose: &'static str) -> Arc<Budget> {
        Budget::within(limit, whose, Some(self.clone()))
    }

    fn within(limit: usize, whose: &'static str, whole: Option<Arc<Budget>>) -> Arc<Budget> {
        Arc::new(Budget { limit, held: AtomicUsize::default(), peak: AtomicUsize::default(), whose, whole })
    }

    /// The most that was held at a time since this was last asked.
    pub fn take_peak(&self) -> usize {
        self.peak.swap(self.held.load(Ordering::Relaxed), Ordering::Relaxed)
    }

    /// Nothing yet, to be grown.
    pub fn hold(self: &Arc<Budget>) -> Held {
        Held { budget: self.clone(), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> Result<()> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let taken = match before.checked_add(bytes) {
            Some(total) if total <= self.limit => {
                self.peak.fetch_max(total, Ordering::Relaxed);
                self.whole.as_ref().map_or(Ok(()), |whole| whole.take(bytes))
            }
            _ => Err(exhausted!(
                "unfinished messages {} hold {before} bytes, and {bytes} more would exceed the {} that are allowed; \
                 send fewer at a time",
                self.whose,
                self.limit
            )),
        };
        if taken.is_err() {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

/// What one message holds of a budget; given back when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    /// Holds so many more, unless that is too many.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_and_the_whole_are_both_kept_to() {
        let whole = Budget::new(100, "of the server");
        let (one, two) = (whole.share(70, "of one"), whole.share(70, "of two"));
        let (mut a, mut b, mut c) = (one.hold(), one.hold(), two.hold());
        a.grow(40).unwrap();
        let refused = b.grow(31).unwrap_err();
        assert_eq!(refused.code, tensor::Code::ResourceExhausted);
        assert!(refused.message.contains("of one hold 40 bytes, and 31 more"), "{refused}");
        b.grow(30).unwrap();
        assert!(c.grow(31).unwrap_err().message.contains("of the server hold 70"));
        c.grow(30).unwrap();
        drop(a);
        c.grow(40).unwrap();
        assert!(c.grow(1).is_err() && b.grow(1).is_err(), "one has 30, two has 70");
        assert_eq!((one.take_peak(), two.take_peak()), (70, 70));
        drop((b, c));
        assert_eq!((one.take_peak(), one.take_peak()), (30, 0));
        assert_eq!(whole.held.load(Ordering::Relaxed), 0);
        assert!(two.hold().grow(usize::MAX).is_err());
        two.hold().grow(70).unwrap();
    }
}
