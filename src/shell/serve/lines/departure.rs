//! The end of the gateway before a relay of lines: the relay is told first and answers, so that no
//! request is on its way when the gateway reads no more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::budget::ByteBudget;
use crate::base::clock;
use crate::listener::pieces::QueuedMessage;

/// Notification by which the gateway says to a relay of lines that it is ending: it answers the
/// open requests, and reads no further ones behind [`LEFT`].
pub const LEAVING: &str = r#"{"jsonrpc":"2.0","method":"notifications/headend/leaving"}"#;
/// Notification by which a relay answers [`LEAVING`]: only messages about its open requests follow.
pub const LEFT: &str = r#"{"jsonrpc":"2.0","method":"notifications/headend/left"}"#;
/// Longest time that a relay may take to answer [`LEAVING`].
const LEAVE: Duration = Duration::from_secs(2);

/// The end of the gateway before a relay, which is told first so that no request is lost.
#[derive(Default)]
pub(super) enum Departure {
    #[default]
    None,
    /// The relay was told, and has to answer by this time.
    Told(Instant),
    /// The relay has answered: only messages about open requests follow.
    Left,
}

impl Departure {
    /// Resolves when the gateway ends, or when the relay has not answered in time. Cancel-safe.
    pub(super) async fn is_due(&self, stop: &CancellationToken) {
        match self {
            Self::None => stop.cancelled().await,
            Self::Told(until) => clock::sleep_until(Some(*until)).await,
            Self::Left => std::future::pending().await,
        }
    }

    /// Tells a relay that the gateway ends. Returns false if the connection ends at once.
    pub(super) fn begin(
        &mut self,
        is_relay: bool,
        out: &mpsc::Sender<QueuedMessage>,
        budget: &Arc<ByteBudget>,
    ) -> bool {
        let notice = QueuedMessage::new(Bytes::from_static(LEAVING.as_bytes()), budget);
        let is_told = matches!(self, Self::None) && is_relay && out.try_send(notice).is_ok();
        *self = Self::Told(clock::now() + LEAVE);
        is_told
    }

    /// Returns whether the line is the relay's answer.
    pub(super) fn is_over(&mut self, line: &[u8]) -> bool {
        let is_answer = matches!(self, Self::Told(_)) && *line == *LEFT.as_bytes();
        if is_answer {
            *self = Self::Left;
        }
        is_answer
    }

    pub(super) const fn has_left(&self) -> bool {
        matches!(self, Self::Left)
    }
}
