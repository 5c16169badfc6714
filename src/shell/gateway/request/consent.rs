//! Opens approvals for calls, chooses the channel that asks, and words the refusal if no channel
//! can.
//!
//! The channel depends on the evidence that the rule needs and on the client:
//!
//! * L1 suffices, modern client with forms: `input_required` with the key `gw.consent`; the sealed
//!   state names the approval.
//! * L1 suffices, legacy client with forms: `elicitation/create` on the call's own stream;
//!   cancelled when another channel answered.
//! * Client with URL elicitation: the same two, with the approval's page. `accept` only means that
//!   the client opens the page: a legacy call waits `timeout` and closes its approval; a modern one
//!   waits 20 s and is asked again.
//! * Any other client, or no console for the page: held for `hold`, then refused with
//!   `awaiting_approval`; the approval stays open. A legacy client that has forms gets one without
//!   fields that says where the approval can be given: declining refuses the call, other answers
//!   mean nothing.
//!
//! A person's denial, by the choice of our form, on the console or at a terminal, blocks the same
//! call for 10 minutes. A client that declines or cancels refuses this call alone. A form that is
//! accepted without a valid choice decides nothing: the call waits on.
//!
//! An answer without a choice that comes faster than a person can read
//! ([`unattended`](crate::policy::consent::unattended)) decides nothing either: its host has no
//! person. The call is held for the console and the terminal, and so are later calls of that
//! session, pipe or connection for 10 minutes. A legacy client is still asked, in case a person is
//! there after all.
//!
//! A modern client's repeated request is held likewise while its person opens the page, or if it
//! brings no answer; the 20 s apply to clients whose calls are not held. A call is refused at once
//! if `hold` is zero, if its caller has `max-held` calls held or all callers have 256, in a batch
//! (its other answers would wait), by `headend call`, and while the gateway shuts down.
//!
//! The console (L2) and the admin socket (L3, root and our own user) answer every approval of the
//! process. Open approvals are also rows of the table `approvals`, so the command line and a daemon
//! can answer those of other processes: the answer is a row, and the process that asked judges it.
//!
//! Each call has its own approval and its own form; the forms of one client come one after the
//! other.
//!
//! Clients without a session (modern ones over HTTP) share one per caller: a session grant of
//! theirs lives until the gateway stops, for a day at most.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::question::approval::{
    self, AnswerEffect, AnswerTiming, ApprovalQuestionKind, form, held_call_form, judge, page,
};
use crate::engine::sealed::state::{StatePayload, StateScope};
use crate::gateway::answer::refusal_answer;
use crate::gateway::client::quota::QuotaSlot;
use crate::gateway::decision::CallContinuation;
use crate::gateway::decision::found::STORE_WAIT;
use crate::gateway::decision::prepared::{InputContext, PreparedCall};
use crate::gateway::held::HoldSlot;
use crate::gateway::service::Service;
use crate::gateway::waiting::approval::{PendingApproval, PendingListing};
use crate::gateway::waiting::channel::{ClientChannel, OriginalRequest, OwnQuestion, WaitSlots};
use crate::gateway::waiting::client_call::{ClientCall, RequestOutcome};
use crate::gateway::waiting::{AwaitedAct, WaitingCall};
use crate::mcp::asking::input::{InputRequest, input_required, is_accepted};
use crate::mcp::version::Era;
use crate::policy::consent::hold::HoldRefusal;
use crate::policy::consent::{ApprovalId, ApprovalRefusal, ApprovalSubject, CallDetails, PersonAnswer as Agreed};
use crate::policy::{ApprovalEvidence, AuditEvent, PolicyAction};
use crate::store::approvals::{ApprovalLife, ApprovalWait};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::json::raw::{RawJson, RawObject};

/// How long a modern client may take to come back with an answer: the life of its sealed state.
const ROUND: Duration = crate::engine::sealed::state::LIFE;

/// Text for a model whose call waits for a person. It has no id, command or address, since an agent
/// with a shell could use them.
const AWAITING: &str = "This call was not made: it waits for a person's approval in headend. Stop here and tell the user that headend \
                        waits for their approval. Do not work around this. Once it is approved, make exactly the \
                        same call again.";

/// A call whose approval is open, with the slot that it holds among its caller's calls.
struct CallToApprove {
    request: OriginalRequest,
    seat: ApprovalWait,
    share: QuotaSlot,
}

/// The gateway's question about an approval to a modern client, sent as a result.
struct ResultQuestion {
    question: InputRequest,
    kind: ApprovalQuestionKind,
    /// The timing of an answer that arrives now.
    timing: AnswerTiming,
}

