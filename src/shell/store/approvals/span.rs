//! How long an approval stays open.

use std::time::Duration;

use crate::config::Consent;
use crate::policy::consent::Wall;

/// How long a prompt is open; the configuration says so, and may change.
#[derive(Clone, Copy, Debug)]
pub enum Span {
    /// As long as a call waits for its own client.
    Client,
    /// As long as the console and the command line may take, or that time, if it is shorter.
    Person(Duration),
}

impl Span {
    /// Whole seconds of the wall clock count, so a client never has less time than promised.
    pub(super) fn life(self, consent: &Consent) -> Wall {
        let life = match self {
            Self::Client => consent.timeout,
            Self::Person(most) => consent.prompt_life.min(most),
        };
        life.as_secs().saturating_add(1)
    }
}
