//! Carries out an operator's requests in a running gateway.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use super::request::{NameParams, Request};
use super::upstreams::{self, UpstreamDetail, UpstreamView};
use super::views::{EndedReviewView, OperatorView, SentNoticeView};
use super::{ApprovalState, OperatorBackend, OperatorDataPart, OperatorRefusal, Person, approvals, logins, logs, pins};
use crate::base::local_time::local_minute;
use crate::config::HostCommand;
use crate::gateway::condition::{self, conditions};
use crate::gateway::logins::{LoginOffer, PendingLogins};
use crate::gateway::notify::NoticeSender;
use crate::gateway::service::Service;
use crate::gateway::supervisor::SupervisorOrder;
use crate::policy::consent::{ApprovalView, BlockView, GrantView, SteadySeconds};
use crate::store::audit::search::{DecisionPage, DecisionQuery, SearchError};
use crate::store::pins::{PinRegistry, PinView};
use crate::store::recent::DecisionView;
use crate::store::restored::{NOTHING_DUE, RestoreReview};

/// The parts of a running gateway that an operator's requests act on. Requests about the daemon
/// around it (status, reload, console links) are refused here.
#[derive(Debug)]
pub(crate) struct LiveBackend {
    pub(crate) service: Arc<Service>,
    pub(crate) pins: PinRegistry,
    /// Orders to the supervisor.
    pub(crate) orders: mpsc::Sender<SupervisorOrder>,
    pub(crate) logins: Arc<PendingLogins>,
    pub(crate) notices: Arc<NoticeSender>,
    /// The review that a restored store waits for; `None` if the gateway keeps no state.
    pub(crate) review: Option<RestoreReview>,
}

impl LiveBackend {
    /// Carries out a request without recording it.
    async fn perform(&self, request: &Request, by: &Person) -> Result<OperatorView, OperatorRefusal> {
        let (service, logins) = (&*self.service, &*self.logins);
        let approvals = &*service.approvals;
        match request {
            Request::Approvals(_) => approvals::list(approvals).await,
            Request::Approval(by_id) => approvals::show(approvals, &by_id.id).await,
            Request::Answer(params) => approvals::answer(approvals, params, by).await,
            Request::AnswerMany(params) => approvals::answer_many(approvals, params, by).await,
            Request::Unblock(by_id) => approvals::unblock(approvals, &by_id.id, by),
            Request::TryNotice(_) => {
                let to = self.notices.try_out().await.map_err(OperatorRefusal::Refused)?;
                Ok(OperatorView::NoticeSent(SentNoticeView { to }))
            }
            Request::Grants(_) => Ok(approvals::grants(approvals)),
            Request::Revoke(params) => approvals::revoke(approvals, params, by).await,
            Request::Review(_) => self.end_review().await,
            Request::Pins(_) => self.fresh().await.map(pins::list).map(OperatorView::Pins),
            Request::Pin(name) => pins::show(self.fresh().await?, name).map(Box::new).map(OperatorView::Pin),
            Request::PinTexts(items) => self.fresh().await.map(|fresh| OperatorView::Pins(pins::texts(fresh, items))),
            Request::ApprovePins(params) | Request::RejectPins(params) => {
                let approve = matches!(request, Request::ApprovePins(_));
                let decided = pins::decide(self.fresh().await?, approve, params, by).await?;
                // Wait until lists and calls follow the decision. The order fails only during
                // shutdown.
                let _done = SupervisorOrder::ask(&self.orders, |reply| SupervisorOrder::Review { reply }).await;
                Ok(decided.into())
            }
            Request::Restart(NameParams { name }) => {
                upstreams::restart(service, &self.orders, name, by).await.map(Box::new).map(OperatorView::Restarted)
            }
            Request::Switch(params) => {
                let restarted = upstreams::switch(service, &self.orders, params, by).await?;
                Ok(restarted.map_or(OperatorView::Empty {}, |restarted| OperatorView::Restarted(Box::new(restarted))))
            }
            Request::BeginLogin(params) => {
                logins::begin(service, logins, params, by).await.map(Box::new).map(OperatorView::LoginBegun)
            }
            Request::OpenLogin(by_id) => logins::open(logins, &by_id.id).map(Box::new).map(OperatorView::LoginOpened),
            Request::AwaitLogin(by_id) => logins::wait(service, logins, &by_id.id).await.map(OperatorView::LoggedIn),
            Request::PasteLogin(params) => logins::paste(service, logins, params).await.map(OperatorView::LoggedIn),
            Request::EndLogin(params) => logins::end(logins, params).await.map(OperatorView::LoggedIn),
            Request::LogOut(NameParams { name }) => {
                logins::log_out(service, logins, name, by).await.map(OperatorView::LoggedOut)
            }
            Request::Logs(params) => logs::read_lines(service, params).await.map(OperatorView::Logs),
            // The program around the gateway answers these.
            Request::Call(_)
            | Request::Challenge(_)
            | Request::LinkConsole(_)
            | Request::Prove(_)
            | Request::Rekey(_)
            | Request::Reload(_)
            | Request::Status(_)
            | Request::AddToken(_)
            | Request::RevokeToken(_)
            | Request::Tokens(_)
            | Request::Tool(_)
            | Request::Tools(_)
            | Request::Variables(_) => Err(OperatorRefusal::refused("the gateway itself cannot do that")),
        }
    }

