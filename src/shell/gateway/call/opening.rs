//! The wait of a call for a session with an upstream that is not ready.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::engine::failure::CallFailure;
use crate::gateway::call::context::CallContext;
use crate::upstream::session::lane::LaneUse;
use crate::upstream::session::link::UpstreamLink;

/// Time after which a client is first told what its call waits for, and the interval after that.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(5);

/// A session that is being opened for a call.
pub(super) struct SessionOpening {
    session: BoxFuture<'static, Result<(LaneUse, UpstreamLink), CallFailure>>,
    since: Instant,
    next_notice: Instant,
}

/// The session in which a call is sent.
pub(super) struct OpenSession {
    pub(super) lane: LaneUse,
    pub(super) link: UpstreamLink,
    /// Begin of the call's wait for it.
    pub(super) since: Instant,
}

impl SessionOpening {
    /// Begins to open a session for the call's client.
    pub(super) fn new(context: &CallContext, since: Instant) -> Self {
        Self { session: context.handle.way(&context.wants), since, next_notice: clock::now() + FIRST }
    }

    /// Waits for the session; `None` when a notice to the client is due. `is_told`: the client gets
    /// notices. Cancel-safe.
    ///
    /// # Errors
    /// The upstream did not start.
    pub(super) async fn session(&mut self, is_told: bool) -> Result<Option<OpenSession>, CallFailure> {
        tokio::select! {
            opened = &mut self.session => {
                let (lane, link) = opened?;
                Ok(Some(OpenSession { lane, link, since: self.since }))
            }
            () = clock::sleep_until(is_told.then_some(self.next_notice)) => {
                self.next_notice = clock::now() + EVERY;
                Ok(None)
            }
        }
    }
}
