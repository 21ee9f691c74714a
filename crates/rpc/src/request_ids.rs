//! Remembers which requests have come, so that one that a caller repeats is not carried out twice.

use framework::FastSet;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tensor::{Result, aborted};

/// How many are remembered.
const REMEMBERED: usize = 100_000;

/// The numbers of the last requests.
#[derive(Default)]
pub struct RequestIds {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    known: FastSet<i64>,
    in_order: VecDeque<i64>,
}

impl RequestIds {
    /// Notes a request; one that came before is refused. Zero is not tracked.
    pub fn track(&self, id: i64, what: &str) -> Result<()> {
        if id == 0 {
            return Ok(());
        }
        let mut seen = self.seen.lock();
        if !seen.known.insert(id) {
            return Err(aborted!("The same {what} request was received twice. request_id: {id}"));
        }
        seen.in_order.push_back(id);
        if seen.in_order.len() > REMEMBERED
            && let Some(oldest) = seen.in_order.pop_front()
        {
            seen.known.remove(&oldest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once() {
        let ids = RequestIds::default();
        assert!(ids.track(0, "x").is_ok() && ids.track(0, "x").is_ok());
        assert!(ids.track(-7, "x").is_ok());
        let error = ids.track(-7, "RunStep (Master)").unwrap_err();
        assert_eq!(error.code, tensor::Code::Aborted);
        assert!(error.message.starts_with("The same RunStep (Master) request was received twice. "), "{error}");
    }

    #[test]
    fn only_the_last_ones_are_remembered() {
        let ids = RequestIds::default();
        (1..=REMEMBERED as i64 + 1).for_each(|id| ids.track(id, "x").unwrap());
        assert!(ids.track(2, "x").is_err());
        assert!(ids.track(1, "x").is_ok());
        assert_eq!(ids.seen.lock().known.len(), REMEMBERED);
    }
}
