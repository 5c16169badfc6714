//! Log lines about an upstream that the upstream or its clients can cause without a bound.

use crate::base::tally::Tally;

/// Their counts.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Changes of its state that answers and their absence make.
    pub(crate) states: Tally,
    /// Sessions that it forgot and that were opened anew.
    pub(crate) renewed: Tally,
    /// Clients' own sessions that ended.
    pub(crate) sessions: Tally,
    /// Resource subscriptions that it lost.
    pub(crate) subscriptions: Tally,
    /// Questions that were declined.
    pub(crate) declined: Tally,
    /// Parts of its lists that are not offered.
    pub(crate) lists: Tally,
    /// Inventories that are not on disk.
    pub(crate) unkept: Tally,
    /// Lists that could not be read, and that can be again.
    pub(crate) unread: Tally,
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
