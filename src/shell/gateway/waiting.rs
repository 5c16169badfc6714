//! Calls that wait for a person: for an approval, or for a login at their upstream.
//!
//! However the wait ends, the call is then decided again from the start, against the snapshot of
//! that moment: an approval is a grant that this decision finds, and an upstream is found as it is.
//! Only a call that was not approved is refused at once.
//!
//! A call whose client cannot help is *held* while a person acts elsewhere. It has no place among
//! the calls of its caller, no slot of its upstream and uses no limit; its place among the held
//! calls bounds it. The approval outlives the wait. A call is also held from the moment on when its
//! client's answer shows that no person is there.

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

use self::approval::PendingApproval;
use self::channel::{ClientChannel, OriginalRequest, OwnQuestion, PriorWaits, WaitPlace};
use self::login::PendingLogin;
use crate::base::clock;
use crate::base::never::or_never;
use crate::engine::ask::ClientAnswer;
use crate::engine::call::Progress;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::approval::{QuestionKind, is_declined};
use crate::gateway::answer::{Answer, refused};
use crate::gateway::call::{ClientEvent, LATE, given_up};
use crate::gateway::client_requests::PendingRequest;
use crate::gateway::service::Service;
use crate::mcp::input::is_accepted;
use crate::policy::consent::Closed;
use crate::policy::consent::hold::{Ended, Reminders};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::message::encode_notification;
use crate::wire::raw::RawJson;

/// How long the repeated request of a modern client waits for its person on the page before it is
/// asked again.
const PAGE_WAIT: Duration = Duration::from_secs(20);

/// A call that waits for a person.
pub struct WaitingCall {
    service: Arc<Service>,
    request: OriginalRequest,
    awaited: AwaitedAct,
    channel: ClientChannel,
    /// Given back when the wait ends.
    place: Option<WaitPlace>,
    begun: Instant,
    patience: Duration,
    /// A reload can shorten the wait.
    generation: watch::Receiver<u64>,
    is_asked: bool,
    turn: FormTurn,
    question: Option<OpenQuestion>,
    /// The id of the page's question that the client has, whose end clients of 2025-11-25 are told.
    page_id: Option<String>,
    /// The client of a held call was told where the approval can be given; once a call.
    is_told: bool,
    /// Progress that tells the client of its waiting call.
    progress: Option<Progress>,
    reminders: Reminders,
    outcome: Option<WaitOutcome>,
}

/// The person's act that a call waits for.
pub enum AwaitedAct {
    Approval(PendingApproval),
    Login(PendingLogin),
}

/// The end of a wait for a person's act.
enum ActOutcome {
    Approval(Closed),
    /// The upstream is back, or it is not a login that it lacks.
    Login,
}

/// A question that the client has before it.
struct OpenQuestion {
    pending: PendingRequest,
    sent: Instant,
}

