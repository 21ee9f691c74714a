//! What a thread that polls a step wants from the network's threads: asked of them at once, when it has polled.
//!
//! To wake a thread on a core at rest takes longer than to write a message. A step that a client's thread begins itself, since
//! its master is in the same process, has several, and would wake the network for each. On the network's own threads it
//! comes by itself that what was woken is done after the poll.

use crate::runtime;
use framework::BoxFuture;
use std::cell::RefCell;
use std::task::Waker;

enum Errand {
    Wake(Waker),
    Spawn(BoxFuture<()>),
}

thread_local! {
    /// There is a list while the thread polls.
    static ERRANDS: RefCell<Option<Vec<Errand>>> = const { RefCell::new(None) };
}

/// Polls, and then sees to what came up.
#[cfg(target_os = "linux")]
pub(crate) fn gather<T>(poll: impl FnOnce() -> T) -> T {
    struct EndOnDrop {
        is_within: bool,
    }
    impl Drop for EndOnDrop {
        fn drop(&mut self) {
            run(ERRANDS.replace(self.is_within.then(Vec::new)));
        }
    }
    let outer = ERRANDS.replace(Some(Vec::new()));
    let _end = EndOnDrop { is_within: outer.is_some() };
    run(outer); // what blocks within a poll may wait for what that one wants
    poll()
}

#[cfg(target_os = "linux")]
fn run(errands: Option<Vec<Errand>>) {
    for errand in errands.into_iter().flatten() {
        match errand {
            Errand::Wake(waker) => waker.wake(),
            Errand::Spawn(work) => drop(runtime::network().spawn(work)),
        }
    }
}

/// Wakes a task of the network.
pub(crate) fn wake(waker: &Waker) {
    let is_noted = with_list(|errands| {
        let is_known = errands.iter().any(|errand| matches!(errand, Errand::Wake(known) if known.will_wake(waker)));
        if !is_known {
            errands.push(Errand::Wake(waker.clone()));
        }
    });
    if is_noted.is_none() {
        waker.wake_by_ref();
    }
}

/// Has the network's threads do this.
pub(crate) fn spawn(work: BoxFuture<()>) {
    let mut work = Some(work);
    with_list(|errands| errands.extend(work.take().map(Errand::Spawn)));
    if let Some(work) = work {
        runtime::network().spawn(work);
    }
}

fn with_list(note: impl FnOnce(&mut Vec<Errand>)) -> Option<()> {
    // A thread that is ending has no list any more.
    ERRANDS.try_with(|errands| errands.borrow_mut().as_mut().map(note)).ok().flatten()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn tasks_are_woken_once_after_the_poll() {
        let (one, other) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let counts = || [&one, &other].map(|count| count.0.load(Ordering::Relaxed));
        let [first, second] = [&one, &other].map(|count| Waker::from(count.clone()));
        wake(&first);
        assert_eq!(counts(), [1, 0], "nobody polls");
        gather(|| {
            [&first, &second, &first].into_iter().for_each(wake);
            assert_eq!(counts(), [1, 0]);
        });
        assert_eq!(counts(), [2, 1]);
    }

    #[test]
    fn what_came_up_before_is_not_kept_from_whoever_blocks_within() {
        let (send, receive) = std::sync::mpsc::channel();
        gather(|| {
            let sent = send.clone();
            spawn(Box::pin(async move { sent.send("before").unwrap() }));
            gather(|| assert_eq!(receive.recv().unwrap(), "before"));
            let sent = send.clone();
            spawn(Box::pin(async move { sent.send("after").unwrap() }));
            assert!(receive.try_recv().is_err(), "it is still to come");
        });
        assert_eq!(receive.recv().unwrap(), "after");
    }
}
