//! The calls of one legacy session, and the questions in the middle of them.

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::engine::ask::{Candidates, OpenRequests};
use crate::engine::doubt::Doubt;
use crate::engine::event::ExchangeEvent;
use crate::mcp::method::List;

/// What runs in one legacy session. The lock guards one operation at a time.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) calls: HashMap<u64, mpsc::Sender<ExchangeEvent>>,
    pub(super) asked: OpenRequests,
    /// About the session's own stream.
    pub(super) doubt: Doubt,
    /// Lists that the server says have changed.
    pub(super) changed: Vec<List>,
}

impl Desk {
    pub(super) fn candidates(&self) -> Candidates {
        self.asked.candidates(self.calls.keys().copied(), &self.doubt)
    }

    /// Takes note of lists that have changed.
    pub(super) fn change(&mut self, lists: &[List]) {
        self.changed.retain(|list| !lists.contains(list));
        self.changed.extend_from_slice(lists);
    }

    /// The call that runs or waits in this session, if it is one for certain.
    pub(super) fn only_call(&self) -> Option<u64> {
        self.calls.keys().copied().next().filter(|_| self.calls.len() == 1 && !self.doubt.is_open())
    }
}
