//! Work that goes on for long without waiting, and still lets others have their turn.

use framework::StepContext;
use std::task::Poll;
use std::time::{Duration, Instant};
use tensor::{Result, cancelled};

/// How long it may go on before it looks up: whoever polls may have a deadline.
const POLL_MAX: Duration = Duration::from_millis(10);

/// Looks up now and then.
pub(crate) struct Pace(Instant);

impl Pace {
    /// Starts now.
    pub fn new() -> Pace {
        Pace(Instant::now())
    }

    /// To be called in every turn of a loop that nobody can say the end of; an error if the step has ended.
    pub async fn turn(&mut self, step: &StepContext) -> Result<()> {
        if self.0.elapsed() < POLL_MAX {
            return Ok(());
        }
        if step.is_ended() {
            return Err(cancelled!("the step has ended").into_derived());
        }
        let mut is_first = true;
        std::future::poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        self.0 = Instant::now();
        Ok(())
    }
}
