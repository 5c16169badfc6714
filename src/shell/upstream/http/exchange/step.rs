//! The steps of an exchange, and its behaviour on a lost session or a refused token.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::event::CallEvent;
use crate::upstream::login::tokens::TokenAttempts;
use crate::upstream::state::http_error::HttpError;
use crate::wire::message;

/// Behaviour of a request whose server has forgotten the session.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionRenewal {
    /// A new session is opened, once, and the request is sent again.
    Due,
    Done,
    /// The request fails with 404.
    Never,
    /// The request fails as with `Never`, on every answer that may mean a lost session: its only
    /// purpose is to find that out.
    Look,
}

/// An answer that stands unless the session proves lost.
#[derive(Default)]
pub(super) enum DoubtfulAnswer {
    #[default]
    None,
    Answer(message::Response),
    Failed(HttpError, Option<Duration>),
}

/// The answer to the question whether a refused request is sent again, and its attempts so far.
pub(super) type RetryDecision = BoxFuture<'static, (bool, TokenAttempts)>;

pub(super) enum ExchangeStep {
    Event(CallEvent),
    Answer(message::Response),
    /// The error, and the wait that the upstream asked for.
    Failed(HttpError, Option<Duration>),
}
