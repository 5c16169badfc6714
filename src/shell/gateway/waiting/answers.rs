//! Handles answers to a waiting call's approval question, and the closing of its approval.

use std::time::Instant;

use super::approval::PendingApproval;
use super::channel::{ClientChannel, WaitSlots};
use super::{AwaitedAct, LATE, WaitOutcome, WaitingCall};
use crate::base::clock;
use crate::engine::failure::{ExecutionDoubt, FailureReason};
use crate::engine::question::approval::{AnswerEffect, AnswerTiming, ApprovalQuestionKind};
use crate::gateway::call::{ClientEvent, access_failure};
use crate::policy::consent::hold::HoldEnd;
use crate::policy::consent::{AnswerError, ApprovalEnd};
use crate::wire::json::raw::RawJson;

/// Text for a model whose client's yes could not be stored.
const UNTAKEN: &str = "The approval of this call could not be taken, so it was not made.";
/// Text for a model whose call was not approved in time.
const TIMED_OUT: &str = "This call was not approved in time, so it was not made.";

impl WaitingCall {
    /// Judges the client's answer to a question of that kind: begins to store a yes or no, waits
    /// on, or hands the call over if its host has no person. `sent` is the time of the question.
    pub fn approval_answered(&mut self, kind: ApprovalQuestionKind, answer: Option<&RawJson>, sent: Option<Instant>) {
        let is_unattended = self.service.held.is_unattended(&self.request.host());
        let waited = sent.map(|sent| clock::now().duration_since(sent));
        let timing = AnswerTiming { waited, is_unattended };
        match (self.service.hear(&self.request, kind, answer, timing), &mut self.awaited) {
            (AnswerEffect::Answer(answer), AwaitedAct::Approval(approval)) => approval.answer(&self.service, answer),
            (AnswerEffect::Wait, _) if !is_unattended => {}
            (AnswerEffect::Wait | AnswerEffect::Unattended | AnswerEffect::Answer(_), _) => self.hand_over(),
        }
    }

    /// Holds the call for the console and the terminal, since no person is at its host; refuses it
    /// if it may not be held. Does nothing if it is held already.
    fn hand_over(&mut self) {
        let AwaitedAct::Approval(approval) = &self.awaited else { return };
        if self.is_held() {
            return;
        }
        if let Some(seat) = &approval.seat {
            seat.hand_over();
        }
        match self.service.hold(&self.request) {
            Ok(hold) => {
                self.place = Some(WaitSlots::Held(hold));
                (self.is_told, self.channel, self.page_id) = (true, ClientChannel::Elsewhere(None), None);
                self.note_wait();
            }
            Err(_) => {
                let refusal = self.service.awaiting(&approval.approval);
                self.outcome = Some(self.refusal(&refusal));
            }
        }
    }

    /// Takes the store's result for the client's answer: ends the wait, or waits on if the answer
    /// did not suffice.
    pub fn answer_taken(&mut self, closed: Result<ApprovalEnd, AnswerError>) -> Option<ClientEvent> {
        let AwaitedAct::Approval(approval) = &mut self.awaited else { return None };
        approval.answering = None;
        match closed {
            Ok(closed) => self.conclude(closed),
            // Another answer came first and counts, or this one does not suffice.
            Err(AnswerError::Unknown) => None,
            Err(why) => {
                self.service.approvals.unanswered(&approval.approval);
                // Logged only: reasons name commands and files, which a model must not read.
                tracing::warn!(why = %why, "an approval did not count");
                self.outcome = Some(self.refuse(FailureReason::Denied, UNTAKEN));
                None
            }
        }
    }

    /// Returns the outcome of a call whose approval did not come in time. The approval stays open
    /// if the person acts elsewhere, and is closed otherwise.
    pub(super) fn unapproved(&mut self) -> WaitOutcome {
        let AwaitedAct::Approval(PendingApproval { approval, .. }) = &self.awaited else {
            return WaitOutcome::DecideAgain;
        };
        if let ClientChannel::Elsewhere(_) = &self.channel {
            // The approval stays open: once given, the same call made again finds the grant.
            let refusal = self.service.awaiting(approval);
            return self.refusal(&refusal);
        }
        // An answer may just have come; then it counts for the next call.
        self.service.approvals.unanswered(approval);
        self.refuse(FailureReason::Denied, TIMED_OUT)
    }

    /// Ends the wait for a closed approval: the call is decided again if granted, else refused with
    /// the reason.
    pub fn conclude(&mut self, closed: ApprovalEnd) -> Option<ClientEvent> {
        self.leave(match closed {
            ApprovalEnd::Granted | ApprovalEnd::Denied | ApprovalEnd::Declined | ApprovalEnd::Dismissed => {
                HoldEnd::Answered
            }
            ApprovalEnd::TimedOut | ApprovalEnd::Superseded => HoldEnd::Over,
        });
        let text = match closed {
            // The next decision finds the grant.
            ApprovalEnd::Granted => "",
            ApprovalEnd::Denied => {
                "A person denied this call, so it was not made. The same call stays refused for 10 minutes. Do not work around \
                 this."
            }
            ApprovalEnd::Declined => "The client declined this call.",
            ApprovalEnd::Dismissed => {
                "The client closed the approval of this call without an answer, so it was not made."
            }
            ApprovalEnd::TimedOut => TIMED_OUT,
            ApprovalEnd::Superseded => "The item of this call has changed meanwhile; make the call again.",
        };
        let access = &self.request.client.access;
        let outcome = if access.is_withdrawn() {
            // The approvals of a withdrawn access are closed with it.
            let failure = access_failure(access, ExecutionDoubt::No);
            self.refusal(&failure)
        } else if closed == ApprovalEnd::Granted {
            WaitOutcome::DecideAgain
        } else {
            self.refuse(FailureReason::Denied, text)
        };
        self.end(outcome, if closed == ApprovalEnd::TimedOut { LATE } else { "answered elsewhere" })
    }
}
