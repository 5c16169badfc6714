//! The console's view of the running gateway.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{mpsc, watch};

use super::desk::{
    Approval, BlockView, Desk, Found, GrantView, Member, Offer, Part, PinKey, PinView, Reply, Steer, UpstreamDetail,
    UpstreamView,
};
use super::login_desk::LoginDesk;
use super::text::capitalised;
use crate::config::HostCommand;
use crate::gateway::condition::{self, conditions};
use crate::gateway::logins::{Begun, Done, NotTaken, PendingLogins};
use crate::gateway::service::Service;
use crate::gateway::supervisor::Order;
use crate::login::authorize::Callback;
use crate::policy::consent::{Answer, Arguments, Below, CallBlock, Closed, Grant, Lifetime, Prompt, PromptId, Wall};
use crate::policy::{Digest, Evidence};
use crate::store::audit::search::{CannotSearch, Page, Query};
use crate::store::pins::{self, PinKind, Pins};
use crate::store::recent::DecisionView;
use crate::wire::layout::indented;

mod logins;
mod upstreams;

/// Name of the console in grants and in the audit log.
const BY: &str = "console";
const FOREIGN_FORM: &str = "The form does not belong to this page. Reload it and try again.";

/// The console's data and actions, from a running gateway.
#[derive(Debug)]
pub(crate) struct LiveDesk {
    service: Arc<Service>,
    pins: Pins,
    orders: mpsc::Sender<Order>,
    logins: Arc<PendingLogins>,
}

impl LiveDesk {
    /// `orders` is the supervisor's queue.
    pub(crate) fn new(
        service: Arc<Service>,
        pins: Pins,
        orders: mpsc::Sender<Order>,
        logins: Arc<PendingLogins>,
    ) -> Self {
        Self { service, pins, orders, logins }
    }

    /// Decides about a pin as it was shown, and waits until lists and calls follow the decision.
    async fn judge(&self, pin: &PinKey, digest: &str, approve: bool) -> Result<(), String> {
        let (Ok(kind), Some(shown)) = (pin.kind.parse::<PinKind>(), Digest::from_hex(digest)) else {
            return Err(FOREIGN_FORM.to_owned());
        };
        let decided = if approve {
            self.pins.approve(&pin.name, Some(kind), shown, BY).await
        } else {
            self.pins.reject(&pin.name, Some(kind), shown, BY).await
        };
        decided.map_err(|error| sentence(&error))?;
        // The order fails only when the gateway shuts down.
        let _done = Order::ask(&self.orders, |reply| Order::Review { reply }).await;
        Ok(())
    }
}

impl Desk for LiveDesk {
    fn now(&self) -> Wall {
        self.service.approvals.wall()
    }

    fn approvals(&self) -> Vec<Approval> {
        let now = self.now();
        let open = self.service.approvals.prompts().into_iter().filter(|prompt| prompt.until > now);
        open.map(|prompt| approval(&self.service, prompt)).collect()
    }

    fn approval(&self, id: &str) -> Found {
        let Some(id) = PromptId::parse(id) else { return Found::Unknown };
        let approvals = &self.service.approvals;
        if let Some(prompt) = approvals.prompt(&id).filter(|prompt| prompt.until > self.now()) {
            return Found::Open(Box::new(approval(&self.service, prompt)));
        }
        // An approval that is not open settles at once.
        approvals.settled(&id).now_or_never().map_or(Found::Closed(Closed::TimedOut), Found::Closed)
    }