impl CallToApprove {
    /// Answers the request with our question; the approval stays open for the client's repeated
    /// request.
    fn ask_again(self, result: RawJson) -> RequestOutcome {
        self.seat.carry();
        RequestOutcome::Answer(self.request.ask_again(result))
    }
}

impl Service {
    /// Opens an approval for a call, or continues its open one, and asks through the best channel
    /// of the client. Refuses the call if no approval may be opened.
    pub(super) fn ask(
        self: &Arc<Self>,
        params: &RawObject,
        prepared: PreparedCall<'_>,
        rule: &Arc<str>,
        need: ApprovalEvidence,
    ) -> RequestOutcome {
        let PreparedCall { client, found, action, labels, outgoing, going_on, asks: offered, input, share, .. } =
            prepared;
        let asked = ApprovalSubject::new(&action, rule, need);
        let entry = action.entry(AuditEvent::Prompt, Some(labels.call));
        let shown = CallDetails::new(&found.entry.exposed, action.said, action.arguments.as_ref())
            .described(found.entry.definition.string("description"))
            .asked_by(action.client.clone())
            .called_by(action.is_bare.then_some(&*found.entry.original));
        let request = OriginalRequest::new(client, params, outgoing.meta, labels, &found.handle.metrics);
        let era = client.revision.era();
        // A form suffices if the client's own word does; otherwise the person answers on the
        // approval's page.
        let is_form = offered.form && need == ApprovalEvidence::Client;
        let is_unattended = self.held.is_unattended(&request.host());
        let asked_at = going_on.approval().and_then(|approval| self.approvals.asked_at(approval));
        let span = match (is_form && !is_unattended, era) {
            (true, Era::Legacy) => ApprovalLife::Client,
            (true, Era::Modern) => ApprovalLife::Person(ROUND),
            (false, _) => ApprovalLife::Person(Duration::MAX),
        };
        let seat = match self.approvals.ask_for(asked, shown, span, going_on.approval(), entry) {
            Ok(seat) => seat,
            Err(why) => return self.unasked(&request, &why),
        };
        if !seat.is_listed() {
            return self.wait_until_listed(request, seat, share, going_on);
        }
        let approval = seat.approval();
        let message = self.approvals.approval(&approval).map(|approval| approval.message()).unwrap_or_default();
        let url = self.page_of(&approval).filter(|_| offered.url);
        let call = CallToApprove { request, seat, share };
        let (question, kind) = match url {
            _ if is_form => (form(&message, client.tag.is_some()), ApprovalQuestionKind::Form),
            Some(url) => (page(&message, &url), ApprovalQuestionKind::Page),
            None => {
                // A modern client's form would end its request, which could then not be held.
                let notice = (offered.form && era == Era::Legacy).then(|| {
                    let console = self.console.get().filter(|_| need <= ApprovalEvidence::Page);
                    held_call_form(action.kind, &action.canonical, &action.upstream, console.map(String::as_str))
                });
                let notice =
                    notice.and_then(|form| OwnQuestion::new(client, form, ApprovalQuestionKind::Notice, String::new()));
                return self.hold_for_approval(call, notice);
            }
        };
        if era == Era::Legacy {
            return match OwnQuestion::new(client, question, kind, approval.to_string()) {
                Some(question) if !is_unattended => self.wait_asked(call, ClientChannel::OnStream(question)),
                question => self.hold_for_approval(call, question),
            };
        }
        let waited = asked_at.map(|at| clock::since_1970().saturating_sub(at));
        let question = ResultQuestion { question, kind, timing: AnswerTiming { waited, is_unattended } };
        self.ask_by_result(call, &question, going_on.consent_to(&approval), &action, input.as_deref())
    }

