//! Answers to approvals, kept until their question is read. A log that is read backwards has the
//! answer first.

use std::collections::{HashMap, VecDeque};

use super::MAX_OPEN;
use crate::policy::chain::Line;
use crate::policy::evidence::Evidence;

/// The way in which an approval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A person agreed, over a channel with this evidence.
    Yes(Evidence),
    No,
    /// The approval timed out or was dismissed, or the log does not say how it ended.
    Unanswered,
}

/// Answers whose question was not read yet, by the id of the approval, each with its grant.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_prompt: HashMap<Box<str>, (Verdict, Option<Box<str>>)>,
    order: VecDeque<Box<str>>,
}

impl Answers {
    /// Remembers the answer in a record, and forgets the oldest beyond [`MAX_OPEN`]. Returns the
    /// verdict.
    pub(super) fn add(&mut self, line: &Line<'_>) -> Verdict {
        let evidence = line.evidence.as_deref().and_then(|word| word.parse::<Evidence>().ok());
        let verdict = match (line.result.as_deref(), evidence, &line.by) {
            // Without a person the approval ended by a grant that was given for another one.
            (Some("granted"), Some(evidence), Some(_)) => Verdict::Yes(evidence),
            (Some("denied" | "declined"), ..) => Verdict::No,
            _ => Verdict::Unanswered,
        };
        let Some(prompt) = line.prompt.as_deref() else { return verdict };
        let grant = line.grant.as_deref().map(Box::from);
        if self.by_prompt.insert(Box::from(prompt), (verdict, grant)).is_none() {
            self.order.push_back(Box::from(prompt));
        }
        while self.order.len() > MAX_OPEN {
            self.order.pop_front().and_then(|oldest| self.by_prompt.remove(&oldest));
        }
        verdict
    }

    /// Removes and returns the answer to the question in a record, with the grant that it made.
    pub(super) fn take(&mut self, line: &Line<'_>) -> (Verdict, Option<Box<str>>) {
        let prompt = line.prompt.as_deref().unwrap_or_default();
        let Some(answer) = self.by_prompt.remove(prompt) else { return (Verdict::Unanswered, None) };
        // Approvals are open for minutes, so this one is among the newest.
        if let Some(at) = self.order.iter().rposition(|known| **known == *prompt) {
            self.order.remove(at);
        }
        answer
    }
}

/// Numbers of approvals by their evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Approvals {
    /// Approvals by the client's word.
    pub client: u64,
    /// Approvals on the console.
    pub page: u64,
    /// Approvals by the operator's command.
    pub operator: u64,
}

impl Approvals {
    pub(super) const fn add(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Client => self.client += 1,
            Evidence::Page => self.page += 1,
            Evidence::Operator => self.operator += 1,
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
