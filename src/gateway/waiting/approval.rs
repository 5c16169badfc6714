//! A call that waits for its approval.
//!
//! Whoever agrees, the call is then decided again from the start, against the snapshot of that moment: the consent is a grant
//! that this decision finds. Whoever does not, in time or at all, has it refused.
//!
//! A call whose client cannot give the approval is *held* while a person does so elsewhere. It has
//! no place among the calls of its caller, no slot of its upstream and uses no limit; its place
//! among the held calls bounds it. The approval outlives the wait. A call is also held from the
//! moment on when its client's answer shows that no person is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use crate::base::clock;
use crate::base::never::or_never;
use crate::engine::ask::ClientAnswer;
use crate::engine::call::Progress;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::approval::{AnswerEffect, AnswerTiming, QuestionKind};
use crate::gateway::answer::{Answer, refused};
use crate::gateway::call::{ClientEvent, given_up};
use crate::gateway::question::client_requests::PendingRequest;
use crate::gateway::service::Service;
use crate::gateway::waiting::channel::{Channel, Note, Request, Room, Step};
use crate::policy::Evidence;
use crate::policy::consent::hold::{Ended, NotHeld, Reminders};
use crate::policy::consent::{Answer as Agreed, CannotAnswer, Closed, PromptId};
use crate::store::approvals::Seat;
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::message::encode_notification;
use crate::wire::raw::RawJson;

/// How long the repeated request of a modern client waits for what happens on the page, before it is asked again.
const PAGE_WAIT: Duration = Duration::from_secs(20);

/// Why a question is taken back whose time is over.
const LATE: &str = "no answer in time";
/// Text for a model whose client's yes could not be taken.
const UNTAKEN: &str = "The approval of this call could not be taken, so it was not made.";
/// How often a call that waits looks whether it may still.
const LOOK: Duration = Duration::from_secs(1);

/// A call with an open prompt.
pub(crate) struct Asking {
    pub(super) service: Arc<Service>,
    pub(super) request: Request,
    pub(super) prompt: PromptId,
    /// Held until the call is decided again: a once-grant is for this call until then.
    seat: Option<Seat>,
    channel: Channel,
    begun: Instant,
    patience: Duration,
    question: Option<PendingRequest>,
    /// When that question was sent.
    sent: Option<Instant>,
    /// This question's turn among our own forms to the client; they come one after the other.
    turn: Option<OwnedSemaphorePermit>,
    awaiting_turn: Option<BoxFuture<'static, Option<OwnedSemaphorePermit>>>,
    asked: bool,
    /// The client was told where the approval can be given; once a call.
    pub(super) is_told: bool,
    /// How a held call tells its client that it waits.
    pub(super) progress: Option<Progress>,
    pub(super) reminders: Reminders,
    answering: Option<BoxFuture<'static, Result<Closed, CannotAnswer>>>,
    settled: Option<BoxFuture<'static, Closed>>,
    concluded: Option<Closed>,
    /// The refusal that is told behind the withdrawal of the question.
    refused: Option<ClientEvent>,
    room: Option<Room>,
    /// The page's question, whose end a client of 2025-11-25 is told.
    page_id: String,
}

impl Asking {
    pub(crate) fn new(
        service: Arc<Service>,
        request: Request,
        seat: Seat,
        channel: Channel,
        patience: Duration,
        room: Room,
    ) -> Self {
        let prompt = seat.prompt();
        let settled = {
            let (approvals, prompt) = (service.approvals.clone(), prompt);
            Box::pin(async move { approvals.settled(&prompt).await })
        };
        let patience = if matches!(channel, Channel::Waiting(_)) { PAGE_WAIT.min(patience) } else { patience };
        let progress = matches!(room, Room::Held(_)).then(|| progress_of(&request)).flatten();
        let asking = Self {
            service,
            request,
            page_id: prompt.to_string(),
            prompt,
            seat: Some(seat),
            turn: None,
            awaiting_turn: None,
            channel,
            begun: clock::now(),
            patience,
            question: None,
            sent: None,
            asked: false,
            is_told: false,
            progress,
            reminders: Reminders::default(),
            answering: None,
            settled: Some(settled),
            concluded: None,
            refused: None,
            room: Some(room),
        };
        asking.note_wait();
        asking
    }

