//! Routes notifications that a server sends outside of calls to the client that gets them. Also
//! holds the state by which the calls of a session take turns.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::catalog::name::UpstreamName;
use crate::engine::askers::AskerRegistry;
use crate::upstream::turns::CallTurns;
use crate::upstream::updates::ResourceSubscriptions;
use crate::wire::message::Notification;

/// Most notifications that may wait for a client; beyond that, the oldest are dropped.
const MAX_NOTICES: usize = 64;

/// One client of a caller: a legacy session or one connection by pipe. Its lanes end with it.
#[derive(Debug)]
pub struct ClientTag {
    number: u64,
    /// Notifications that servers sent on this client's own sessions outside of its calls, with the
    /// server's name.
    notices: Mutex<VecDeque<(UpstreamName, Notification)>>,
    noticed: Notify,
}

/// Returns the next number for a session, a pipe or a connection; unique within this process.
pub(crate) fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl ClientTag {
    pub fn new() -> Arc<Self> {
        let number = fresh_number();
        Arc::new(Self { number, notices: Mutex::default(), noticed: Notify::new() })
    }

    /// Returns the client's number, unique within this process.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Queues a notification for the client; drops the oldest if there are too many.
    fn tell(&self, upstream: &UpstreamName, notice: Notification) {
        let mut notices = self.notices.lock();
        if notices.len() >= MAX_NOTICES {
            notices.pop_front();
        }
        notices.push_back((upstream.clone(), notice));
        self.noticed.notify_one();
    }

    /// Waits for the next notification that belongs to no call. Cancel-safe.
    pub async fn next(&self) -> (UpstreamName, Notification) {
        loop {
            let next = self.notices.lock().pop_front();
            if let Some(next) = next {
                return next;
            }
            self.noticed.notified().await;
        }
    }
}

/// Destinations for the news of one session with an upstream.
#[derive(Clone, Debug)]
pub struct SessionNews {
    pub upstream: UpstreamName,
    /// The client that owns this session; `None` for the main session.
    client: Option<Weak<ClientTag>>,
    pub turns: Arc<CallTurns>,
    pub updates: Arc<ResourceSubscriptions>,
}

impl SessionNews {
    pub(super) fn new(upstream: UpstreamName, askers: Arc<AskerRegistry>, client: Option<Weak<ClientTag>>) -> Self {
        Self { upstream, client, turns: Arc::new(CallTurns::new(askers)), updates: Arc::default() }
    }

    /// Passes a notification outside of calls on, if the session belongs to one client.
    pub fn tell(&self, notice: Notification) {
        if let Some(client) = self.client.as_ref().and_then(Weak::upgrade) {
            client.tell(&self.upstream, notice);
        }
    }
}