    /// Rereads the pins, which other processes on the store may have changed, and returns them.
    async fn fresh(&self) -> Result<&PinRegistry, OperatorRefusal> {
        self.pins.refresh().await.map_err(OperatorRefusal::unusable)?;
        Ok(&self.pins)
    }

    /// Ends the review that a restored store waits for.
    async fn end_review(&self) -> Result<OperatorView, OperatorRefusal> {
        let review = self.review.as_ref().ok_or_else(|| OperatorRefusal::refused(NOTHING_DUE))?;
        let backup_time = review.end().await.map_err(OperatorRefusal::Refused)?;
        Ok(OperatorView::Reviewed(EndedReviewView {
            outcome: format!("reviewed the backup of {}", local_minute(backup_time)),
        }))
    }
}

impl OperatorBackend for LiveBackend {
    fn carry_out<'a>(
        &'a self,
        request: &'a Request,
        by: &'a Person,
    ) -> BoxFuture<'a, Result<OperatorView, OperatorRefusal>> {
        Box::pin(self.perform(request, by))
    }

    fn now(&self) -> SteadySeconds {
        self.service.approvals.wall()
    }

    fn approvals(&self) -> Vec<ApprovalView> {
        self.service.approvals.views()
    }

    fn approval(&self, id: &str) -> ApprovalState {
        approvals::state(&self.service.approvals, id)
    }

    fn blocks(&self) -> Vec<BlockView> {
        approvals::blocks(&self.service.approvals)
    }

    fn grants(&self) -> Vec<GrantView> {
        let mut grants = approvals::live(&self.service.approvals);
        grants.reverse();
        grants
    }

    fn pins(&self) -> Vec<PinView> {
        self.pins.list()
    }

    fn troubles(&self) -> Vec<String> {
        let others = conditions(&self.service).into_iter().filter(|condition| condition.reason != condition::UPSTREAMS);
        others.map(|condition| condition.text).collect()
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        // An upstream that the configuration file disables has no page, so it is left out.
        let all = upstreams::all(&self.service.snapshots.load()).into_iter();
        all.filter(|upstream| upstream.facts.is_some() || upstream.advice.is_some()).collect()
    }

    fn upstream(&self, name: &str) -> Option<UpstreamDetail> {
        upstreams::detail(&self.service.snapshots.load(), name)
    }

    fn host_command(&self) -> Option<String> {
        let public = self.service.snapshots.load().config.public_endpoint();
        public.or_else(|| self.service.host_command.get().map(HostCommand::line))
    }

    fn decisions(&self, at_most: usize) -> Vec<DecisionView> {
        self.service.recent.last(at_most)
    }

    fn calls(&self, query: DecisionQuery) -> BoxFuture<'_, Result<DecisionPage, SearchError>> {
        Box::pin(self.service.audit.search(query))
    }

    fn login(&self, id: &str) -> Option<LoginOffer> {
        self.logins.shown(id)
    }

    fn opened_login(&self, id: &str) -> Option<LoginOffer> {
        self.logins.opened(id)
    }

    fn watches(&self) -> Vec<(OperatorDataPart, watch::Receiver<u64>)> {
        let approvals = self.service.approvals.changed();
        vec![
            (OperatorDataPart::Approvals, approvals.clone()),
            (OperatorDataPart::Grants, approvals),
            (OperatorDataPart::Upstreams, self.service.generation.clone()),
            (OperatorDataPart::Pins, self.pins.changes()),
        ]
    }

    fn counts(&self) -> Vec<(OperatorDataPart, u64)> {
        // An upstream that goes down signals only its own calls, so its state is hashed here.
        let mut states = DefaultHasher::new();
        for handle in &self.service.snapshots.load_full().handles {
            (handle.name.as_str(), handle.health.state()).hash(&mut states);
        }
        self.troubles().hash(&mut states);
        vec![(OperatorDataPart::Upstreams, states.finish()), (OperatorDataPart::Decisions, self.service.recent.count())]
    }
}
