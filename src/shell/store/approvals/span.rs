//! The life of an approval.

use std::time::Duration;

use crate::config::ApprovalSettings;
use crate::policy::consent::SteadySeconds;

/// The rule for an approval's life; its times come from the configuration, and may change.
#[derive(Clone, Copy, Debug)]
pub enum ApprovalLife {
    /// As long as a call waits for its own client.
    Client,
    /// As long as the console and the command line may take, or this time, if it is shorter.
    Person(Duration),
}

impl ApprovalLife {
    /// Returns the life in whole seconds. One second is added, since the clock counts whole ones: a
    /// client never has less time than promised.
    pub(super) fn life(self, consent: &ApprovalSettings) -> SteadySeconds {
        let life = match self {
            Self::Client => consent.timeout,
            Self::Person(most) => consent.approval_life.min(most),
        };
        life.as_secs().saturating_add(1)
    }
}
