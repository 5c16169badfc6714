//! Approval of calls: the channel that asks, and the answer without one.
//!
//! | evidence, client | channel |
//! |---|---|
//! | L1 suffices, modern, has forms | `input_required` with the key `gw.consent`; the sealed state names the approval |
//! | L1 suffices, legacy, has forms | `elicitation/create` on the call's own stream; cancelled when another channel answered |
//! | has URL elicitation | the same two, with the approval's page. `accept` only means that the client opens the page: a legacy call waits `timeout` and closes its approval; a modern one waits 20 s and is asked again |
//! | anything else, or no console for the page | held for `hold`, then refused with `awaiting_approval`; the approval stays open. A legacy client that has forms gets one without fields that says where the approval can be given: declining refuses the call, other answers mean nothing |
//!
//! A person's denial, by the choice of our form, on the console or at a terminal, blocks the same
//! call for 10 minutes. A client that declines or cancels refuses this call alone. A form that is
//! accepted without a valid choice decides nothing: the call waits on.
//!
//! An answer without a choice that comes faster than a person can read
//! ([`unattended`](crate::policy::consent::unattended)) decides nothing either: its host has no
//! person. The call is held for the console and the terminal, and so are the later ones of that
//! session, pipe or connection for 10 minutes. A legacy client is asked beside them, in case
//! somebody is there after all.
//!
//! A modern client's repeated request is held likewise, while its person opens the page or where it brings no answer: the 20 s are
//! those of a client whose calls are not held. A call is refused at once where `hold` is zero, where its caller has `max-held` calls held or all have 256, in a batch
//! (its other answers would wait), by `headend call` and while the gateway shuts down.
//!
//! The console (L2) and the admin socket (L3, root and our own user) answer every approval of the process. Open
//! approvals are also rows of the table `prompts`, so the command line and a daemon can answer those of other
//! processes: the answer is a row, and the process that asked judges it.
//!
//! Each call has its own approval and its own form; the forms of one client come one after the other.
//!
//! Clients without a session, modern ones over HTTP, share one for each caller: a session grant of theirs lives until
//! the gateway stops, or a day.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::approval::{self, AnswerEffect, AnswerTiming, QuestionKind, elsewhere, form, judge, page};
use crate::engine::state::{Carried, StateScope};
use crate::gateway::answer::{Answer, refused};
use crate::gateway::decision::GoingOn;
use crate::gateway::prepared::{InputContext, Prepared};
use crate::gateway::service::Service;
use crate::gateway::waiting::approval::Asking;
use crate::gateway::waiting::channel::{Channel, Note, Request, Room};
use crate::gateway::waiting::client_call::{ClientCall, Handled};
use crate::gateway::waiting::held::Hold;
use crate::mcp::input::{InputRequest, input_required, is_accepted};
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::policy::consent::hold::NotHeld;
use crate::policy::consent::{Answer as Agreed, Asked, PromptId, Refused, Shown};
use crate::policy::{Action, Event, Evidence};
use crate::store::approvals::{Seat, Span};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::raw::{RawJson, RawObject};

/// How long a modern client may take to come back with an answer: its state lives no longer.
const ROUND: Duration = crate::engine::state::LIFE;
/// When a call may come back whose approval could not be kept.
const STORE_WAIT: Duration = Duration::from_secs(5);

/// Text for a model whose call waits for a person. No id, no command, no address: an agent with a shell could use them.
const AWAITING: &str = "This call was not made: it waits for a person's approval in headend. Stop here and tell the user that headend \
                        waits for their approval. Do not work around this. Once it is approved, make exactly the \
                        same call again.";