    fn answer<'a>(&'a self, member: &'a Member, reply: Reply, base: &'a str) -> BoxFuture<'a, Result<Closed, String>> {
        Box::pin(async move {
            let shown = shown(member).ok_or_else(|| FOREIGN_FORM.to_owned())?;
            let answer = match reply {
                Reply::Deny => Answer::Deny,
                Reply::Once => Answer::Allow(Lifetime::Once),
                Reply::Session => Answer::Allow(Lifetime::Session),
                Reply::Hour => Answer::Allow(Lifetime::Until(self.now() + 3600)),
                Reply::Always => Answer::Allow(Lifetime::UntilChanged),
                Reply::Below => Answer::AllowBelow(Arc::from(base)),
            };
            let answered = self.service.approvals.answer_shown(&shown, answer, Evidence::Page, BY).await;
            answered.map_err(|error| sentence(&error))
        })
    }

    fn was_late(&self, id: &str) -> bool {
        PromptId::parse(id).is_some_and(|id| self.service.approvals.was_late(&id))
    }

    fn answer_group<'a>(
        &'a self,
        members: &'a [Member],
        reply: Reply,
    ) -> BoxFuture<'a, Result<Vec<Result<Closed, String>>, String>> {
        Box::pin(async move {
            let members: Option<Vec<_>> = members.iter().map(shown).collect();
            let answer = match reply {
                Reply::Deny => Some(Answer::Deny),
                Reply::Once => Some(Answer::Allow(Lifetime::Once)),
                Reply::Session | Reply::Hour | Reply::Always | Reply::Below => None,
            };
            let (members, answer) = members.zip(answer).ok_or_else(|| FOREIGN_FORM.to_owned())?;
            let answered = self.service.approvals.answer_group(&members, answer, Evidence::Page, BY).await;
            let answered = answered.map_err(|error| sentence(&error))?;
            Ok(answered.into_iter().map(|one| one.map_err(|error| sentence(&error))).collect())
        })
    }

    fn deny<'a>(&'a self, members: &'a [Member]) -> BoxFuture<'a, Vec<Result<Closed, String>>> {
        Box::pin(async move {
            let one = async |member| {
                let shown = shown(member).ok_or_else(|| FOREIGN_FORM.to_owned())?;
                let denied = self.service.approvals.answer_shown(&shown, Answer::Deny, Evidence::Page, BY).await;
                denied.map_err(|error| sentence(&error))
            };
            join_all(members.iter().map(one)).await
        })
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.service.approvals.blocks().into_iter().map(blocked).collect()
    }

    fn unblock<'a>(&'a self, id: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.service.approvals.unblock(id, BY).is_some() })
    }

    fn grants(&self) -> Vec<GrantView> {
        let now = self.now();
        let grants = self.service.approvals.grants();
        let live = grants.iter().filter(|grant| grant.lifetime().until().is_none_or(|until| until > now));
        let mut views: Vec<GrantView> = live.map(|grant| granted(grant)).collect();
        views.sort_by(|a, b| (b.granted_at, &a.item).cmp(&(a.granted_at, &b.item)));
        views
    }

    fn revoke<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let revoked = self.service.approvals.revoke(Some(id), BY).await;
            revoked.map(|count| count > 0).map_err(|error| sentence(&error))
        })
    }

    fn pins(&self) -> BoxFuture<'_, Vec<PinView>> {
        Box::pin(async { self.pins.list().into_iter().map(pinned).collect() })
    }

    fn approve_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.judge(pin, digest, true))
    }

    fn reject_pin<'a>(&'a self, pin: &'a PinKey, digest: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.judge(pin, digest, false))
    }

    fn troubles(&self) -> Vec<String> {
        let others = conditions(&self.service).into_iter().filter(|condition| condition.reason != condition::UPSTREAMS);
        others.map(|condition| sentence(&condition.text)).collect()
    }

    fn host_command(&self) -> Option<String> {
        self.service.host_command.get().map(HostCommand::line)
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let snapshot = self.service.snapshots.load_full();
        let running =
            snapshot.handles.iter().enumerate().map(|(index, handle)| upstreams::view(&snapshot, index, handle));
        running.chain(snapshot.config.off.iter().map(upstreams::off)).collect()
    }

    fn upstream(&self, name: &str) -> Option<UpstreamDetail> {
        upstreams::detail(&self.service.snapshots.load_full(), name)
    }

    fn steer<'a>(&'a self, name: &'a str, steer: Steer) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(upstreams::steer(&self.service, &self.orders, name, steer, BY))
    }

    fn decisions(&self, at_most: usize) -> Vec<DecisionView> {
        self.service.recent.last(at_most)
    }

    fn calls(&self, query: Query) -> BoxFuture<'_, Result<Page, CannotSearch>> {
        Box::pin(self.service.audit.search(query))
    }

    fn watches(&self) -> Vec<(Part, watch::Receiver<u64>)> {
        let generation = self.service.generation.clone();
        let approvals = self.service.approvals.changed();
        vec![
            (Part::Approvals, approvals.clone()),
            (Part::Grants, approvals),
            (Part::Upstreams, generation),
            (Part::Pins, self.pins.changes()),
        ]
    }

    fn counts(&self) -> Vec<(Part, u64)> {
        // An upstream that goes down signals only its own calls.
        let mut states = DefaultHasher::new();
        for handle in &self.service.snapshots.load_full().handles {
            (handle.name.as_str(), handle.health.state()).hash(&mut states);
        }
        self.troubles().hash(&mut states);
        vec![(Part::Upstreams, states.finish()), (Part::Decisions, self.service.recent.count())]
    }
}

