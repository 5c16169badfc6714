//! The link to a program over lines: the sender of its calls, and what other replicas of a cluster
//! need to use it too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{broadcast, mpsc};

use crate::base::budget::ByteBudget;
use crate::engine::call::OutgoingCall;
use crate::engine::handshake::HandshakeAgreement;
use crate::mcp::log::SessionLogLevel;
use crate::mcp::method::ItemList;
use crate::upstream::line::call::{LineCall, LineCallSignal, StdioExchange, stdio_call};
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message;

/// Changes that wait for a slow replica; beyond that its link ends, and it reads everything anew.
pub(super) const CHANGES: usize = 64;

/// The part of a link by which other replicas use its program.
#[derive(Clone, Debug)]
pub(crate) struct SharedProgram {
    /// The program's result of the handshake.
    pub(super) greeting: RawJson,
    /// Changes of a legacy program, which tells them to its session and not to a call.
    pub(super) changes: broadcast::Sender<ProgramChange>,
}

impl From<(broadcast::Sender<ProgramChange>, RawJson)> for SharedProgram {
    fn from((changes, greeting): (broadcast::Sender<ProgramChange>, RawJson)) -> Self {
        Self { greeting, changes }
    }
}

/// A change that a legacy program has told.
#[derive(Clone, Debug)]
pub(super) enum ProgramChange {
    Lists,
    Resource(String),
}

impl ProgramChange {
    /// Encodes the notifications of the change.
    pub(super) fn messages(&self) -> Vec<Bytes> {
        match self {
            Self::Lists => [ItemList::Tools, ItemList::Prompts, ItemList::Resources]
                .map(|list| message::encode_notification(list.changed(), None))
                .into(),
            Self::Resource(uri) => {
                let params = RawObject::of_strings(&[("uri", uri)]).encode();
                vec![message::encode_notification("notifications/resources/updated", Some(&params))]
            }
        }
    }
}

/// A sender of calls to a running child. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StdioLink {
    pub agreed: HandshakeAgreement,
    pub(super) calls: mpsc::Sender<LineCall>,
    pub(super) signals: mpsc::UnboundedSender<LineCallSignal>,
    pub(super) keys: Arc<AtomicU64>,
    pub(super) budget: Arc<ByteBudget>,
    /// The log level that the server was asked for.
    pub logs: Arc<SessionLogLevel>,
    /// Set if other replicas use the program.
    pub(super) shared: Option<SharedProgram>,
}

impl StdioLink {
    /// Sends a call to the child's task.
    pub fn call(&self, outgoing: OutgoingCall) -> StdioExchange {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let (party, budget, signals) = (outgoing.party.clone(), Arc::clone(&self.budget), self.signals.clone());
        let (port, exchange) = stdio_call(key, party, outgoing.wants(), budget, signals);
        // The channel has room for as many calls as a connection can have. If it were full, the
        // port would be dropped, and the exchange would report that nothing was sent.
        if let Err(TrySendError::Closed(LineCall { outgoing, port })) = self.calls.try_send(LineCall { outgoing, port })
        {
            port.unsent(outgoing);
        }
        exchange
    }

    /// Returns whether other replicas use the program too.
    pub const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Waits until the child's task takes no more calls.
    pub(super) async fn ended(&self) {
        self.calls.closed().await;
    }

    /// Returns whether the child's task accepts calls.
    pub fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }
}
