//! The sessions of a master and their clients. The tasks of a session see only its master, whose connections last: when
//! the client is gone they are told.

use super::session::MasterSession;
use crate::interface::SessionHandle;
use framework::FastMap;
use framework::participant::{LostWorker, Participant, Participants, Watcher};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The sessions that are open, and who opened them.
pub(super) struct Sessions {
    pub(super) by_handle: Mutex<FastMap<SessionHandle, Arc<MasterSession>>>,
    clients: Arc<Participants>,
}

impl Sessions {
    /// None yet.
    pub(super) fn new() -> Arc<Sessions> {
        // Nobody asks for this policy: a client takes part in nothing itself.
        let clients = Participants::new(LostWorker::default());
        let sessions = Arc::new(Sessions { by_handle: Mutex::default(), clients: clients.clone() });
        clients.watch(Arc::downgrade(&sessions) as Weak<dyn Watcher>);
        sessions
    }

    /// The client of a new session.
    pub(super) fn new_client(&self, now: Instant) -> Arc<Participant> {
        self.clients.admit("a client", now)
    }
}

impl Watcher for Sessions {
    fn presence_changed(&self) {
        let open: Vec<Arc<MasterSession>> = self.by_handle.lock().values().cloned().collect();
        for session in open.iter().filter(|session| session.lost_its_client()) {
            session.tell_of_loss();
        }
    }
}
