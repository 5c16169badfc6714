//! The operator's service: all that an operator can see and do, for every face. The admin socket,
//! the console and the commands present its [`View`]s and hold no rule of their own.
//!
//! A [`Request`] is what an operator asks for, a [`View`] the answer. [`live::LiveDesk`] carries
//! requests out in a running gateway, [`alone::Alone`] in a store without a daemon. An action that
//! changes something leaves one record in the audit log, once its outcome is known: [`Operator`]
//! writes it for the first, [`alone`] for the second.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use self::request::{Effect, Request};
use self::upstreams::{UpstreamDetail, UpstreamView};
use self::views::View;
use crate::gateway::logins::Begun;
use crate::policy::OperatorAction;
use crate::policy::consent::{ApprovalView, BlockView, Closed, GrantView, Wall};
use crate::store::audit::Audit;
use crate::store::audit::search::{CannotSearch, Page, Query};
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
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod tool;
pub(crate) mod tools;
pub(crate) mod upstreams;
pub(crate) mod views;

pub(crate) use self::person::Person;
pub(crate) use self::refusal::Refusal;

/// The refusal of every command that answers, where the configuration lets none answer.
pub(crate) const NO_COMMAND: &str = "[policy.consent] operator = \"none\": no command answers approvals or decides pins; answer on the console's \
                                     page";

/// The state of an approval.
#[derive(Clone, Debug)]
pub(crate) enum ApprovalState {
    Open(Box<ApprovalView>),
    Closed {
        how: Closed,
        /// The yes came when the agent had been told to stop.
        is_late: bool,
    },
    Unknown,
}

/// A part of the operator's data that changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(crate) enum Part {
    Approvals,
    Grants,
    Pins,
    Upstreams,
    Decisions,
}

/// A gateway as its operator meets it: requests, and what pages show, which is read quickly and
/// never waits for a disk.
pub(crate) trait Desk: Send + Sync + 'static {
    /// Carries a request out and records nothing. A change is durable when the future is ready.
    fn carry_out<'a>(&'a self, request: &'a Request, by: &'a Person) -> BoxFuture<'a, Result<View, Refusal>>;
    /// The current time, on the clock of all times in the views.
    fn now(&self) -> Wall;
    /// Open approvals of this process, oldest first.
    fn approvals(&self) -> Vec<ApprovalView>;
    fn approval(&self, id: &str) -> ApprovalState;
    /// Calls that are refused for a while, the first to end first.
    fn blocks(&self) -> Vec<BlockView>;
    /// Live grants, latest first.
    fn grants(&self) -> Vec<GrantView>;
    fn pins(&self) -> Vec<PinView>;
    /// A sentence for each thing that does not work, but for upstreams, which [`Desk::upstreams`]
    /// has.
    fn troubles(&self) -> Vec<String>;
    fn upstreams(&self) -> Vec<UpstreamView>;
    fn upstream(&self, name: &str) -> Option<UpstreamDetail>;
    /// The command by which hosts reach this daemon, where one exists.
    fn host_command(&self) -> Option<String>;
    /// The last decisions, latest first.
    fn decisions(&self, at_most: usize) -> Vec<DecisionView>;
    /// One page of the decisions in the audit log.
    fn calls(&self, query: Query) -> BoxFuture<'_, Result<Page, CannotSearch>>;
    /// The login behind a link that no browser has opened.
    fn login(&self, id: &str) -> Option<Begun>;
    /// The login behind a link that was opened.
    fn opened_login(&self, id: &str) -> Option<Begun>;
    /// Channels that signal at once when a part has changed.
    fn watches(&self) -> Vec<(Part, watch::Receiver<u64>)>;
    /// Numbers for parts that change often or have no channel; another number means that the part
    /// has changed. An open page checks them every few seconds.
    fn counts(&self) -> Vec<(Part, u64)>;
}

/// A desk whose actions are on record.
#[derive(Clone)]
pub(crate) struct Operator {
    desk: Arc<dyn Desk>,
    audit: Audit,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Operator")
    }
}

impl Operator {
    pub(crate) fn new(desk: Arc<dyn Desk>, audit: Audit) -> Self {
        Self { desk, audit }
    }

    pub(crate) fn desk(&self) -> &dyn Desk {
        &*self.desk
    }

    pub(crate) const fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Carries a request out for a person, and records it if it is an action.
    ///
    /// # Errors
    /// Why it is not carried out, also because it cannot be recorded.
    pub(crate) async fn perform(&self, request: &Request, by: &Person) -> Result<View, Refusal> {
        self.recorded(request, by, self.desk.carry_out(request, by)).await
    }

    /// Awaits `performed`, which carries the request out, and records it if it is an action.
    ///
    /// # Errors
    /// As [`Self::perform`].
    pub(crate) async fn recorded(
        &self,
        request: &Request,
        by: &Person,
        performed: impl Future<Output = Result<View, Refusal>>,
    ) -> Result<View, Refusal> {
        let Effect::Act(action) = request.effect() else { return performed.await };
        let record = self.audit.begin(action, &by.recorded_as, request.about().as_deref()).await;
        let mut record = record.map_err(|error| Refusal::Refused(format!("nothing was done: {error}")))?;
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
            Err(Refusal::Stranger) => record.forget(),
            Err(why) => record.end(Err(&why.to_string())),
        }
        outcome
    }

    /// Records an action that was refused before it was understood.
    pub(crate) async fn refused(&self, action: OperatorAction, by: &Person, why: &str) {
        if let Ok(record) = self.audit.begin(action, &by.recorded_as, None).await {
            record.end(Err(why));
        }
    }
}

#[cfg(test)]
mod tests;
