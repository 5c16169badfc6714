//! The calls of one legacy session, and the questions during them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::sync::mpsc;

use crate::engine::ask::Declared;
use crate::engine::askers::{Askers, Party};
use crate::engine::attribution::{Attribution, InFlight};
use crate::engine::event::ExchangeEvent;
use crate::mcp::method::List;

/// A call in the session.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) events: mpsc::Sender<ExchangeEvent>,
    pub(super) party: Party,
}

/// The calls in flight in one legacy session, and the attribution of the server's questions to
/// them. The lock is held for one operation at a time.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) calls: HashMap<u64, Called, RandomState>,
    /// Attribution of questions on the session's own stream.
    pub(super) attribution: Attribution,
    /// True while a task waits for the question that is held.
    pub(super) is_watched: bool,
    /// Lists that have changed according to the server.
    pub(super) changed: Vec<List>,
}

impl Desk {
    pub(super) fn new(declared: Declared, askers: Arc<Askers>) -> Self {
        let attribution = Attribution::new(declared, askers);
        Self { calls: HashMap::default(), attribution, is_watched: false, changed: Vec::new() }
    }

    /// Lists the calls that a question on the session's own stream may belong to.
    pub(super) fn in_flight(calls: &HashMap<u64, Called, RandomState>) -> Vec<InFlight> {
        calls.iter().map(|(call, called)| InFlight { call: *call, party: called.party.clone() }).collect()
    }

    /// Records lists that have changed.
    pub(super) fn change(&mut self, lists: &[List]) {
        self.changed.retain(|list| !lists.contains(list));
        self.changed.extend_from_slice(lists);
    }

    /// Returns the call in this session, if there is certainly only one.
    pub(super) fn only_call(&self) -> Option<u64> {
        self.calls.keys().copied().next().filter(|_| self.calls.len() == 1 && !self.attribution.doubt.is_open())
    }
}
