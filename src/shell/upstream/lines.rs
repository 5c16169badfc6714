//! Limits for log lines about an upstream that the upstream or its clients could cause without end.

use crate::base::tally::Tally;

/// The tallies of one upstream, one for each kind of log line.
#[derive(Debug)]
pub struct Lines {
    /// Changes of the state that result from answers and from missing answers.
    pub states: Tally,
    /// Sessions that the upstream forgot and that were opened anew.
    pub renewed: Tally,
    /// Clients' own sessions that ended.
    pub sessions: Tally,
    /// Resource subscriptions that the upstream lost.
    pub subscriptions: Tally,
    /// Questions that were declined.
    pub declined: Tally,
    /// Parts of lists that are not offered.
    pub lists: Tally,
    /// Inventories that could not be stored.
    pub unkept: Tally,
    /// Lists that could not be read, and lists that can be read again.
    pub unread: Tally,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            states: Tally::of(20),
            renewed: Tally::of(5),
            sessions: Tally::of(5),
            subscriptions: Tally::of(5),
            declined: Tally::of(20),
            lists: Tally::of(50),
            unkept: Tally::of(1),
            unread: Tally::of(20),
        }
    }
}