impl Service {
    /// Opens a prompt for a call, or goes on with the one that is open, through the best channel that the caller has.
    pub(super) fn ask(
        self: &Arc<Self>,
        params: &RawObject,
        prepared: Prepared<'_>,
        rule: &Arc<str>,
        need: Evidence,
    ) -> Handled {
        let Prepared { client, found, action, labels, outgoing, going_on, asks: offered, input, share, .. } = prepared;
        let asked = Asked::new(&action, rule, need);
        let entry = action.entry(Event::Prompt, Some(labels.call));
        let shown = Shown::new(&found.entry.exposed, action.said, action.arguments.as_ref())
            .described(found.entry.definition.string("description"))
            .asked_by(action.client.clone());
        let mut params = params.clone();
        params.remove("requestState");
        params.remove("inputResponses");
        let (meta, metrics) = (outgoing.meta, found.handle.metrics.clone());
        let request = Request { client: client.clone(), params, meta, labels, metrics };
        let timeout = self.snapshots.load().config.consent.timeout;
        let era = request.client.revision.era();
        // A form will do where the client's own word does; else the person answers on the approval's page.
        let is_page = !offered.form || need != Evidence::Client;
        let is_unattended = self.held.is_unattended(&request.host());
        let asked_at = going_on.prompt().and_then(|prompt| self.approvals.asked_at(prompt));
        let span = match (is_page, era) {
            _ if is_unattended => Span::Person(Duration::MAX),
            (false, Era::Legacy) => Span::Client,
            (false, Era::Modern) => Span::Person(ROUND),
            (true, _) => Span::Person(Duration::MAX),
        };
        let seat = match self.approvals.ask_for(asked, shown, span, going_on.prompt(), entry) {
            Ok(seat) => seat,
            Err(why) => return self.unasked(&request, &why),
        };
        let prompt = seat.prompt();
        let message = self.approvals.prompt(&prompt).map(|prompt| prompt.message()).unwrap_or_default();
        let url = self.page_of(&prompt);
        let question = match &url {
            _ if !is_page => form(&message, request.client.tag.is_some()),
            Some(url) if offered.url => page(&message, url),
            Some(_) | None => {
                let console = self.console.get().filter(|_| need <= Evidence::Page);
                // Forms of modern clients end their request, which would not be held then.
                let note = request.client.client_requests.clone().filter(|_| offered.form && era == Era::Legacy);
                let note = note.and_then(|client_requests| {
                    let question =
                        elsewhere(action.kind, &action.canonical, &action.upstream, console.map(String::as_str));
                    let question = question.for_revision(request.client.revision, String::new).ok()?;
                    Some(Note { client_requests, question, kind: QuestionKind::Notice })
                });
                return self.hold(request, seat, note);
            }
        };
        let kind = if is_page { QuestionKind::Page } else { QuestionKind::Form };
        let has_opened =
            matches!(&going_on, GoingOn::Consent { answer: Some(answer), .. } if is_page && is_accepted(answer));
        let channel = match era {
            Era::Legacy => {
                let question = question.for_revision(request.client.revision, || prompt.to_string()).ok();
                let way = request.client.client_requests.clone().zip(question);
                if is_unattended {
                    let note = way.map(|(client_requests, question)| Note { client_requests, question, kind });
                    return self.hold(request, seat, note);
                }
                way.map(|(client_requests, question)| Channel::OnStream { client_requests, question, kind })
            }
            Era::Modern => {
                let answer = match &going_on {
                    GoingOn::Consent { prompt: of, answer: Some(answer) } if *of == prompt => Some(answer),
                    GoingOn::Consent { .. } | GoingOn::Anew | GoingOn::Permitted(_) | GoingOn::Login(_) => None,
                };
                let waited = asked_at.map(|at| clock::since_1970().saturating_sub(at));
                let timing = AnswerTiming { waited, is_unattended };
                let effect = answer.map(|answer| self.hear(&request, kind, Some(answer), timing));
                let is_held = effect == Some(AnswerEffect::Unattended)
                    || (is_unattended && !matches!(effect, Some(AnswerEffect::Answer(_))));
                if is_held {
                    // A form would end the request, which is held instead.
                    seat.hand_over();
                    return self.hold(request, seat, None);
                }
                let again =
                    input.and_then(|input| self.consent_required(&action, labels.method, &input, &prompt, &question));
                match (going_on, again) {
                    (_, None) => None,
                    (GoingOn::Consent { prompt: of, .. }, Some(again)) if of == prompt => Some(match effect {
                        Some(AnswerEffect::Answer(answer)) => Channel::Answered(answer),
                        Some(AnswerEffect::Wait | AnswerEffect::Unattended) | None => Channel::Waiting(again),
                    }),
                    (
                        GoingOn::Consent { .. } | GoingOn::Anew | GoingOn::Permitted(_) | GoingOn::Login(_),
                        Some(again),
                    ) => {
                        seat.carry();
                        request.metrics.count(request.labels.label, OutcomeLabel::InputRequired);
                        return Handled::Answer(Answer::ok(again));
                    }
                }
            }
        };
        let channel = match channel {
            None => return self.hold(request, seat, None),
            Some(Channel::Waiting(again)) => match self.place(&request) {
                Ok(hold) => return self.asking(request, seat, Channel::Waiting(again), timeout, Room::Held(hold)),
                Err(NotHeld::NoTime) if has_opened => Channel::Waiting(again),
                Err(NotHeld::NoTime | NotHeld::Full) => {
                    seat.carry();
                    request.metrics.count(request.labels.label, OutcomeLabel::InputRequired);
                    return Handled::Answer(Answer::ok(again));
                }
            },
            Some(channel) => channel,
        };
        let Some(place) = self.admission.ask() else { return Handled::Overloaded };
        self.asking(request, seat, channel, timeout, Room::Asked((share, place)))
    }

