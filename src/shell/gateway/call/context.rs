//! The part of a call that is the same in all of its states, and the messages to its client.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::base::access::Access;
use crate::catalog::merge::CatalogEntry;
use crate::engine::call::CallProgress;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::fault::ProtocolFault;
use crate::engine::sealed::state::{StatePayload, StateScope};
use crate::gateway::answer::{CallLabels, RequestAnswer};
use crate::gateway::call::event::ClientEvent;
use crate::gateway::decision::prepared::InputContext;
use crate::gateway::service::Service;
use crate::gateway::snapshot::CatalogView;
use crate::mcp::asking::input::{InputError, RequestsByKey, input_required};
use crate::mcp::log::{LogLevel, write_for_client};
use crate::mcp::version::{Era, Revision};
use crate::policy::{Permit, PolicyAction};
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::LaneRequest;
use crate::wire::json::raw::RawJson;
use crate::wire::message::encode_notification;

/// The part of a call that is the same in all of its states.
pub(super) struct CallContext {
    pub service: Arc<Service>,
    /// The caller's access; the call ends with it.
    pub access: Arc<Access>,
    pub handle: Arc<UpstreamHandle>,
    /// The client that a session is needed for.
    pub wants: LaneRequest,
    pub view: Arc<CatalogView>,
    /// Index of the item in the view's catalog.
    pub entry: usize,
    pub permit: Permit,
    pub action: PolicyAction,
    /// Generation of the snapshot in which the action was decided.
    pub generation: u64,
    pub revision: Revision,
    pub labels: CallLabels,
    /// The URI that the client reads, if it is not the upstream's own.
    pub asked: Option<Arc<str>>,
    /// Lowest level of log messages that the client is sent.
    pub log_from: Option<LogLevel>,
    /// The context of questions, for clients that can be asked for input.
    pub input: Option<Box<InputContext>>,
    /// Number of questions declined in the person's name.
    pub declines: AtomicU32,
}

impl CallContext {
    /// Returns the item as the client saw it.
    ///
    /// # Errors
    /// The catalog is inconsistent.
    pub(super) fn item(&self) -> Result<&CatalogEntry, CallFailure> {
        self.view.item(self.entry).map(|(entry, _)| entry).ok_or_else(CallFailure::down)
    }

    /// Makes a notification for the client; `None` if the buffers have no room for it.
    pub(super) fn notice(&self, method: &str, params: &RawJson) -> Option<ClientEvent> {
        let message = encode_notification(method, Some(params));
        let counted = self.service.budget.try_count_progress(self.access.caller(), message);
        counted.ok().map(ClientEvent::Notice)
    }

    /// Translates the server's progress for the client and counts bad progress as a fault.
    pub(super) fn progress(&self, progress: &mut Option<CallProgress>, params: &RawJson) -> Option<ClientEvent> {
        let relayed = progress.as_mut().and_then(|progress| progress.relay(params));
        if relayed.is_none() && progress.as_ref().is_none_or(CallProgress::is_fault) {
            self.handle.metrics.fault(ProtocolFault::BadProgress);
        }
        self.notice("notifications/progress", &relayed?)
    }

    /// Translates the server's log message for the client; `None` below the client's level.
    pub(super) fn log(&self, params: &RawJson) -> Option<ClientEvent> {
        let message = self.log_from.and_then(|least| write_for_client(params, least, self.handle.name.as_str()))?;
        self.notice("notifications/message", &message)
    }

    /// Seals the state with which the client continues this very call; `None` after too many
    /// rounds.
    pub(super) fn sealed(&self, input: &InputContext, carried: StatePayload) -> Option<String> {
        let scope = StateScope { method: self.labels.method, action: &self.action, carrier: input.carrier };
        self.service.keys.seal_state(&scope, input.round, carried)
    }

    /// Returns the answer that asks a modern client to open the pages without which its server did
    /// not take the call.
    pub(super) fn pages(&self, wanted: &Result<RequestsByKey, InputError>) -> Option<RequestAnswer> {
        let input = self.input.as_ref().filter(|_| self.revision.era() == Era::Modern)?;
        let pages = wanted.as_ref().ok()?;
        let keys = pages.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(" ");
        let sealed = self.sealed(input, StatePayload::Pages(keys))?;
        Some(RequestAnswer::ok(input_required(pages.iter().map(|(key, page)| (key, page)), &sealed)))
    }
}

/// Returns the failure of a call whose caller's access has ended.
pub fn access_failure(access: &Access, executed: ExecutionDoubt) -> CallFailure {
    if access.is_withdrawn() {
        return CallFailure::new(FailureReason::Denied, executed, "The access of this caller was withdrawn.");
    }
    CallFailure::new(FailureReason::ShuttingDown, executed, "The gateway is shutting down.")
}