    /// Asks a modern client by the result of its request, or judges the answer that its repeated
    /// request brings (`comeback`).
    fn ask_by_result(
        self: &Arc<Self>,
        call: CallToApprove,
        asked: &ResultQuestion,
        comeback: Option<Option<&RawJson>>,
        action: &PolicyAction,
        input: Option<&InputContext>,
    ) -> RequestOutcome {
        let ResultQuestion { question, kind, timing } = asked;
        let effect = comeback.flatten().map(|answer| self.hear(&call.request, *kind, Some(answer), *timing));
        let is_decided = matches!(effect, Some(AnswerEffect::Answer(_)));
        if effect == Some(AnswerEffect::Unattended) || (timing.is_unattended && !is_decided) {
            // Held instead: a form would end the request.
            call.seat.hand_over();
            return self.hold_for_approval(call, None);
        }
        let carried = StatePayload::Consent(call.seat.approval().bytes());
        let again = self.input_result(action, &call.request, input, carried, (approval::KEY, question));
        match (again, comeback, effect) {
            (None, ..) => self.hold_for_approval(call, None),
            (Some(again), None, _) => call.ask_again(again),
            (Some(_), Some(_), Some(AnswerEffect::Answer(answer))) => {
                self.wait_asked(call, ClientChannel::Answered(answer))
            }
            (Some(again), Some(answer), _) => {
                let has_opened = *kind == ApprovalQuestionKind::Page && answer.is_some_and(is_accepted);
                match self.hold(&call.request) {
                    Ok(hold) => self.wait_for_approval(call, ClientChannel::Repeated(again), hold),
                    Err(HoldRefusal::NoTime) if has_opened => self.wait_asked(call, ClientChannel::Repeated(again)),
                    Err(HoldRefusal::NoTime | HoldRefusal::Full) => call.ask_again(again),
                }
            }
        }
    }

    /// Makes a call wait for its approval while its client is asked; refuses it if too many calls
    /// wait.
    fn wait_asked(self: &Arc<Self>, call: CallToApprove, channel: ClientChannel) -> RequestOutcome {
        let Some(asking) = self.admission.ask() else { return RequestOutcome::Overloaded };
        let approval = AwaitedAct::Approval(PendingApproval::new(self, call.seat));
        self.wait(call.request, approval, channel, WaitSlots::Asked { _share: call.share, _asking: asking })
    }

    /// Makes a call wait until its approval is in the store of the cluster, and has the id of which
    /// people are told. It is decided again then.
    fn wait_until_listed(
        self: &Arc<Self>,
        request: OriginalRequest,
        seat: ApprovalWait,
        share: QuotaSlot,
        going_on: CallContinuation,
    ) -> RequestOutcome {
        let Some(asking) = self.admission.ask() else { return RequestOutcome::Overloaded };
        let slots = WaitSlots::Asked { _share: share, _asking: asking };
        let listing = AwaitedAct::Listing(PendingListing::new(seat, going_on));
        self.wait(request, listing, ClientChannel::Elsewhere(None), slots)
    }

    /// Makes a held call wait for its approval.
    fn wait_for_approval(
        self: &Arc<Self>,
        call: CallToApprove,
        channel: ClientChannel,
        hold: HoldSlot,
    ) -> RequestOutcome {
        let approval = AwaitedAct::Approval(PendingApproval::new(self, call.seat));
        self.wait(call.request, approval, channel, WaitSlots::Held(hold))
    }

    /// Holds a call whose client cannot give the approval, or refuses it at once if it may not be
    /// held.
    fn hold_for_approval(self: &Arc<Self>, call: CallToApprove, question: Option<OwnQuestion>) -> RequestOutcome {
        match self.hold(&call.request) {
            Ok(hold) => self.wait_for_approval(call, ClientChannel::Elsewhere(question), hold),
            Err(HoldRefusal::NoTime | HoldRefusal::Full) => {
                let refusal = self.awaiting(&call.seat.approval());
                self.refuse(&call.request, &refusal, OutcomeLabel::AwaitingApproval)
            }
        }
    }

    /// Returns the call as one that waits for a person.
    pub fn wait(
        self: &Arc<Self>,
        request: OriginalRequest,
        awaited: AwaitedAct,
        channel: ClientChannel,
        place: WaitSlots,
    ) -> RequestOutcome {
        let waiting = WaitingCall::new(Arc::clone(self), request, awaited, channel, place);
        RequestOutcome::Call(Box::new(ClientCall::Waiting(Box::new(waiting))))
    }