    fn asking(
        self: &Arc<Self>,
        request: Request,
        seat: Seat,
        channel: Channel,
        patience: Duration,
        room: Room,
    ) -> Handled {
        let asking = Asking::new(Arc::clone(self), request, seat, channel, patience, room);
        Handled::Call(Box::new(ClientCall::Asking(Box::new(asking))))
    }

    /// Judges a client's answer to our question, and remembers whether a person is at its host.
    pub(crate) fn hear(
        &self,
        request: &Request,
        kind: QuestionKind,
        answer: Option<&RawJson>,
        timing: AnswerTiming,
    ) -> AnswerEffect {
        let effect = judge(kind, answer, timing);
        match effect {
            AnswerEffect::Unattended => self.held.set_unattended(request.host(), true),
            AnswerEffect::Answer(Agreed::Allow(_) | Agreed::Deny) if timing.is_unattended => {
                self.held.set_unattended(request.host(), false);
            }
            AnswerEffect::Answer(_) | AnswerEffect::Wait => {}
        }
        effect
    }

    /// Holds a call whose client cannot give the approval, or refuses it at once.
    fn hold(self: &Arc<Self>, request: Request, seat: Seat, note: Option<Note>) -> Handled {
        let refusal = self.awaiting(&seat.prompt());
        match self.place(&request) {
            Ok(hold) => {
                let channel = Channel::Elsewhere { refusal: Box::new(refusal), note };
                self.asking(request, seat, channel, Duration::ZERO, Room::Held(hold))
            }
            Err(NotHeld::NoTime | NotHeld::Full) => self.refuse(&request, &refusal, OutcomeLabel::AwaitingApproval),
        }
    }

