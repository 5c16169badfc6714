//! Calls whose upstream waits for a login, and how the person hears of that.
//!
//! | client | way |
//! |---|---|
//! | modern, has URL elicitation | `input_required` with the key `gw.login` and the upstream's page on the console. `accept` only means that the client opens it: the repeated request waits 20 s for the login and is asked again |
//! | legacy, has URL elicitation | `elicitation/create` with that page on the call's own stream, one call of an upstream at a time; the call waits for `timeout` |
//! | anything else | held for `hold`, then refused with `needs_login` |
//!
//! The login is that of all clients, so the operator alone gives it: the page asks for the console's sign-in. Where the configuration admits
//! another caller than `local`, nobody is led there. Who declines is not asked again for ten minutes.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::engine::question::approval::is_declined;
use crate::engine::question::login::{KEY, page};
use crate::engine::state::{Carried, StateScope};
use crate::gateway::answer::Answer;
use crate::gateway::decision::GoingOn;
use crate::gateway::prepared::{InputContext, Prepared};
use crate::gateway::quota::Good;
use crate::gateway::service::Service;
use crate::gateway::waiting::channel::{Request, Room, Waited};
use crate::gateway::waiting::client_call::{ClientCall, Handled};
use crate::gateway::waiting::login::{AwaitingLogin, Way};
use crate::mcp::input::{InputRequest, input_required, is_accepted};
use crate::mcp::version::Era;
use crate::policy::{Action, Kind, LOCAL, Permit};
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::handle::Handle;
use crate::wire::raw::{RawJson, RawObject};

/// How long the repeated request of a modern client waits for the login before it is asked again.
const PAGE_WAIT: Duration = Duration::from_secs(20);

impl Service {
    /// The way of a permitted call whose upstream waits for a login; `None` where it is to be made, and refused so.
    pub(super) fn await_login(
        self: &Arc<Self>,
        params: &RawObject,
        prepared: &Prepared<'_>,
        waited: Waited,
    ) -> Option<Handled> {
        let Prepared { client, found, action, going_on, outgoing, labels, .. } = prepared;
        let (handle, input) = (found.handle, prepared.input.as_deref());
        let may_wait = !waited.login && action.kind != Kind::Completion && !matches!(going_on, GoingOn::Permitted(_));
        if !may_wait || !handle.health.standing().awaits_login() || handle.main.open_link().is_some() {
            return None;
        }
        if let GoingOn::Login(Some(answer)) = going_on
            && !is_accepted(answer)
        {
            if is_declined(answer) {
                handle.login_link.rest(clock::uptime());
            }
            return None;
        }
        let mut params = params.clone();
        params.remove("requestState");
        params.remove("inputResponses");
        let (meta, metrics, labels) = (outgoing.meta.clone(), handle.metrics.clone(), *labels);
        let request = Request { client: (*client).clone(), params, meta, labels, metrics };
        let link = prepared.asks.url.then(|| self.link_for(handle, &client.caller)).flatten();
        let link = link.map(|url| page(handle.name.as_str(), &url));
        let (way, room) = match (link, client.revision.era()) {
            (Some(question), Era::Modern) => {
                let again = self.login_required(action, &request, input, &question);
                match (going_on, again) {
                    (_, None) => (Way::Held, self.room(&request, false)?),
                    (GoingOn::Login(_), Some(again)) => (Way::Back(again), self.room(&request, true)?),
                    (GoingOn::Anew | GoingOn::Consent { .. } | GoingOn::Permitted(_), Some(again)) => {
                        request.metrics.count(labels.label, OutcomeLabel::InputRequired);
                        return Some(Handled::Answer(Answer::ok(again)));
                    }
                }
            }
            (Some(question), Era::Legacy) => {
                let id = data_encoding::HEXLOWER.encode(&clock::random::<16>());
                let question = question.for_revision(client.revision, || id.clone()).ok();
                let ways = client.client_requests.clone().zip(question).zip(handle.login_link.turn());
                match ways {
                    Some(((client_requests, question), turn)) => {
                        (Way::Page { client_requests, question, id, turn }, self.room(&request, true)?)
                    }
                    None => (Way::Held, self.room(&request, false)?),
                }
            }
            (None, _) => (Way::Held, self.room(&request, false)?),
        };
        let patience = if matches!(way, Way::Back(_)) { PAGE_WAIT } else { Duration::MAX };
        let place = (handle.name.clone(), Arc::clone(&found.entry.canonical));
        let waiting = AwaitingLogin::new(Arc::clone(self), request, waited.prompt, place, way, (room, patience));
        Some(Handled::Call(Box::new(ClientCall::LoggingIn(Box::new(waiting)))))
    }

    /// What the call takes up while it waits: a place of one whose client is asked, or of a held one.
    fn room(&self, request: &Request, is_asked: bool) -> Option<Room> {
        if !is_asked {
            return self.place(request).ok().map(Room::Held);
        }
        let can_wait = request.client.can_wait && !self.draining.is_cancelled();
        let share = can_wait.then(|| self.admission.quota.take(&request.client.caller, Good::Call)).flatten();
        share.zip(self.admission.ask()).map(Room::Asked)
    }

    /// The page where a caller's person can log in; `None` for a caller that is not led there.
    fn link_for(&self, handle: &Handle, caller: &str) -> Option<String> {
        let is_alone = caller == LOCAL && !self.snapshots.load().config.has_many_callers();
        let is_offered = is_alone
            && handle.keeper.as_ref().is_some_and(|keeper| keeper.takes_person())
            && !handle.login_link.rests(clock::uptime());
        let base = self.console.get().filter(|_| is_offered)?;
        Some(format!("{base}/upstreams/{}", handle.name))
    }

    /// The result that leads a modern client to the page. Its state is good for this very call, and permits nothing.
    fn login_required(
        &self,
        action: &Action,
        request: &Request,
        input: Option<&InputContext>,
        question: &InputRequest,
    ) -> Option<RawJson> {
        let input = input?;
        let scope = StateScope { method: request.labels.method, action, carrier: input.carrier };
        let sealed =
            self.keys.states.next(&scope, input.round, Carried::Login, clock::since_1970(), clock::random())?;
        Some(input_required(std::iter::once((KEY, question)), &sealed))
    }

    /// A person does not want to log in there now.
    pub(crate) fn login_declined(&self, upstream: &UpstreamName) {
        let snapshot = self.snapshots.load();
        if let Some(handle) = snapshot.handles.iter().find(|handle| handle.name == *upstream) {
            handle.login_link.rest(clock::uptime());
        }
    }

    /// Gives back what a permit drew for a call that is not made now.
    pub(super) fn give_back(&self, mut permit: Permit, action: &Action) {
        let snapshot = self.snapshots.load();
        let rules = snapshot.policy.item_rules(action.kind, &action.upstream, &action.canonical);
        permit.give_back(&snapshot.limiter, &snapshot.policy, &rules, action);
    }
}
