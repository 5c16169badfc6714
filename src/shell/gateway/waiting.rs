//! Runs the wait of a call for a person's act: an approval, or a login at its upstream.
//!
//! However the wait ends, the call is then decided again from the start, against the snapshot of
//! that moment: an approval is a grant that this decision finds, and an upstream is found as it is.
//! Only a call that was not approved is refused at once.
//!
//! A call whose client cannot help is *held* while a person acts elsewhere. It has no slot among
//! the calls of its caller, no slot of its upstream and uses no limit; the number of held calls is
//! bounded on its own. The approval outlives the wait. A call also becomes held once its client's
//! answer shows that no person is there.

mod answers;
pub mod approval;
pub mod channel;
pub mod client_call;
pub mod login;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, watch};

use self::approval::{PendingApproval, PendingListing};
use self::channel::{ClientChannel, OriginalRequest, OwnQuestion, PriorWaits, WaitSlots};
use self::login::PendingLogin;
use crate::base::clock;
use crate::base::never::or_never;
use crate::engine::call::CallProgress;
use crate::engine::connection::ask::ClientAnswer;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::question::approval::{ApprovalQuestionKind, is_declined};
use crate::gateway::answer::{RequestAnswer, refusal_answer};
use crate::gateway::call::{ClientEvent, LATE, access_failure};
use crate::gateway::client_requests::PendingRequest;
use crate::gateway::service::Service;
use crate::mcp::asking::input::is_accepted;
use crate::policy::consent::ApprovalEnd;
use crate::policy::consent::hold::{HoldEnd, HoldReminders};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::json::raw::RawJson;
use crate::wire::message::encode_notification;

/// How long the repeated request of a modern client waits for its person on the page before the
/// client is asked again.
const PAGE_WAIT: Duration = Duration::from_secs(20);

/// A call that waits for a person.
pub struct WaitingCall {
    service: Arc<Service>,
    request: OriginalRequest,
    awaited: AwaitedAct,
    channel: ClientChannel,
    /// Slots of the call, released when the wait ends.
    place: Option<WaitSlots>,
    /// Start of this wait.
    begun: Instant,
    /// Longest wait of a call that is not held, as configured when it began.
    patience: Duration,
    /// Number of the snapshot in force; watched because a reload can shorten the wait.
    generation: watch::Receiver<u64>,
    /// True once the question was sent, or need not be sent.
    is_asked: bool,
    turn: FormTurn,
    question: Option<OpenQuestion>,
    /// Id of the page's question at the client, for the notification of its end (2025-11-25).
    page_id: Option<String>,
    /// True once the client of this held call was told where to approve; it is told once a call.
    is_told: bool,
    /// Progress notifications that tell the client its call waits, if it wants progress.
    progress: Option<CallProgress>,
    reminders: HoldReminders,
    /// Set once the wait has ended.
    outcome: Option<WaitOutcome>,
}

/// The person's act that a call waits for.
pub enum AwaitedAct {
    /// The store of the cluster takes the approval before anybody is asked.
    Listing(PendingListing),
    Approval(PendingApproval),
    Login(PendingLogin),
}

/// The event that ends the wait for a person's act: the approval has ended, or the upstream no
/// longer waits for a login.
enum ActOutcome {
    /// Whether the approval is in the store.
    Listing(bool),
    Approval(ApprovalEnd),
    /// The upstream is back, or unavailable for another reason than a login.
    Login,
}

/// A question that was sent to the client and has no answer yet.
struct OpenQuestion {
    pending: PendingRequest,
    sent: Instant,
}

