//! The calls of one legacy session, and the questions during them.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::sync::mpsc;

use crate::engine::askers::{AskerRegistry, CallOrigin};
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::connection::attribution::{CallInFlight, QuestionAttribution};
use crate::engine::event::CallEvent;
use crate::mcp::method::ItemList;

/// A call in the session.
#[derive(Debug)]
pub(super) struct CallInSession {
    pub(super) events: mpsc::Sender<CallEvent>,
    pub(super) party: CallOrigin,
}

/// The calls in flight in one legacy session, and the attribution of the server's questions to
/// them. The lock is held for one operation at a time.
#[derive(Debug)]
pub(super) struct SessionCalls {
    pub(super) calls: HashMap<u64, CallInSession, RandomState>,
    /// Attribution of questions on the session's own stream.
    pub(super) attribution: QuestionAttribution,
    /// True while a task waits for the question that is held.
    pub(super) is_watched: bool,
    /// Lists that have changed according to the server.
    pub(super) changed: Vec<ItemList>,
}

impl SessionCalls {
    pub(super) fn new(declared: DeclaredCapabilities, askers: Arc<AskerRegistry>) -> Self {
        let attribution = QuestionAttribution::new(declared, askers);
        Self { calls: HashMap::default(), attribution, is_watched: false, changed: Vec::new() }
    }

    /// Lists the calls that a question on the session's own stream may belong to.
    pub(super) fn in_flight(calls: &HashMap<u64, CallInSession, RandomState>) -> Vec<CallInFlight> {
        calls.iter().map(|(call, called)| CallInFlight { call: *call, party: called.party.clone() }).collect()
    }

    /// Records lists that have changed.
    pub(super) fn change(&mut self, lists: &[ItemList]) {
        self.changed.retain(|list| !lists.contains(list));
        self.changed.extend_from_slice(lists);
    }

    /// Returns the call in this session, if there is certainly only one.
    pub(super) fn only_call(&self) -> Option<u64> {
        self.calls.keys().copied().next().filter(|_| self.calls.len() == 1 && !self.attribution.doubt.is_open())
    }
}
