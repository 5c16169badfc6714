//! The wait of a call for an upstream that is not ready.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::engine::failure::Failure;
use crate::upstream::handle::{Handle, Slot};
use crate::upstream::link::Link;
use crate::upstream::session::{LaneUse, Wants};

/// When a client is first told what its call waits for, and how often after that.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(5);

/// A call that waits for its upstream.
pub(super) struct Opening {
    slot: Slot,
    way: BoxFuture<'static, Result<(LaneUse, Link), Failure>>,
    since: Instant,
    next: Instant,
}

/// The way that a call takes, and since when it waited for that.
pub(super) struct Opened {
    pub(super) slot: Slot,
    pub(super) lane: LaneUse,
    pub(super) link: Link,
    pub(super) since: Instant,
}

impl Opening {
    pub(super) fn new(handle: &Arc<Handle>, wants: &Wants, slot: Slot, since: Instant) -> Self {
        Self { slot, way: handle.way(wants), since, next: clock::now() + FIRST }
    }

    /// Waits for the way; `None` when it is time to tell the client, if it `wants` that. Cancel-safe.
    pub(super) async fn way(&mut self, wants: bool) -> Option<Result<(LaneUse, Link), Failure>> {
        tokio::select! {
            opened = &mut self.way => Some(opened),
            () = clock::sleep_until(wants.then_some(self.next)) => {
                self.next = clock::now() + EVERY;
                None
            }
        }
    }

    pub(super) fn opened(self, (lane, link): (LaneUse, Link)) -> Opened {
        Opened { slot: self.slot, lane, link, since: self.since }
    }
}
