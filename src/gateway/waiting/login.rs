//! A call whose upstream waits for a login. It is held like one that waits for an approval, and decided from the start once the upstream
//! is back, or its time is over: then it finds the upstream as it is, and is refused with `needs_login`.
//!
//! A client that can open pages may be led to the upstream's page on the console, where the operator logs in.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::base::clock;
use crate::base::never::or_never;
use crate::catalog::name::UpstreamName;
use crate::engine::call::Progress;
use crate::engine::failure::Executed;
use crate::engine::question::approval::is_declined;
use crate::gateway::answer::{Answer, refused};
use crate::gateway::call::{ClientEvent, given_up};
use crate::gateway::question::client_requests::{ClientRequests, PendingRequest};
use crate::gateway::service::Service;
use crate::gateway::waiting::channel::{Request, Room, Step};
use crate::mcp::input::{InputRequest, is_accepted};
use crate::policy::consent::PromptId;
use crate::policy::consent::hold::{Ended, Reminders};
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::link::LinkState;
use crate::wire::message::encode_notification;
use crate::wire::raw::RawJson;

/// How often a call that waits looks whether it may still.
const LOOK: Duration = Duration::from_secs(1);
/// How long an item may take to be listed again once its upstream has listed others. Another account may not have it.
const LISTED: Duration = Duration::from_secs(2);

/// How the client hears of the login.
pub(crate) enum Way {
    /// Not at all before the end.
    Held,
    /// By a request on the call's own stream to open the page. One call of an upstream does so at a time.
    Page {
        client_requests: Arc<ClientRequests>,
        question: InputRequest,
        /// Names the page for a client of 2025-11-25.
        id: String,
        #[expect(dead_code, reason = "given back on drop")]
        turn: OwnedSemaphorePermit,
    },
    /// A modern client was led to the page, and comes back; it is asked again with this result.
    Back(RawJson),
}

/// A call that waits for the login at its upstream.
pub(crate) struct AwaitingLogin {
    pub(super) service: Arc<Service>,
    pub(super) request: Request,
    /// The approval that it has waited for before.
    pub(super) prompt: Option<PromptId>,
    pub(super) upstream: UpstreamName,
    /// The canonical name of its item, which may be gone from the lists until the upstream has listed anew.
    item: Arc<str>,
    way: Way,
    room: Option<Room>,
    begun: Instant,
    patience: Duration,
    generation: watch::Receiver<u64>,
    /// Since when the upstream is back and has listed its items.
    back: Option<Instant>,
    asked: bool,
    question: Option<PendingRequest>,
    /// The client said that it opens the page, and hears of the end.
    opens: bool,
    over: bool,
    pub(super) progress: Option<Progress>,
    pub(super) reminders: Reminders,
}

impl AwaitingLogin {
    /// A call of that item of that upstream.
    pub(crate) fn new(
        service: Arc<Service>,
        request: Request,
        prompt: Option<PromptId>,
        (upstream, item): (UpstreamName, Arc<str>),
        way: Way,
        (room, patience): (Room, Duration),
    ) -> Self {
        let token = request.meta.progress_token().ok().flatten();
        let progress = token.map(|token| Progress::new(token, request.client.revision));
        let mut generation = service.generation.clone();
        generation.mark_unchanged();
        Self {
            service,
            request,
            prompt,
            upstream,
            item,
            way,
            room: Some(room),
            begun: clock::now(),
            patience,
            generation,
            back: None,
            asked: false,
            question: None,
            opens: false,
            over: false,
            progress,
            reminders: Reminders::default(),
        }
    }

