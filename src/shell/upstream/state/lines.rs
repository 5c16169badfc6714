//! Log lines about an upstream that the upstream or its clients can cause without a bound.

use crate::base::tally::Tally;

/// Their counts.
#[derive(Debug)]
pub struct Lines {
    /// Changes of its state that answers and their absence make.
    pub states: Tally,
    /// Sessions that it forgot and that were opened anew.
    pub renewed: Tally,
    /// Clients' own sessions that ended.
    pub sessions: Tally,
    /// Resource subscriptions that it lost.
    pub subscriptions: Tally,
    /// Questions that were declined.
    pub declined: Tally,
    /// Parts of its lists that are not offered.
    pub lists: Tally,
    /// Inventories that are not on disk.
    pub unkept: Tally,
    /// Lists that could not be read, and that can be again.
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