    /// Notes when the call gives up waiting, for the people who are asked.
    fn note_wait(&self) {
        if let Some(seat) = &self.seat {
            seat.waits_until(self.until());
        }
    }

    pub(super) async fn next(&mut self) -> Step {
        loop {
            if let Some(refused) = self.refused.take() {
                return Step::Event(refused);
            }
            if !self.asked && !self.waits_for_turn() {
                self.asked = true;
                if let Some(event) = self.ask() {
                    return Step::Event(event);
                }
            }
            if let Some(closed) = self.concluded {
                let is_late = closed == Closed::TimedOut;
                if let Some(notice) = self.withdrawal(if is_late { LATE } else { "answered elsewhere" }) {
                    return Step::Event(ClientEvent::Notice(notice));
                }
                return self.conclude(closed);
            }
            if let Some(answering) = &mut self.answering {
                let closed = answering.await;
                self.answering = None;
                match closed {
                    Ok(closed) => self.concluded = Some(closed),
                    // Another answer came first, and that one counts; or this one does not suffice.
                    Err(CannotAnswer::Unknown) => {}
                    Err(why) => {
                        self.service.approvals.unanswered(&self.prompt);
                        // Reasons name commands and files, which are not for a model.
                        tracing::warn!(why = %why, "an approval did not count");
                        return Step::Event(self.refuse(Reason::Denied, UNTAKEN));
                    }
                }
                continue;
            }
            if let Some(notice) = self.reminder() {
                return Step::Event(ClientEvent::Notice(notice));
            }
            let (until, is_held) = (self.until(), self.is_held());
            let Some(settled) = &mut self.settled else { return Step::Event(self.refuse(Reason::Denied, "")) };
            let question = or_never(self.question.as_mut().map(PendingRequest::answer));
            let turn = or_never(self.awaiting_turn.as_mut());
            tokio::select! {
                biased;
                closed = settled => { self.concluded = Some(closed); self.settled = None; }
                answer = question => self.answered(answer),
                turn = turn => { self.turn = turn; self.awaiting_turn = None; }
                () = clock::sleep_until(Some(until.min(clock::now() + LOOK))) => {
                    if until <= clock::now() {
                        let late = self.late();
                        return Step::Event(self.last(late, LATE));
                    }
                }
                () = self.request.client.access.ended() => {
                    let failure = given_up(&self.request.client.access, Executed::No);
                    let refused = self.fail(&failure);
                    return Step::Event(self.last(refused, "the call has ended"));
                }
                () = self.request.client.input_over(), if is_held => {
                    // The client has given it up.
                    drop(self.room.take());
                    let refused = self.late();
                    return Step::Event(self.last(refused, "the client's input has ended"));
                }
                // The gateway ends, and its approvals with it.
                () = self.service.draining.cancelled(), if is_held => {
                    let refused = self.late();
                    return Step::Event(self.last(refused, "the gateway is shutting down"));
                }
            }
        }
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

    pub(super) fn is_held(&self) -> bool {
        matches!(self.room, Some(Room::Held(_)))
    }

    /// Tells the client that its call waits, when it is time for that. It changes nothing about the wait.
    fn reminder(&mut self) -> Option<Bytes> {
        let progress = self.progress.as_mut().filter(|_| matches!(self.room, Some(Room::Held(_))))?;
        if !self.reminders.is_due(clock::uptime()) {
            return None;
        }
        let waited = clock::now().duration_since(self.request.labels.arrived);
        let params = progress.waiting(waited, "waiting for approval")?;
        self.service.budget.try_count(encode_notification("notifications/progress", Some(&params))).ok()
    }

    /// Gives back what the call takes up.
    fn leave(&mut self, ended: Ended) {
        if let Some(Room::Held(hold)) = self.room.take() {
            hold.end(ended);
        }
    }

    /// Whether another form of ours is open at the client. The page's question takes no turn: the client only opens it.
    fn waits_for_turn(&mut self) -> bool {
        let client_requests = match &self.channel {
            Channel::OnStream { client_requests, kind: QuestionKind::Form | QuestionKind::Notice, .. } => {
                client_requests
            }
            Channel::Elsewhere { note: Some(Note { client_requests, .. }), .. } if !self.is_told => client_requests,
            Channel::OnStream { .. } | Channel::Elsewhere { .. } | Channel::Answered(_) | Channel::Waiting(_) => {
                return false;
            }
        };
        if self.turn.is_some() {
            return false;
        }
        if self.awaiting_turn.is_none() {
            self.turn = client_requests.turn_now();
            if self.turn.is_some() {
                return false;
            }
            self.awaiting_turn = Some(Box::pin(Arc::clone(client_requests).turn()));
        }
        true
    }

    /// Sends the question, or takes the answer that is there already.
    fn ask(&mut self) -> Option<ClientEvent> {
        match &mut self.channel {
            Channel::OnStream { client_requests, question, .. } => {
                let Some((message, question)) = client_requests.ask(question) else {
                    return Some(self.refuse(Reason::Busy, "The client has too many questions open."));
                };
                (self.question, self.sent) = (Some(question), Some(clock::now()));
                Some(ClientEvent::Question(message))
            }
            Channel::Answered(answer) => {
                let answer = answer.clone();
                self.give(answer);
                None
            }
            Channel::Elsewhere { note, .. } => {
                let Note { client_requests, question, .. } = note.as_ref().filter(|_| !self.is_told)?;
                // A client with too many questions open is not told.
                let (message, question) = client_requests.ask(question)?;
                (self.question, self.sent, self.is_told) = (Some(question), Some(clock::now()), true);
                Some(ClientEvent::Question(message))
            }
            Channel::Waiting(_) => None,
        }
    }

    /// The client is asked to open a page, where the answer is given.
    fn has_page(&self) -> bool {
        matches!(
            self.channel,
            Channel::OnStream { kind: QuestionKind::Page, .. }
                | Channel::Elsewhere { note: Some(Note { kind: QuestionKind::Page, .. }), .. }
        )
    }

    /// The client's response to our question on the stream.
    fn answered(&mut self, answer: Option<ClientAnswer>) {
        self.question = None;
        self.turn = None;
        let kind = match &self.channel {
            Channel::OnStream { kind, .. } | Channel::Elsewhere { note: Some(Note { kind, .. }), .. } => *kind,
            Channel::Elsewhere { note: None, .. } | Channel::Answered(_) | Channel::Waiting(_) => QuestionKind::Notice,
        };
        let waited = self.sent.take().map(|sent| clock::now().duration_since(sent));
        let is_unattended = self.service.held.is_unattended(&self.request.host());
        let timing = AnswerTiming { waited, is_unattended };
        match self.service.hear(&self.request, kind, answer.and_then(Result::ok).as_ref(), timing) {
            AnswerEffect::Answer(answer) => self.give(answer),
            AnswerEffect::Wait if !is_unattended => {}
            AnswerEffect::Wait | AnswerEffect::Unattended => self.hand_over(),
        }
    }

    /// Holds the call for the console and the terminal, since no person is at its host; it may be
    /// held already.
    fn hand_over(&mut self) {
        if self.is_held() {
            return;
        }
        if let Some(seat) = &self.seat {
            seat.hand_over();
        }
        let refusal = self.service.awaiting(&self.prompt);
        match self.service.place(&self.request) {
            Ok(hold) => {
                self.room = Some(Room::Held(hold));
                self.progress = progress_of(&self.request);
                (self.is_told, self.channel) = (true, Channel::Elsewhere { refusal: Box::new(refusal), note: None });
                self.note_wait();
            }
            Err(NotHeld::NoTime | NotHeld::Full) => self.refused = Some(self.fail(&refusal)),
        }
    }

    fn give(&mut self, answer: Agreed) {
        let (approvals, prompt) = (self.service.approvals.clone(), self.prompt);
        self.answering =
            Some(Box::pin(async move { approvals.answer(&prompt, answer, Evidence::Client, "client").await }));
    }

    /// The next of the last events: a question that is open is withdrawn first.
    fn last(&mut self, refused: ClientEvent, why: &str) -> ClientEvent {
        match self.withdrawal(why) {
            Some(notice) => {
                self.refused = Some(refused);
                ClientEvent::Notice(notice)
            }
            None => refused,
        }
    }

    /// Withdraws a question that needs no answer any more.
    fn withdrawal(&mut self, why: &str) -> Option<Bytes> {
        self.turn = None;
        if let Some(question) = self.question.take() {
            return Some(question.withdrawal(why));
        }
        let knows_it = self.has_page() && self.request.client.revision.features().elicitation_ids;
        if !knows_it || self.page_id.is_empty() {
            return None;
        }
        let id = RawJson::string(&std::mem::take(&mut self.page_id));
        let params = RawJson::trusted(format!(r#"{{"elicitationId":{}}}"#, id.text()));
        Some(encode_notification("notifications/elicitation/complete", Some(&params)))
    }

    /// No answer came while the client waited.
    fn late(&mut self) -> ClientEvent {
        self.leave(Ended::Over);
        match &self.channel {
            Channel::Waiting(again) => {
                if let Some(seat) = self.seat.take() {
                    seat.carry();
                }
                self.request.metrics.count(self.request.labels.label, OutcomeLabel::InputRequired);
                ClientEvent::Done(Answer::ok(again.clone()))
            }
            // The approval stays open: whoever gives it, the same call made again finds the grant.
            Channel::Elsewhere { refusal, .. } => {
                let refusal = refusal.clone();
                self.fail(&refusal)
            }
            Channel::OnStream { .. } | Channel::Answered(_) => {
                // An answer may just have come; it counts for the next call then.
                self.service.approvals.unanswered(&self.prompt);
                self.refuse(Reason::Denied, "This call was not approved in time, so it was not made.")
            }
        }
    }

    fn conclude(&mut self, closed: Closed) -> Step {
        self.leave(match closed {
            Closed::Granted | Closed::Denied | Closed::Declined | Closed::Dismissed => Ended::Answered,
            Closed::TimedOut | Closed::Superseded => Ended::Over,
        });
        if self.request.client.access.is_withdrawn() {
            // Its approvals were closed with it.
            let failure = given_up(&self.request.client.access, Executed::No);
            return Step::Event(self.fail(&failure));
        }
        let text = match closed {
            // The decision finds its grant.
            Closed::Granted => return Step::Again,
            Closed::Denied => {
                "A person denied this call, so it was not made. The same call stays refused for 10 minutes. Do not work around \
                 this."
            }
            Closed::Declined => "The client declined this call.",
            Closed::Dismissed => {
                "The client closed the question about this call without an answer, so it was not made."
            }
            Closed::TimedOut => "This call was not approved in time, so it was not made.",
            Closed::Superseded => "The item of this call has changed meanwhile; make the call again.",
        };
        Step::Event(self.refuse(Reason::Denied, text))
    }

    fn refuse(&mut self, reason: Reason, text: &str) -> ClientEvent {
        self.fail(&Failure::new(reason, Executed::No, text))
    }

    fn fail(&mut self, failure: &Failure) -> ClientEvent {
        self.leave(Ended::Over);
        #[expect(clippy::wildcard_enum_match_arm, reason = "a call that awaits approval is refused for few reasons")]
        let outcome = match failure.reason {
            Reason::Denied => OutcomeLabel::Denied,
            Reason::AwaitingApproval => OutcomeLabel::AwaitingApproval,
            _ => OutcomeLabel::Busy,
        };
        self.request.metrics.count(self.request.labels.label, outcome);
        ClientEvent::Done(refused(failure, &self.request.labels, self.request.client.revision))
    }
}

/// Tells the client of a held call that it waits, if it wants to hear of progress.
fn progress_of(request: &Request) -> Option<Progress> {
    let token = request.meta.progress_token().ok().flatten()?;
    Some(Progress::new(token, request.client.revision))
}