    pub(super) async fn next(&mut self) -> Step {
        loop {
            if self.over {
                return Step::Again;
            }
            if !std::mem::replace(&mut self.asked, true)
                && let Some(question) = self.ask()
            {
                return Step::Event(ClientEvent::Question(question));
            }
            if self.is_back() {
                if let Some(notice) = self.end(Ended::Answered, "the login was given") {
                    return Step::Event(ClientEvent::Notice(notice));
                }
                continue;
            }
            if let Some(notice) = self.reminder() {
                return Step::Event(ClientEvent::Notice(notice));
            }
            let until = self.until();
            let question = or_never(self.question.as_mut().map(PendingRequest::answer));
            tokio::select! {
                biased;
                changed = self.generation.changed() => if changed.is_err() { return Step::Again },
                answer = question => {
                    self.question = None;
                    let answer = answer.and_then(Result::ok);
                    self.opens = answer.as_ref().is_some_and(is_accepted);
                    if answer.as_ref().is_some_and(is_declined) {
                        self.service.login_declined(&self.upstream);
                    }
                    if !self.opens {
                        self.leave(Ended::Over);
                        self.over = true;
                    }
                }
                () = clock::sleep_until(Some(until.min(clock::now() + LOOK))) => {
                    if until <= clock::now() && let Some(event) = self.late() {
                        return Step::Event(event);
                    }
                }
                () = self.request.client.access.ended() => {
                    let failure = given_up(&self.request.client.access, Executed::No);
                    let Request { labels, metrics, client, .. } = &self.request;
                    metrics.count(labels.label, OutcomeLabel::Denied);
                    let refused = refused(&failure, labels, client.revision);
                    self.leave(Ended::Over);
                    return Step::Event(ClientEvent::Done(refused));
                }
                () = self.request.client.input_over() => if let Some(event) = self.late() {
                    return Step::Event(event);
                },
                () = self.service.draining.cancelled() => {
                    self.leave(Ended::Over);
                    return Step::Again;
                }
            }
        }
    }

    /// Leads the client to the page. One with too many questions open is not led there.
    fn ask(&mut self) -> Option<Bytes> {
        let Way::Page { client_requests, question, .. } = &self.way else { return None };
        let (message, question) = client_requests.ask(question)?;
        self.question = Some(question);
        Some(message)
    }

    /// Whether there is nothing to wait for any more: the upstream takes calls, or it is not a login that it lacks.
    fn is_back(&mut self) -> bool {
        let snapshot = self.service.snapshots.load();
        let Some(handle) = snapshot.handles.iter().find(|handle| handle.name == self.upstream) else { return true };
        if handle.health.standing().awaits_login() {
            return false;
        }
        let (starts, state) = handle.main.starts_and_state();
        let is_listed = match *state {
            LinkState::Starting => return false,
            LinkState::Down { .. } | LinkState::Stopped => return true,
            // A lazy one may be at rest again.
            LinkState::Idle => starts > 0,
            LinkState::Ready(_) => handle.main.listed.load(Ordering::Relaxed),
        };
        let view = snapshot.view(self.request.client.profile.as_deref());
        if view.is_none_or(|view| view.catalog.entries().iter().any(|entry| entry.canonical == self.item)) {
            return true;
        }
        is_listed && clock::now() >= *self.back.get_or_insert_with(clock::now) + LISTED
    }

    /// When the client has waited long enough. A reload may make that sooner.
    fn until(&self) -> Instant {
        let snapshot = self.service.snapshots.load();
        let consent = &snapshot.config.consent;
        match &self.room {
            Some(Room::Held(hold)) => hold.until(consent),
            Some(Room::Asked(_)) | None => self.begun + self.patience.min(consent.timeout),
        }
    }

    fn late(&mut self) -> Option<ClientEvent> {
        if let Way::Back(again) = &self.way {
            let again = again.clone();
            self.leave(Ended::Over);
            self.request.metrics.count(self.request.labels.label, OutcomeLabel::InputRequired);
            return Some(ClientEvent::Done(Answer::ok(again)));
        }
        self.end(Ended::Over, "no login in time").map(ClientEvent::Notice)
    }

    /// Ends the wait; what the client is told of that.
    fn end(&mut self, ended: Ended, why: &str) -> Option<Bytes> {
        self.over = true;
        self.leave(ended);
        if let Some(question) = self.question.take() {
            return Some(question.withdrawal(why));
        }
        let Way::Page { id, .. } = &self.way else { return None };
        if !self.opens || !self.request.client.revision.features().elicitation_ids {
            return None;
        }
        let params = RawJson::trusted(format!(r#"{{"elicitationId":{}}}"#, RawJson::string(id).text()));
        Some(encode_notification("notifications/elicitation/complete", Some(&params)))
    }

    /// Gives back what the call takes up.
    fn leave(&mut self, ended: Ended) {
        if let Some(Room::Held(hold)) = self.room.take() {
            hold.end(ended);
        }
    }

    /// Tells the client that its call waits, when it is time for that.
    fn reminder(&mut self) -> Option<Bytes> {
        let progress = self.progress.as_mut()?;
        if !self.reminders.is_due(clock::uptime()) {
            return None;
        }
        let waited = clock::now().duration_since(self.request.labels.arrived);
        let params = progress.waiting(waited, &format!("waiting for a login at {}", self.upstream))?;
        self.service.budget.try_count(encode_notification("notifications/progress", Some(&params))).ok()
    }
}
