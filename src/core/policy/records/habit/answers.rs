//! Answers to approvals, kept until their question is read. A log that is read backwards has the
//! answer first.

use std::collections::{HashMap, VecDeque};

use super::MAX_OPEN;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::records::chain::AuditLine;

/// The way in which an approval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// A person agreed, over a channel with this evidence.
    Yes(ApprovalEvidence),
    No,
    /// The approval timed out or was dismissed, or the log does not say how it ended.
    Unanswered,
}

/// Answers whose question was not read yet, by the id of the approval, each with its grant.
#[derive(Debug, Default)]
pub(super) struct PendingAnswers {
    by_approval: HashMap<Box<str>, (ApprovalVerdict, Option<Box<str>>)>,
    order: VecDeque<Box<str>>,
}

impl PendingAnswers {
    /// Remembers the answer in a record, and forgets the oldest beyond [`MAX_OPEN`]. Returns the
    /// verdict.
    pub(super) fn add(&mut self, line: &AuditLine<'_>) -> ApprovalVerdict {
        let evidence = line.evidence.as_deref().and_then(|word| word.parse::<ApprovalEvidence>().ok());
        let verdict = match (line.result.as_deref(), evidence, &line.by) {
            // Without a person the approval ended by a grant that was given for another one.
            (Some("granted"), Some(evidence), Some(_)) => ApprovalVerdict::Yes(evidence),
            (Some("denied" | "declined"), ..) => ApprovalVerdict::No,
            _ => ApprovalVerdict::Unanswered,
        };
        let Some(approval) = line.approval.as_deref() else { return verdict };
        let grant = line.grant.as_deref().map(Box::from);
        if self.by_approval.insert(Box::from(approval), (verdict, grant)).is_none() {
            self.order.push_back(Box::from(approval));
        }
        while self.order.len() > MAX_OPEN {
            self.order.pop_front().and_then(|oldest| self.by_approval.remove(&oldest));
        }
        verdict
    }

    /// Removes and returns the answer to the question in a record, with the grant that it made.
    pub(super) fn take(&mut self, line: &AuditLine<'_>) -> (ApprovalVerdict, Option<Box<str>>) {
        let approval = line.approval.as_deref().unwrap_or_default();
        let Some(answer) = self.by_approval.remove(approval) else { return (ApprovalVerdict::Unanswered, None) };
        // Approvals are open for minutes, so this one is among the newest.
        if let Some(at) = self.order.iter().rposition(|known| **known == *approval) {
            self.order.remove(at);
        }
        answer
    }
}

/// Numbers of approvals by their evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalCounts {
    /// Approvals by the client's word.
    pub client: u64,
    /// Approvals on the console.
    pub page: u64,
    /// Approvals by the operator's command.
    pub operator: u64,
}

impl ApprovalCounts {
    pub(super) const fn add(&mut self, evidence: ApprovalEvidence) {
        match evidence {
            ApprovalEvidence::Client => self.client += 1,
            ApprovalEvidence::Page => self.page += 1,
            ApprovalEvidence::Operator => self.operator += 1,
        }
    }

    pub(super) const fn join(&mut self, more: Self) {
        self.client += more.client;
        self.page += more.page;
        self.operator += more.operator;
    }

    pub const fn all(&self) -> u64 {
        self.client + self.page + self.operator
    }
}
