//! The failure of a notice, and the time limit of one.

use std::process::ExitStatus;
use std::time::Duration;

/// Longest time of a notice.
pub(super) const TIME: Duration = Duration::from_secs(10);

/// The reason why a notice failed. No text contains any part of the notice, of an answer or of a
/// secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoticeError {
    #[error("{0}")]
    Start(String),
    #[error("the program ended with {0}")]
    Status(ExitStatus),
    #[error("it took longer than {} s and was ended", TIME.as_secs())]
    Late,
    #[error("{0}")]
    Unreached(String),
    #[error("the server answered with status {0}{hint}", hint = if (300..400).contains(.0) { "; redirects are not followed" } else { "" })]
    Answer(u16),
    #[error("the gateway is shutting down")]
    Stopped,
}
