//! Habits: which calls people were asked about, and what they said.

use std::collections::HashMap;
use std::sync::Arc;

use super::answers::{Answers, Approvals, Verdict};
use super::item::Item;
use super::shape::Shapes;
use super::{MAX_ITEMS, MAX_PAIRS};
use crate::mcp::claims::Claims;
use crate::policy::action::Facts;
use crate::policy::chain::{Kept, Line};
use crate::policy::kind::Kind;

/// Bytes of approved arguments that are remembered.
const MAX_BYTES: usize = 32 << 20;

/// Calls that people were asked about, by item and caller. Records come the latest first.
#[derive(Debug, Default)]
pub struct Habits {
    pub(super) items: HashMap<Item, Seen>,
    answers: Answers,
    pairs: usize,
    bytes: usize,
    /// Questions of all items.
    pub questions: u64,
    /// Records of items and callers that found no place in the tables.
    pub beyond: u64,
}

/// One item in the log.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) upstream: Arc<str>,
    /// Calls that a rule or a person denied.
    pub(super) denied: u64,
    /// Its server or the operator called it destructive.
    pub(super) is_destructive: bool,
    /// Those of the latest record.
    pub(super) facts: Option<Facts>,
    /// The claims that all records agree on, where an allow rule may go by all of them.
    pub(super) claims: Option<Claims>,
    pub(super) callers: HashMap<Arc<str>, Habit>,
}

/// One caller and one item.
#[derive(Debug, Default)]
pub(super) struct Habit {
    pub(super) yes: Approvals,
    /// Of the approvals whose arguments the log has.
    pub(super) shapes: Shapes,
}

impl Seen {
    fn learn(&mut self, facts: Facts) {
        let Facts { annotations, claims } = facts;
        self.is_destructive |= annotations.known_destructive || claims.hints.destructive == Some(true);
        if self.facts.is_none() {
            (self.facts, self.claims) = (Some(facts), Some(claims).filter(|claims| claims.may_open));
        }
        self.claims = self.claims.filter(|before| *before == claims);
    }
}

impl Habits {
    /// Takes a record.
    pub fn read(&mut self, line: &Line<'_>) {
        let verdict = if line.event == "answer" { Some(self.answers.add(line)) } else { None };
        let is_question = line.event == "prompt";
        if !(is_question || verdict.is_some() || line.event == "decision") {
            return;
        }
        self.questions += u64::from(is_question);
        let answer = if is_question { self.answers.take(line).0 } else { Verdict::Unanswered };
        let (Some(item), facts) = (Item::of(line), line.facts()) else { return };
        let is_full = self.items.len() >= MAX_ITEMS;
        // An item that finds no place is never suggested, so nothing about it can be missed.
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
        seen.denied += u64::from(is_denied || verdict == Some(Verdict::No));
        let (Verdict::Yes(evidence), Some(caller)) = (answer, line.caller.as_deref()) else { return };
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
        let is_tool = line.kind.as_deref() == Some(Kind::Tool.into_str());
        match line.arguments() {
            _ if line.kind.as_deref() == Some(Kind::Resource.into_str()) => {}
            // A record of an earlier release says nothing about arguments.
            Kept::None if is_tool && facts.is_none() => {}
            Kept::None => self.bytes += habit.shapes.add(None, evidence, has_room),
            Kept::Whole(text) => self.bytes += habit.shapes.add(Some(text), evidence, has_room),
            Kept::Not => {}
        }
    }
}