/// The turn of a call's form among the gateway's own forms to its client; they come one after the
/// other.
enum FormTurn {
    None,
    Queued(BoxFuture<'static, Option<OwnedSemaphorePermit>>),
    Taken(#[expect(dead_code, reason = "given back on drop")] Option<OwnedSemaphorePermit>),
}

/// The result of a wait, for the client once its open question is withdrawn.
enum WaitOutcome {
    DecideAgain,
    Answer(Answer),
}

/// The next of a call that waits for a person.
pub enum WaitStep {
    Event(ClientEvent),
    /// It has waited long enough: it is decided from the start.
    DecideAgain,
}

impl AwaitedAct {
    /// Waits until the person has acted, or nothing is left to wait for. Cancel-safe.
    async fn wait(&mut self, service: &Service, request: &OriginalRequest) -> ActOutcome {
        match self {
            Self::Approval(approval) => ActOutcome::Approval(approval.wait_until_closed().await),
            Self::Login(login) => {
                login.wait_until_back(service, request).await;
                ActOutcome::Login
            }
        }
    }
}

impl WaitingCall {
    pub fn new(
        service: Arc<Service>,
        request: OriginalRequest,
        awaited: AwaitedAct,
        channel: ClientChannel,
        place: WaitPlace,
    ) -> Self {
        let timeout = service.snapshots.load().config.consent.timeout;
        let patience = if matches!(channel, ClientChannel::Repeated(_)) { PAGE_WAIT.min(timeout) } else { timeout };
        let token = request.meta.progress_token().ok().flatten();
        let progress = token.map(|token| Progress::new(token, request.client.revision));
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
            reminders: Reminders::default(),
            outcome: None,
        };
        call.note_wait();
        call
    }

    /// The next thing for the client. Cancel-safe.
    pub async fn next(&mut self) -> WaitStep {
        loop {
            match &self.outcome {
                Some(WaitOutcome::DecideAgain) => return WaitStep::DecideAgain,
                Some(WaitOutcome::Answer(answer)) => return WaitStep::Event(ClientEvent::Done(answer.clone())),
                None => {}
            }
            if let Some(event) = self.advance().await {
                return WaitStep::Event(event);
            }
        }
    }

    /// Waits for whatever comes first; the event for the client, if it is one for it.
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
        // A call that waits for a login goes on without it; an approval can still come for a call
        // that is not held.
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
                ActOutcome::Approval(closed) => self.conclude(closed),
                ActOutcome::Login => self.decide_again(Ended::Answered, "the login was given"),
            },
            answer = answer => self.answered(answer),
            turn = turn => {
                self.turn = FormTurn::Taken(turn);
                None
            }
            () = clock::sleep_until(Some(wake)) => (until <= clock::now()).then(|| self.late(LATE)).flatten(),
            // The end of the gateway, which sends no more generations, is seen by the others.
            Ok(()) = self.generation.changed() => None,
            () = client.access.ended() => {
                let outcome = self.refusal(&given_up(&client.access, Executed::No));
                self.end(outcome, "the call has ended")
            }
            () = client.input_over(), if ends_early => {
                // The client has given it up.
                drop(self.place.take());
                self.late("the client's input has ended")
            }
            // The gateway ends, and its approvals with it.
            () = self.service.draining.cancelled(), if ends_early => match &self.awaited {
                AwaitedAct::Approval(_) => self.late("the gateway is shutting down"),
                AwaitedAct::Login(_) => self.decide_again(Ended::Over, "the gateway is shutting down"),
            },
        }
    }

    /// When the client has waited long enough. A reload may make that sooner.
    fn until(&self) -> Instant {
        let snapshot = self.service.snapshots.load();
        let consent = &snapshot.config.consent;
        match &self.place {
            Some(WaitPlace::Held(hold)) => hold.until(consent),
            Some(WaitPlace::Asked { .. }) | None => self.begun + self.patience.min(consent.timeout),
        }
    }

    fn is_held(&self) -> bool {
        matches!(self.place, Some(WaitPlace::Held(_)))
    }

    /// Notes when the call gives up waiting, for the people who are asked.
    fn note_wait(&self) {
        if let AwaitedAct::Approval(PendingApproval { seat: Some(seat), .. }) = &self.awaited {
            seat.waits_until(self.until());
        }
    }

    /// Whether the client hears from time to time that its call waits.
    fn reminds(&self) -> bool {
        self.progress.is_some() && (self.is_held() || matches!(self.awaited, AwaitedAct::Login(_)))
    }

    /// Tells the client that its call waits, when it is time for that. It changes nothing about the
    /// wait.
    fn reminder(&mut self) -> Option<Bytes> {
        if !self.reminds() || !self.reminders.is_due(clock::uptime()) {
            return None;
        }
        let waited = clock::now().duration_since(self.request.labels.arrived);
        let text = match &self.awaited {
            AwaitedAct::Approval(_) => "waiting for approval".to_owned(),
            AwaitedAct::Login(login) => format!("waiting for a login at {}", login.upstream),
        };
        let params = self.progress.as_mut()?.waiting(waited, &text)?;
        self.service.budget.try_count(encode_notification("notifications/progress", Some(&params))).ok()
    }

    /// Whether another form of the gateway's own is open at the client. The page's question takes
    /// no turn: the client only opens it.
    fn waits_for_turn(&mut self) -> bool {
        let question = self.channel.question().filter(|question| question.kind != QuestionKind::Page);
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

    /// Sends the question, or takes the answer that is there already.
    fn ask(&mut self) -> Option<Bytes> {
        if let (ClientChannel::Answered(answer), AwaitedAct::Approval(approval)) = (&self.channel, &mut self.awaited) {
            approval.answer(&self.service, answer.clone());
        }
        let OwnQuestion { client_requests, request, kind, page_id } = self.channel.question()?;
        let Some((message, pending)) = client_requests.ask(request) else {
            // A held call needs no question, nor does one whose login others can be led to.
            let is_needed = !self.is_held() && matches!(self.awaited, AwaitedAct::Approval(_));
            self.outcome = is_needed.then(|| self.refuse(Reason::Busy, "The client has too many questions open."));
            return None;
        };
        self.page_id = (*kind == QuestionKind::Page).then(|| page_id.clone());
        self.question = Some(OpenQuestion { pending, sent: clock::now() });
        self.is_told |= self.is_held();
        Some(message)
    }

    /// Takes the client's response to the question on the stream.
    fn answered(&mut self, answer: Option<ClientAnswer>) -> Option<ClientEvent> {
        let sent = self.question.take().map(|question| question.sent);
        self.turn = FormTurn::None;
        let answer = answer.and_then(Result::ok);
        match &mut self.awaited {
            AwaitedAct::Approval(_) => {
                let kind = self.channel.question().map_or(QuestionKind::Notice, |question| question.kind);
                self.approval_answered(kind, answer.as_ref(), sent);
                None
            }
            // It only means that the client opens the page.
            AwaitedAct::Login(_) if answer.as_ref().is_some_and(is_accepted) => None,
            AwaitedAct::Login(login) => {
                if answer.as_ref().is_some_and(is_declined) {
                    self.service.login_declined(&login.upstream);
                }
                self.page_id = None;
                self.decide_again(Ended::Over, LATE)
            }
        }
    }

    /// Ends the wait; the withdrawal of a question that is open comes before its outcome.
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

    fn decide_again(&mut self, ended: Ended, why: &str) -> Option<ClientEvent> {
        self.leave(ended);
        self.end(WaitOutcome::DecideAgain, why)
    }

    /// Ends the wait of a client that has waited long enough.
    fn late(&mut self, why: &str) -> Option<ClientEvent> {
        self.leave(Ended::Over);
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
            (AwaitedAct::Approval(_), _) => self.unapproved(),
        };
        self.end(outcome, why)
    }

    /// Gives back what the call takes up.
    fn leave(&mut self, ended: Ended) {
        if let Some(WaitPlace::Held(hold)) = self.place.take() {
            hold.end(ended);
        }
    }

    fn refuse(&mut self, reason: Reason, text: &str) -> WaitOutcome {
        self.refusal(&Failure::new(reason, Executed::No, text))
    }

    fn refusal(&mut self, failure: &Failure) -> WaitOutcome {
        self.leave(Ended::Over);
        #[expect(clippy::wildcard_enum_match_arm, reason = "a call that waits for a person is refused for few reasons")]
        let outcome = match failure.reason {
            Reason::Denied => OutcomeLabel::Denied,
            Reason::AwaitingApproval => OutcomeLabel::AwaitingApproval,
            _ => OutcomeLabel::Busy,
        };
        let OriginalRequest { metrics, labels, client, .. } = &self.request;
        metrics.count(labels.label, outcome);
        WaitOutcome::Answer(refused(failure, labels, client.revision))
    }

    /// Everything that this call has waited for.
    fn prior_waits(&self) -> PriorWaits {
        match &self.awaited {
            AwaitedAct::Approval(approval) => PriorWaits { approval: Some(approval.prompt), login: false },
            AwaitedAct::Login(login) => PriorWaits { approval: login.approval, login: true },
        }
    }

    /// Continues the wait of a call that was decided again: another call may have used the approval
    /// up.
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
