//! The operator's service: everything an operator can see and do, shared by the admin socket, the
//! console and the commands, which present its [`OperatorView`]s and contain no rules of their own.
//!
//! A [`Request`] is answered by a [`OperatorView`]. [`live::LiveBackend`] carries requests out in a
//! running gateway, [`alone::OfflineOperator`] in a store without a daemon. An action that changes
//! something leaves one record in the audit log, written once its outcome is known:
//! [`OperatorService`] writes it for a running gateway, [`alone`] for a store without a daemon.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use self::request::{Request, RequestEffect};
use self::upstreams::{UpstreamDetail, UpstreamView};
use self::views::OperatorView;
use crate::gateway::logins::LoginOffer;
use crate::policy::OperatorAction;
use crate::policy::consent::{ApprovalEnd, ApprovalView, BlockView, GrantView, SteadySeconds};
use crate::store::audit::AuditLog;
use crate::store::audit::search::{DecisionPage, DecisionQuery, SearchError};
use crate::store::pins::PinView;
use crate::store::recent::DecisionView;

pub(crate) mod alone;
mod approvals;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod live;
pub(crate) mod logins;
pub(crate) mod logs;
mod person;
pub(crate) mod pins;
mod refusal;
pub(crate) mod rekey;
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod tool;
pub(crate) mod tools;
pub(crate) mod upstreams;
pub(crate) mod views;

pub(crate) use self::person::Person;
pub(crate) use self::refusal::OperatorRefusal;

/// The refusal of every command that answers an approval or decides a pin, used if the
/// configuration accepts neither from commands.
pub(crate) const NO_COMMAND: &str = "[policy.consent] operator = \"none\": no command answers approvals or decides pins; answer on the console's \
                                     page";

/// The state of an approval.
#[derive(Clone, Debug)]
pub(crate) enum ApprovalState {
    Open(Box<ApprovalView>),
    Closed {
        how: ApprovalEnd,
        /// True if the approval was allowed after the agent had been told to stop.
        is_late: bool,
    },
    Unknown,
}

/// A part of the operator's data whose changes are announced to open pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(crate) enum OperatorDataPart {
    Approvals,
    Grants,
    Pins,
    Upstreams,
    Decisions,
}

/// A running gateway as its operator sees it: it carries out requests and returns the data that
/// pages show. The methods that return no future read memory and never wait for a disk.
pub(crate) trait OperatorBackend: Send + Sync + 'static {
    /// Carries out a request without recording it. A change is durable once the future is ready.
    fn carry_out<'a>(
        &'a self,
        request: &'a Request,
        by: &'a Person,
    ) -> BoxFuture<'a, Result<OperatorView, OperatorRefusal>>;
    /// Returns the current time, on the clock of all times in the views.
    fn now(&self) -> SteadySeconds;
    /// Returns the open approvals of this process, oldest first.
    fn approvals(&self) -> Vec<ApprovalView>;
    fn approval(&self, id: &str) -> ApprovalState;
    /// Returns the blocks in force, each of which refuses certain calls for a while; the first to
    /// end comes first.
    fn blocks(&self) -> Vec<BlockView>;
    /// Returns the live grants, latest first.
    fn grants(&self) -> Vec<GrantView>;
    fn pins(&self) -> Vec<PinView>;
    /// Returns a sentence for each condition that degrades the gateway, except failed upstreams,
    /// which [`OperatorBackend::upstreams`] returns.
    fn troubles(&self) -> Vec<String>;
    fn upstreams(&self) -> Vec<UpstreamView>;
    fn upstream(&self, name: &str) -> Option<UpstreamDetail>;
    /// Returns the command that connects an MCP host to this daemon, if there is one.
    fn host_command(&self) -> Option<String>;
    /// Returns the last `at_most` decisions, latest first.
    fn decisions(&self, at_most: usize) -> Vec<DecisionView>;
    /// Searches the audit log for decisions and returns one page of them.
    fn calls(&self, query: DecisionQuery) -> BoxFuture<'_, Result<DecisionPage, SearchError>>;
    /// Returns the login behind a link that no browser has opened yet.
    fn login(&self, id: &str) -> Option<LoginOffer>;
    /// Returns the login behind a link that was opened.
    fn opened_login(&self, id: &str) -> Option<LoginOffer>;
    /// Returns a channel for each part that signals its changes at once.
    fn watches(&self) -> Vec<(OperatorDataPart, watch::Receiver<u64>)>;
    /// Returns a number for each part that changes often or has no channel; a different number
    /// means that the part has changed. An open page compares them every few seconds.
    fn counts(&self) -> Vec<(OperatorDataPart, u64)>;
}

/// Carries out an operator's requests on a [`OperatorBackend`] and writes the audit record of each
/// action.
#[derive(Clone)]
pub(crate) struct OperatorService {
    desk: Arc<dyn OperatorBackend>,
    audit: AuditLog,
}

impl std::fmt::Debug for OperatorService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Operator")
    }
}

impl OperatorService {
    pub(crate) fn new(desk: Arc<dyn OperatorBackend>, audit: AuditLog) -> Self {
        Self { desk, audit }
    }

    pub(crate) fn desk(&self) -> &dyn OperatorBackend {
        &*self.desk
    }

    pub(crate) const fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// Carries out a request for a person, and records its outcome if the request is an action.
    ///
    /// # Errors
    /// If the request is refused or fails, also because it cannot be recorded.
    pub(crate) async fn perform(&self, request: &Request, by: &Person) -> Result<OperatorView, OperatorRefusal> {
        self.recorded(request, by, self.desk.carry_out(request, by)).await
    }

    /// Awaits `performed`, which carries out the request, and records its outcome if the request is
    /// an action. If no record can be begun, `performed` is never polled.
    ///
    /// # Errors
    /// As [`Self::perform`].
    pub(crate) async fn recorded(
        &self,
        request: &Request,
        by: &Person,
        performed: impl Future<Output = Result<OperatorView, OperatorRefusal>>,
    ) -> Result<OperatorView, OperatorRefusal> {
        let RequestEffect::Act(action) = request.effect() else { return performed.await };
        let record = self.audit.begin(action, &by.recorded_as, request.about().as_deref()).await;
        let mut record = record.map_err(|error| OperatorRefusal::Refused(format!("nothing was done: {error}")))?;
        if let Some(count) = request.count() {
            record.set_count(count);
        }
        let outcome = performed.await;
        match &outcome {
            Ok(view) => {
                if let Some(name) = view.about() {
                    record.set_name(name);
                }
                record.end(view.outcome().as_deref().map_err(String::as_str));
            }
            Err(OperatorRefusal::Stranger) => record.forget(),
            Err(why) => record.end(Err(&why.to_string())),
        }
        outcome
    }

    /// Records the refusal of an action whose request could not be read. A failure to record is
    /// ignored.
    pub(crate) async fn refused(&self, action: OperatorAction, by: &Person, why: &str) {
        if let Ok(record) = self.audit.begin(action, &by.recorded_as, None).await {
            record.end(Err(why));
        }
    }
}

#[cfg(test)]
mod tests;