    /// A place among the held calls.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn place(&self, request: &Request) -> Result<Hold, NotHeld> {
        let client = &request.client;
        if !client.can_wait || self.draining.is_cancelled() {
            return Err(NotHeld::NoTime);
        }
        let snapshot = self.snapshots.load();
        let (consent, arrived) = (&snapshot.config.consent, request.labels.arrived);
        self.held.hold(consent, request.holder(), client, arrived)
    }

    /// The result that asks a modern client our question. Its state names the prompt and is good for this very call.
    fn consent_required(
        &self,
        action: &Action,
        method: Method,
        input: &InputContext,
        prompt: &PromptId,
        question: &InputRequest,
    ) -> Option<RawJson> {
        let scope = StateScope { method, action, carrier: input.carrier };
        let (carried, now) = (Carried::Consent(prompt.bytes()), clock::since_1970());
        let sealed = self.keys.states.next(&scope, input.round, carried, now, clock::random())?;
        Some(input_required(std::iter::once((approval::KEY, question)), &sealed))
    }

    /// The refusal of a call whose client cannot be asked: its model is told to stop, and its program how a person can approve. The
    /// call can be made again then.
    pub(crate) fn awaiting(&self, prompt: &PromptId) -> Failure {
        let failure = Failure::new(Reason::AwaitingApproval, Executed::No, AWAITING);
        failure.approval(prompt.to_string(), self.page_of(prompt))
    }

    /// The approval's page, where the console is on.
    fn page_of(&self, prompt: &PromptId) -> Option<String> {
        self.console.get().map(|base| format!("{base}/approvals/{prompt}"))
    }

    /// Nobody is asked, so the answer is no.
    fn unasked(&self, request: &Request, why: &Refused) -> Handled {
        let failure = match why {
            Refused::Declined => Failure::new(
                Reason::Denied,
                Executed::No,
                "A person denied the same call in the last 10 minutes, so it is refused. Do not work around this.",
            ),
            Refused::Embargo { unanswered, until } => {
                let text = format!(
                    "The last {unanswered} approvals of this item for this client were declined or not answered, so its calls are \
                     refused for a while. Tell the user, who can end this in headend."
                );
                let wait = Duration::from_secs(until.saturating_sub(self.approvals.wall()));
                let failure = Failure::new(Reason::Denied, Executed::No, text).retry_after(wait);
                failure.counted([("unanswered-in-a-row", u64::from(*unanswered))])
            }
            Refused::Unanswered { unanswered, per_minute, retry } => {
                let text = format!(
                    "This call was not made: {unanswered} approvals of this client were not answered within the last \
                     minute. Stop here and tell the user that headend waits for their approval. Do not work around \
                     this."
                );
                let failure = Failure::new(Reason::AwaitingApproval, Executed::No, text).retry_after(*retry);
                failure.counted([("unanswered-in-a-minute", count(*unanswered)), ("per-minute", count(*per_minute))])
            }
            Refused::TooManyOpen { open, max_open, retry } => {
                let text = format!(
                    "This call was not made: {open} calls of this caller wait for a person's approval in headend already. \
                     Stop here and tell the user that headend waits for their approval. Do not work around this."
                );
                let failure = Failure::new(Reason::AwaitingApproval, Executed::No, text).retry_after(*retry);
                failure.counted([("open", count(*open)), ("max-open", count(*max_open))])
            }
            Refused::Full { retry } => {
                let text = "This call was not made: too many calls of all callers wait for a person's approval. Stop here and \
                            tell the user that headend waits for approvals.";
                Failure::new(Reason::AwaitingApproval, Executed::No, text).retry_after(*retry)
            }
            Refused::NotKept => {
                let text = "This call needs an approval, and none can be kept at the moment, so it was not made.";
                Failure::new(Reason::Unrecorded, Executed::No, text).retry_after(STORE_WAIT)
            }
        };
        let outcome = match why {
            Refused::Declined | Refused::Embargo { .. } => OutcomeLabel::Denied,
            Refused::Unanswered { .. } | Refused::TooManyOpen { .. } | Refused::Full { .. } => {
                OutcomeLabel::AwaitingApproval
            }
            Refused::NotKept => OutcomeLabel::Unrecorded,
        };
        self.refuse(request, &failure, outcome)
    }

    fn refuse(&self, request: &Request, failure: &Failure, outcome: OutcomeLabel) -> Handled {
        request.metrics.count(request.labels.label, outcome);
        Handled::Answer(refused(failure, &request.labels, request.client.revision))
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
