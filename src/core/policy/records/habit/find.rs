//! Habits: the calls that people were asked about, and their answers, read from the audit log.

use std::collections::HashMap;
use std::sync::Arc;

use super::answers::{ApprovalCounts, ApprovalVerdict, PendingAnswers};
use super::item::HabitItem;
use super::shape::ArgumentShapes;
use super::{MAX_ITEMS, MAX_PAIRS};
use crate::mcp::definition::claims::Claims;
use crate::policy::action::ToolFacts;
use crate::policy::kind::ActionKind;
use crate::policy::records::chain::{AuditLine, LoggedArguments};

/// Most bytes of approved arguments that are remembered.
const MAX_BYTES: usize = 32 << 20;

/// The calls that people were asked about, by item and caller. Records are read from the latest
/// backwards.
#[derive(Debug, Default)]
pub struct Habits {
    pub(super) items: HashMap<HabitItem, ItemHabit>,
    answers: PendingAnswers,
    pairs: usize,
    bytes: usize,
    /// Number of questions about all items.
    pub questions: u64,
    /// Number of records of items and callers for which the tables have no room.
    pub beyond: u64,
}

/// The records of one item.
#[derive(Debug, Default)]
pub(super) struct ItemHabit {
    pub(super) upstream: Arc<str>,
    /// Number of calls that a rule or a person denied.
    pub(super) denied: u64,
    /// Whether its server or the operator called it destructive in any record.
    pub(super) is_destructive: bool,
    /// The facts in the latest record.
    pub(super) facts: Option<ToolFacts>,
    /// The claims, if all records agree on them and an allow rule may go by them.
    pub(super) claims: Option<Claims>,
    pub(super) callers: HashMap<Arc<str>, CallerHabit>,
}

/// The approvals of one item by one caller.
#[derive(Debug, Default)]
pub(super) struct CallerHabit {
    pub(super) yes: ApprovalCounts,
    /// Approved arguments, as far as the log has them.
    pub(super) shapes: ArgumentShapes,
}

impl ItemHabit {
    /// Adds the facts of a record.
    fn learn(&mut self, facts: ToolFacts) {
        let ToolFacts { annotations, claims } = facts;
        self.is_destructive |= annotations.known_destructive || claims.hints.destructive == Some(true);
        if self.facts.is_none() {
            (self.facts, self.claims) = (Some(facts), Some(claims).filter(|claims| claims.may_open));
        }
        self.claims = self.claims.filter(|before| *before == claims);
    }
}

impl Habits {
    /// Adds a record. Records must come from the latest backwards.
    pub fn read(&mut self, line: &AuditLine<'_>) {
        let verdict = if line.event == "answer" { Some(self.answers.add(line)) } else { None };
        let is_question = line.event == "prompt";
        if !(is_question || verdict.is_some() || line.event == "decision") {
            return;
        }
        self.questions += u64::from(is_question);
        let answer = if is_question { self.answers.take(line).0 } else { ApprovalVerdict::Unanswered };
        let (Some(item), facts) = (HabitItem::of(line), line.facts()) else { return };
        let is_full = self.items.len() >= MAX_ITEMS;
        // An item without room is never suggested, so its records are not needed.
        let Some(seen) = (if is_full { self.items.get_mut(&item) } else { Some(self.items.entry(item).or_default()) })
        else {
            self.beyond += 1;
            return;
        };
        if let Some(upstream) = line.upstream.as_deref().filter(|upstream| *seen.upstream != **upstream) {
            seen.upstream = Arc::from(upstream);
        }
        facts.into_iter().for_each(|facts| seen.learn(facts));
        let is_denied = line.event == "decision" && line.result.as_deref() == Some("deny");
        seen.denied += u64::from(is_denied || verdict == Some(ApprovalVerdict::No));
        let (ApprovalVerdict::Yes(evidence), Some(caller)) = (answer, line.caller.as_deref()) else { return };
        if !seen.callers.contains_key(caller) {
            if self.pairs >= MAX_PAIRS {
                self.beyond += 1;
                return;
            }
            self.pairs += 1;
        }
        let habit = seen.callers.entry(Arc::from(caller)).or_default();
        habit.yes.add(evidence);
        let has_room = self.bytes < MAX_BYTES;
        let is_tool = line.kind.as_deref() == Some(ActionKind::Tool.into_str());
        match line.arguments() {
            _ if line.kind.as_deref() == Some(ActionKind::Resource.into_str()) => {}
            // A record of an earlier release does not tell whether the call had arguments.
            LoggedArguments::None if is_tool && facts.is_none() => {}
            LoggedArguments::None => self.bytes += habit.shapes.add(None, evidence, has_room),
            LoggedArguments::Whole(text) => self.bytes += habit.shapes.add(Some(text), evidence, has_room),
            LoggedArguments::Not => {}
        }
    }
}