/// The turn of a call's form among the gateway's own forms to its client, which come one at a time.
enum FormTurn {
    None,
    Queued(BoxFuture<'static, Option<OwnedSemaphorePermit>>),
    Taken(#[expect(dead_code, reason = "given back on drop")] Option<OwnedSemaphorePermit>),
}

/// The result of a wait, acted on once the open question is withdrawn.
enum WaitOutcome {
    DecideAgain,
    Answer(RequestAnswer),
}

/// The next event of a waiting call.
pub enum WaitEvent {
    Event(ClientEvent),
    /// The wait has ended; the call is decided from the start.
    DecideAgain,
}

impl AwaitedAct {
    /// Waits until the person has acted, or until nothing is left to wait for. Cancel-safe.
    async fn wait(&mut self, service: &Service, request: &OriginalRequest) -> ActOutcome {
        match self {
            Self::Listing(listing) => ActOutcome::Listing(listing.wait_until_listed().await),
            Self::Approval(approval) => ActOutcome::Approval(approval.wait_until_closed().await),
            Self::Login(login) => {
                login.wait_until_back(service, request).await;
                ActOutcome::Login
            }
        }
    }
}

impl WaitingCall {
    /// Starts a wait, and writes on the approval when it will end.
    pub fn new(
        service: Arc<Service>,
        request: OriginalRequest,
        awaited: AwaitedAct,
        channel: ClientChannel,
        place: WaitSlots,
    ) -> Self {
        let timeout = service.snapshots.load().config.consent.timeout;
        let patience = if matches!(channel, ClientChannel::Repeated(_)) { PAGE_WAIT.min(timeout) } else { timeout };
        let token = request.meta.progress_token().ok().flatten();
        let progress = token.map(|token| CallProgress::new(token, request.client.revision));
        let mut generation = service.generation.clone();
        generation.mark_unchanged();
        let call = Self {
            service,
            request,
            awaited,
            channel,
            place: Some(place),
            begun: clock::now(),
            patience,
            generation,
            is_asked: false,
            turn: FormTurn::None,
            question: None,
            page_id: None,
            is_told: false,
            progress,
            reminders: HoldReminders::default(),
            outcome: None,
        };
        call.note_wait();
        call
    }

    /// Waits for the next event for the client, or the end of the wait. Cancel-safe.
    pub async fn next(&mut self) -> WaitEvent {
        loop {
            match &self.outcome {
                Some(WaitOutcome::DecideAgain) => return WaitEvent::DecideAgain,
                Some(WaitOutcome::Answer(answer)) => return WaitEvent::Event(ClientEvent::Done(answer.clone())),
                None => {}
            }
            if let Some(event) = self.advance().await {
                return WaitEvent::Event(event);
            }
        }
    }

    /// Waits for the first of: the person's act, the client's answer, the end of the time, of the
    /// client's access or of the gateway. Sends the question first. Returns an event for the
    /// client, if there is one.
    async fn advance(&mut self) -> Option<ClientEvent> {
        if !self.is_asked && !self.waits_for_turn() {
            self.is_asked = true;
            let question = self.ask();
            if question.is_some() || self.outcome.is_some() {
                return question.map(ClientEvent::Question);
            }
        }
        if let AwaitedAct::Approval(PendingApproval { answering: Some(answering), .. }) = &mut self.awaited {
            let closed = answering.await;
            return self.answer_taken(closed);
        }
        if let Some(notice) = self.reminder() {
            return Some(ClientEvent::Notice(notice));
        }
        let (until, client, is_held) = (self.until(), &self.request.client, self.is_held());
        // An end of the client's input or of the gateway ends only these waits: a call that waits
        // for a login is decided without it, and an approval can still come for a call that is not
        // held.
        let ends_early = is_held || matches!(self.awaited, AwaitedAct::Login(_));
        let reminder = self.reminders.next().filter(|_| self.reminds());
        let wake = reminder.map_or(until, |due| until.min(clock::now() + due.saturating_sub(clock::uptime())));
        let answer = or_never(self.question.as_mut().map(|question| question.pending.answer()));
        let turn = or_never(match &mut self.turn {
            FormTurn::Queued(turn) => Some(turn),
            FormTurn::None | FormTurn::Taken(_) => None,
        });
        tokio::select! {
            biased;
            act = self.awaited.wait(&self.service, &self.request) => match act {
                ActOutcome::Listing(true) => self.decide_again(HoldEnd::Over, "the approval is listed"),
                ActOutcome::Listing(false) => {
                    self.outcome = Some(self.unlisted());
                    None
                }
                ActOutcome::Approval(closed) => self.conclude(closed),
                ActOutcome::Login => self.decide_again(HoldEnd::Answered, "the login was given"),
            },
            answer = answer => self.answered(answer),
            turn = turn => {
                self.turn = FormTurn::Taken(turn);
                None
            }
            () = clock::sleep_until(Some(wake)) => (until <= clock::now()).then(|| self.late(LATE)).flatten(),
            // An error means that the gateway ends, which other branches see.
            Ok(()) = self.generation.changed() => None,
            () = client.access.ended() => {
                let outcome = self.refusal(&access_failure(&client.access, ExecutionDoubt::No));
                self.end(outcome, "the call has ended")
            }
            () = client.input_over(), if ends_early => {
                // The client has given the call up.
                drop(self.place.take());
                self.late("the client's input has ended")
            }
            // The gateway ends, and its approvals end with it.
            () = self.service.draining.cancelled(), if ends_early => match &self.awaited {
                AwaitedAct::Approval(_) | AwaitedAct::Listing(_) => self.late("the gateway is shutting down"),
                AwaitedAct::Login(_) => self.decide_again(HoldEnd::Over, "the gateway is shutting down"),
            },
        }
    }

    /// Returns when the wait is over. A reload may make that sooner.
    fn until(&self) -> Instant {
        let snapshot = self.service.snapshots.load();
        let consent = &snapshot.config.consent;
        match &self.place {
            Some(WaitSlots::Held(hold)) => hold.until(consent),
            Some(WaitSlots::Asked { .. }) | None => self.begun + self.patience.min(consent.timeout),
        }
    }

    fn is_held(&self) -> bool {
        matches!(self.place, Some(WaitSlots::Held(_)))
    }

    /// Writes on the approval when the call stops waiting, which is shown to the people who are
    /// asked.
    fn note_wait(&self) {
        if let AwaitedAct::Approval(PendingApproval { seat: Some(seat), .. }) = &self.awaited {
            seat.waits_until(self.until());
        }
    }

    /// Returns whether the client gets a progress notification from time to time while its call
    /// waits.
    fn reminds(&self) -> bool {
        self.progress.is_some() && (self.is_held() || matches!(self.awaited, AwaitedAct::Login(_)))
    }

    /// Returns a progress notification that says the call waits, if one is due, and sets the time
    /// of the next one.
    fn reminder(&mut self) -> Option<Bytes> {
        if !self.reminds() || !self.reminders.is_due(clock::uptime()) {
            return None;
        }
        let waited = clock::now().duration_since(self.request.labels.arrived);
        let text = match &self.awaited {
            AwaitedAct::Approval(_) | AwaitedAct::Listing(_) => "waiting for approval".to_owned(),
            AwaitedAct::Login(login) => format!("waiting for a login at {}", login.upstream),
        };
        let params = self.progress.as_mut()?.waiting(waited, &text)?;
        self.service.budget.try_count(encode_notification("notifications/progress", Some(&params))).ok()
    }

    /// Takes a turn for the call's form, or queues for one if another form of the gateway is open
    /// at the client. Returns whether the form has to wait. A page's question takes no turn: the
    /// client only opens it.
    fn waits_for_turn(&mut self) -> bool {
        let question = self.channel.question().filter(|question| question.kind != ApprovalQuestionKind::Page);
        let (Some(question), FormTurn::None) = (question, &self.turn) else {
            return matches!(self.turn, FormTurn::Queued(_));
        };
        let client_requests = &question.client_requests;
        self.turn = match client_requests.turn_now() {
            Some(turn) => FormTurn::Taken(Some(turn)),
            None => FormTurn::Queued(Box::pin(Arc::clone(client_requests).turn())),
        };
        matches!(self.turn, FormTurn::Queued(_))
    }

    /// Opens the question at the client and returns its message. Begins to store an answer that
    /// came with the request. If the client has too many questions open, ends the wait with a
    /// refusal, unless the call can do without a question.
    fn ask(&mut self) -> Option<Bytes> {
        if let (ClientChannel::Answered(answer), AwaitedAct::Approval(approval)) = (&self.channel, &mut self.awaited) {
            approval.answer(&self.service, answer.clone());
        }
        let OwnQuestion { client_requests, request, kind, page_id } = self.channel.question()?;
        let Some((message, pending)) = client_requests.ask(request) else {
            // A held call can do without a question, as can a login that other clients may be led
            // to.
            let is_needed = !self.is_held() && matches!(self.awaited, AwaitedAct::Approval(_));
            self.outcome =
                is_needed.then(|| self.refuse(FailureReason::Busy, "The client has too many questions open."));
            return None;
        };
        self.page_id = (*kind == ApprovalQuestionKind::Page).then(|| page_id.clone());
        self.question = Some(OpenQuestion { pending, sent: clock::now() });
        self.is_told |= self.is_held();
        Some(message)
    }

    /// Handles the client's response to the question, and frees the turn of its form. An answer
    /// about an approval is checked and stored; for a login, any response but an acceptance ends
    /// the wait.
    fn answered(&mut self, answer: Option<ClientAnswer>) -> Option<ClientEvent> {
        let sent = self.question.take().map(|question| question.sent);
        self.turn = FormTurn::None;
        let answer = answer.and_then(Result::ok);
        match &mut self.awaited {
            AwaitedAct::Approval(_) => {
                let kind = self.channel.question().map_or(ApprovalQuestionKind::Notice, |question| question.kind);
                self.approval_answered(kind, answer.as_ref(), sent);
                None
            }
            // No client and no operator is asked before the approval is listed.
            AwaitedAct::Listing(_) => None,
            // Acceptance only means that the client opens the page.
            AwaitedAct::Login(_) if answer.as_ref().is_some_and(is_accepted) => None,
            AwaitedAct::Login(login) => {
                if answer.as_ref().is_some_and(is_declined) {
                    self.service.login_declined(&login.upstream);
                }
                self.page_id = None;
                self.decide_again(HoldEnd::Over, LATE)
            }
        }
    }

    /// Sets the outcome that ends the wait. Returns the notification that goes out before it, if
    /// there is one: the withdrawal of an open question, or the end of the page's question.
    fn end(&mut self, outcome: WaitOutcome, why: &str) -> Option<ClientEvent> {
        self.outcome = Some(outcome);
        self.turn = FormTurn::None;
        if let Some(question) = self.question.take() {
            return Some(ClientEvent::Notice(question.pending.withdrawal(why)));
        }
        let id = self.page_id.take().filter(|_| self.request.client.revision.features().elicitation_ids)?;
        let params = RawJson::trusted(format!(r#"{{"elicitationId":{}}}"#, RawJson::string(&id).text()));
        Some(ClientEvent::Notice(encode_notification("notifications/elicitation/complete", Some(&params))))
    }

    /// Releases the slots of the call and ends the wait, so that the call is decided from the
    /// start.
    fn decide_again(&mut self, ended: HoldEnd, why: &str) -> Option<ClientEvent> {
        self.leave(ended);
        self.end(WaitOutcome::DecideAgain, why)
    }

    /// Ends a wait whose time is over and releases the slots of the call. A modern client is asked
    /// again, a call that waited for a login is decided from the start, and any other is refused.
    fn late(&mut self, why: &str) -> Option<ClientEvent> {
        self.leave(HoldEnd::Over);
        let outcome = match (&mut self.awaited, &self.channel) {
            (awaited, ClientChannel::Repeated(again)) => {
                if let AwaitedAct::Approval(PendingApproval { seat, .. }) = awaited
                    && let Some(seat) = seat.take()
                {
                    seat.carry();
                }
                WaitOutcome::Answer(self.request.ask_again(again.clone()))
            }
            (AwaitedAct::Login(_), _) => WaitOutcome::DecideAgain,
            (AwaitedAct::Listing(_), _) => self.unlisted(),
            (AwaitedAct::Approval(_), _) => self.unapproved(),
        };
        self.end(outcome, why)
    }

    /// Releases the slots of the call; `ended` says what a held wait shows about its client.
    fn leave(&mut self, ended: HoldEnd) {
        if let Some(WaitSlots::Held(hold)) = self.place.take() {
            hold.end(ended);
        }
    }

    /// Refuses a call whose approval is not in the store.
    fn unlisted(&mut self) -> WaitOutcome {
        let failure = self.service.unkept_approval();
        self.refusal(&failure)
    }

    fn refuse(&mut self, reason: FailureReason, text: &str) -> WaitOutcome {
        self.refusal(&CallFailure::new(reason, ExecutionDoubt::No, text))
    }

    /// Releases the call's slots, counts the refusal, and returns it as the outcome.
    fn refusal(&mut self, failure: &CallFailure) -> WaitOutcome {
        self.leave(HoldEnd::Over);
        #[expect(clippy::wildcard_enum_match_arm, reason = "a call that waits for a person is refused for few reasons")]
        let outcome = match failure.reason {
            FailureReason::Denied | FailureReason::InsufficientScope => OutcomeLabel::Denied,
            FailureReason::AwaitingApproval => OutcomeLabel::AwaitingApproval,
            FailureReason::Unrecorded | FailureReason::StoreUnavailable => OutcomeLabel::Unrecorded,
            _ => OutcomeLabel::Busy,
        };
        let OriginalRequest { metrics, labels, client, .. } = &self.request;
        metrics.count(labels.label, outcome);
        WaitOutcome::Answer(refusal_answer(failure, labels, client.revision))
    }

    /// Returns what this call has waited for.
    fn prior_waits(&mut self) -> PriorWaits {
        match &mut self.awaited {
            AwaitedAct::Listing(listing) => PriorWaits { listed: listing.going_on(), ..PriorWaits::default() },
            AwaitedAct::Approval(approval) => PriorWaits { approval: Some(approval.approval), ..PriorWaits::default() },
            AwaitedAct::Login(login) => PriorWaits { approval: login.approval, login: true, ..PriorWaits::default() },
        }
    }

    /// Continues the wait `before` of a call that was decided again and waits once more, since
    /// another call used the approval up: the client is not told twice, and progress counts on.
    fn resume(&mut self, before: &mut Self) {
        self.is_told = before.is_told;
        if self.is_told && self.is_held() {
            self.is_asked = true;
        }
        if before.progress.is_some() && self.progress.is_some() {
            (self.progress, self.reminders) = (before.progress.take(), std::mem::take(&mut before.reminders));
        }
    }
}