impl LoginDesk for LiveDesk {
    fn log_in<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Result<(Begun, String), String>> {
        Box::pin(logins::log_in(&self.service, &self.logins, upstream, BY))
    }

    fn login(&self, id: &str) -> Option<Begun> {
        self.logins.shown(id)
    }

    fn open_login(&self, id: &str) -> Option<(Begun, String)> {
        self.logins.enter(id)
    }

    fn opened_login(&self, id: &str) -> Option<Begun> {
        self.logins.opened(id)
    }

    fn end_login<'a>(&'a self, callback: Callback, cookies: Vec<&'a str>) -> BoxFuture<'a, Result<Done, NotTaken>> {
        Box::pin(async move { self.logins.returned(&callback, &cookies).await })
    }

    fn log_out<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(logins::log_out(&self.service, &self.logins, upstream, BY))
    }
}

/// The approval of a form, and what was shown of it.
fn shown((id, digest): &Member) -> Option<(PromptId, Digest)> {
    Some((PromptId::parse(id)?, Digest::from_hex(digest)?))
}

/// An error as a sentence for the operator.
fn sentence(error: &impl std::fmt::Display) -> String {
    format!("{}.", capitalised(&error.to_string()))
}

fn approval(service: &Service, prompt: Prompt) -> Approval {
    let agent = service.approvals.agent_wait(&prompt.id);
    let (outcome, digest) = (prompt.outcome(), prompt.digest().hex());
    let (asked, shown) = (prompt.asked, prompt.shown);
    let below = Below::offers(&asked, &shown, service.approvals.grants().places());
    Approval {
        id: prompt.id.to_string(),
        digest,
        caller: asked.caller,
        upstream: asked.upstream.to_string(),
        kind: asked.kind.into_str(),
        exposed: shown.exposed,
        canonical: asked.item.to_string(),
        rule: asked.rule.to_string(),
        said: shown.said,
        destructive: asked.destructive,
        arguments: shown.arguments,
        arguments_bytes: shown.arguments_bytes,
        hidden: shown.oddities.told_hidden(),
        mixed: shown.oddities.told_mixed(),
        client: shown.client.map(|client| client.to_string()),
        description: shown.description,
        outcome,
        arguments_digest: asked.arguments.short(),
        definition_digest: asked.definition.short(),
        has_session: asked.session.is_some(),
        below: below.iter().map(Offer::from).collect(),
        need: asked.need,
        opened_at: prompt.opened_at,
        until: prompt.until,
        agent,
    }
}

fn blocked(block: CallBlock) -> BlockView {
    BlockView {
        id: block.id.to_string(),
        caller: block.caller.to_string(),
        client: block.client.filter(|client| !client.is_empty()).map(|client| client.to_string()),
        item: block.item.to_string(),
        until: block.until,
        denied_by: block.denial.map(|denial| denial.by.to_string()),
    }
}

fn granted(grant: &Grant) -> GrantView {
    let asked = grant.asked();
    GrantView {
        id: grant.id().to_string(),
        caller: asked.caller.to_string(),
        kind: asked.kind.into_str(),
        item: asked.item.to_string(),
        rule: asked.rule.to_string(),
        lifetime: grant.lifetime(),
        exact: grant.arguments() == Arguments::Exact,
        below: grant.arguments().below().map(|below| Offer::from(&**below)),
        destructive: asked.destructive,
        evidence: grant.evidence(),
        by: grant.by().to_string(),
        granted_at: grant.granted_at(),
        last_used: (grant.uses() > 0).then(|| grant.last_used()),
        uses: grant.uses(),
    }
}

fn pinned(pin: pins::PinView) -> PinView {
    let text = |json: Option<String>| json.map(|json| indented(&json));
    let waiting_digest = pin.waiting_digest.or(pin.approved_digest.filter(|_| pin.is_new));
    PinView {
        key: PinKey { upstream: pin.upstream, kind: pin.kind.into_str().to_owned(), name: pin.name },
        state: pin.state,
        approved: text(pin.approved),
        waiting: text(pin.waiting),
        why: pin.by,
        is_new: pin.is_new,
        waiting_digest: waiting_digest.map(|digest| digest.hex()).unwrap_or_default(),
        since: pin.since,
    }
}