    /// Judges a client's answer to the gateway's question, and records whether a person is at its
    /// host.
    pub fn hear(
        &self,
        request: &OriginalRequest,
        kind: ApprovalQuestionKind,
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

    /// Takes a place among the held calls.
    ///
    /// # Errors
    /// Why the call is not held.
    pub fn hold(&self, request: &OriginalRequest) -> Result<HoldSlot, HoldRefusal> {
        let client = &request.client;
        if !client.can_wait || self.draining.is_cancelled() {
            return Err(HoldRefusal::NoTime);
        }
        let snapshot = self.snapshots.load();
        let (consent, arrived) = (&snapshot.config.consent, request.labels.arrived);
        self.held.hold(consent, request.holder(), client, arrived)
    }

    /// Returns the result that asks a modern client the gateway's question, with a sealed state for
    /// this very call, which permits nothing by itself; `None` if the client cannot be asked, or
    /// not again.
    pub fn input_result(
        &self,
        action: &PolicyAction,
        request: &OriginalRequest,
        input: Option<&InputContext>,
        carried: StatePayload,
        question: (&str, &InputRequest),
    ) -> Option<RawJson> {
        let input = input?;
        let scope = StateScope { method: request.labels.method, action, carrier: input.carrier };
        let sealed = self.keys.seal_state(&scope, input.round, carried)?;
        Some(input_required(std::iter::once(question), &sealed))
    }

    /// Returns the refusal of a call whose client cannot be asked. It tells the model to stop and
    /// the client's program where a person can approve; the call can be made again then.
    pub fn awaiting(&self, approval: &ApprovalId) -> CallFailure {
        let failure = CallFailure::new(FailureReason::AwaitingApproval, ExecutionDoubt::No, AWAITING);
        failure.approval(approval.to_string(), self.page_of(approval))
    }

    /// Returns the URL of the approval's page, if the console is on.
    fn page_of(&self, approval: &ApprovalId) -> Option<String> {
        self.console.get().map(|base| format!("{base}/approvals/{approval}"))
    }

    /// Refuses a call for which no approval is opened, with the reason.
    fn unasked(&self, request: &OriginalRequest, why: &ApprovalRefusal) -> RequestOutcome {
        let failure = match why {
            ApprovalRefusal::Declined => CallFailure::new(
                FailureReason::Denied,
                ExecutionDoubt::No,
                "A person denied the same call in the last 10 minutes, so it is refused. Do not work around this.",
            ),
            ApprovalRefusal::Embargo { unanswered, until } => {
                let text = format!(
                    "The last {unanswered} approvals of this item for this client were declined or not answered, so its calls are \
                     refused for a while. Tell the user, who can end this in headend."
                );
                let wait = Duration::from_secs(until.saturating_sub(self.approvals.wall()));
                let failure = CallFailure::new(FailureReason::Denied, ExecutionDoubt::No, text).retry_after(wait);
                failure.counted([("unanswered-in-a-row", u64::from(*unanswered))])
            }
            ApprovalRefusal::Unanswered { unanswered, per_minute, retry } => {
                let text = format!(
                    "This call was not made: {unanswered} approvals of this client were not answered within the last \
                     minute. Stop here and tell the user that headend waits for their approval. Do not work around \
                     this."
                );
                let failure =
                    CallFailure::new(FailureReason::AwaitingApproval, ExecutionDoubt::No, text).retry_after(*retry);
                failure.counted([("unanswered-in-a-minute", count(*unanswered)), ("per-minute", count(*per_minute))])
            }
            ApprovalRefusal::TooManyOpen { open, max_open, retry } => {
                let text = format!(
                    "This call was not made: {open} calls of this caller wait for a person's approval in headend already. \
                     Stop here and tell the user that headend waits for their approval. Do not work around this."
                );
                let failure =
                    CallFailure::new(FailureReason::AwaitingApproval, ExecutionDoubt::No, text).retry_after(*retry);
                failure.counted([("open", count(*open)), ("max-open", count(*max_open))])
            }
            ApprovalRefusal::Full { retry } => {
                let text = "This call was not made: too many calls of all callers wait for a person's approval. Stop here and \
                            tell the user that headend waits for approvals.";
                CallFailure::new(FailureReason::AwaitingApproval, ExecutionDoubt::No, text).retry_after(*retry)
            }
            ApprovalRefusal::NotKept => self.unkept_approval(),
        };
        let outcome = match why {
            ApprovalRefusal::Declined | ApprovalRefusal::Embargo { .. } => OutcomeLabel::Denied,
            ApprovalRefusal::Unanswered { .. } | ApprovalRefusal::TooManyOpen { .. } | ApprovalRefusal::Full { .. } => {
                OutcomeLabel::AwaitingApproval
            }
            ApprovalRefusal::NotKept => OutcomeLabel::Unrecorded,
        };
        self.refuse(request, &failure, outcome)
    }

    /// Returns the refusal of a call whose approval cannot be kept.
    pub(crate) fn unkept_approval(&self) -> CallFailure {
        let text = "This call needs an approval, and none can be kept at the moment, so it was not made.";
        CallFailure::new(self.approvals.store_failure(), ExecutionDoubt::No, text).retry_after(STORE_WAIT)
    }

    /// Counts the refusal and answers the request with it.
    fn refuse(&self, request: &OriginalRequest, failure: &CallFailure, outcome: OutcomeLabel) -> RequestOutcome {
        request.metrics.count(request.labels.label, outcome);
        RequestOutcome::Answer(refusal_answer(failure, &request.labels, request.client.revision))
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
