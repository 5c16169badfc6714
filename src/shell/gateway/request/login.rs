//! Makes calls wait whose upstream needs a login, and leads the person to it.
//!
//! The channel depends on the client:
//!
//! * Modern client with URL elicitation: `input_required` with the key `gw.login` and the
//!   upstream's page on the console. `accept` only means that the client opens it: the repeated
//!   request waits 20 s for the login and is asked again.
//! * Legacy client with URL elicitation: `elicitation/create` with that page on the call's own
//!   stream, one call of an upstream at a time; the call waits for `timeout`.
//! * Any other client: held for `hold`, then refused with `needs_login`.
//!
//! One login serves all clients, so only the operator can give it: the page asks for the console's
//! sign-in. If the configuration admits a caller besides `local`, no client is led there. A client
//! whose person declines is not asked again for ten minutes.

use std::sync::Arc;

use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::engine::question::approval::{ApprovalQuestionKind, is_declined};
use crate::engine::question::login::{KEY, page};
use crate::engine::sealed::state::StatePayload;
use crate::gateway::client::quota::QuotaKind;
use crate::gateway::decision::CallContinuation;
use crate::gateway::decision::prepared::PreparedCall;
use crate::gateway::service::Service;
use crate::gateway::waiting::AwaitedAct;
use crate::gateway::waiting::channel::{ClientChannel, OriginalRequest, OwnQuestion, WaitSlots};
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::gateway::waiting::login::PendingLogin;
use crate::mcp::asking::input::is_accepted;
use crate::mcp::version::Era;
use crate::policy::consent::ApprovalId;
use crate::policy::{ActionKind, Caller, Permit, PolicyAction};
use crate::upstream::session::handle::UpstreamHandle;
use crate::wire::json::raw::RawObject;

impl Service {
    /// Makes a permitted call wait for the login that its upstream needs. Returns `None` if the
    /// call is to be made at once: no login is needed, or the call cannot wait and gets its
    /// upstream's refusal. Notes a person's refusal to log in. `approval` is the one that the call
    /// has waited for, and `has_waited` says that it has waited for a login.
    pub(super) fn await_login(
        self: &Arc<Self>,
        params: &RawObject,
        prepared: &PreparedCall<'_>,
        approval: Option<ApprovalId>,
        has_waited: bool,
    ) -> Option<RequestOutcome> {
        let PreparedCall { client, found, action, going_on, outgoing, labels, .. } = prepared;
        let (handle, input) = (found.handle, prepared.input.as_deref());
        let may_wait =
            !has_waited && action.kind != ActionKind::Completion && !matches!(going_on, CallContinuation::Permitted(_));
        if !may_wait || !handle.health.standing().awaits_login() || handle.main.open_link().is_some() {
            return None;
        }
        if let CallContinuation::Login(Some(answer)) = going_on
            && !is_accepted(answer)
        {
            if is_declined(answer) {
                handle.login_link.rest(clock::uptime());
            }
            return None;
        }
        let request = OriginalRequest::new(client, params, outgoing.meta.clone(), *labels, &handle.metrics);
        let link = prepared.asks.url.then(|| self.link_for(handle, &client.caller)).flatten();
        let question = link.map(|url| page(handle.name.as_str(), &url));
        let (channel, page_turn) = match (question, client.revision.era()) {
            (None, _) => (ClientChannel::Elsewhere(None), None),
            (Some(question), Era::Legacy) => {
                let id = data_encoding::HEXLOWER.encode(&clock::random::<16>());
                let question = OwnQuestion::new(client, question, ApprovalQuestionKind::Page, id);
                match question.zip(handle.login_link.turn()) {
                    Some((question, turn)) => (ClientChannel::OnStream(question), Some(turn)),
                    None => (ClientChannel::Elsewhere(None), None),
                }
            }
            (Some(question), Era::Modern) => {
                match self.input_result(action, &request, input, StatePayload::Login, (KEY, &question)) {
                    None => (ClientChannel::Elsewhere(None), None),
                    Some(again) if matches!(going_on, CallContinuation::Login(_)) => {
                        (ClientChannel::Repeated(again), None)
                    }
                    Some(again) => return Some(RequestOutcome::Answer(request.ask_again(again))),
                }
            }
        };
        let place = match &channel {
            ClientChannel::Elsewhere(_) => self.hold(&request).ok().map(WaitSlots::Held),
            ClientChannel::OnStream(_) | ClientChannel::Answered(_) | ClientChannel::Repeated(_) => {
                self.asked_place(&request)
            }
        };
        let awaited = AwaitedAct::Login(PendingLogin {
            approval,
            upstream: handle.name.clone(),
            item: Arc::clone(&found.entry.canonical),
            _page_turn: page_turn,
            back: None,
        });
        Some(self.wait(request, awaited, channel, place?))
    }

    /// Takes the places of a call whose client is asked; `None` if it cannot wait.
    fn asked_place(&self, request: &OriginalRequest) -> Option<WaitSlots> {
        let can_wait = request.client.can_wait && !self.draining.is_cancelled();
        let share = can_wait.then(|| self.admission.quota.take(&request.client.caller, QuotaKind::Call)).flatten()?;
        Some(WaitSlots::Asked { _share: share, _asking: self.admission.ask()? })
    }

    /// Returns the URL of the page where the caller's person can log in; `None` if this caller is
    /// not led there.
    fn link_for(&self, handle: &UpstreamHandle, caller: &Caller) -> Option<String> {
        let is_alone = caller.is_local() && !self.snapshots.load().config.has_many_callers();
        let is_offered = is_alone
            && handle.keeper.as_ref().is_some_and(|keeper| keeper.takes_person())
            && !handle.login_link.rests(clock::uptime());
        let base = self.console.get().filter(|_| is_offered)?;
        Some(format!("{base}/upstreams/{}", handle.name))
    }

    /// Notes that a person declined the login at an upstream: no client is led there for a while.
    pub fn login_declined(&self, upstream: &UpstreamName) {
        let snapshot = self.snapshots.load();
        if let Some(handle) = snapshot.handles.iter().find(|handle| handle.name == *upstream) {
            handle.login_link.rest(clock::uptime());
        }
    }

    /// Gives back what a permit took from limits, for a call that is not made now.
    pub(super) fn give_back(&self, mut permit: Permit, action: &PolicyAction) {
        let snapshot = self.snapshots.load();
        let rules = snapshot.policy.item_rules(action.kind, &action.upstream, &action.canonical);
        permit.give_back(&snapshot.limiter, &snapshot.policy, &rules, action);
    }
}
