//! Replays of a log: decides its calls again under other rules, and counts what changes.
//!
//! Questions to people are replayed from their own records, all other calls from the records of
//! their decisions. A record that lacks facts that the rules need cannot be decided and counts as
//! asked: a record of an earlier release, a record without arguments if a rule tests them, a URI
//! known only by its template. Limits and grants are not replayed: a call that was allowed by a
//! grant and would be asked about now still counts as allowed by the grant.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::answers::{ApprovalVerdict, PendingAnswers};
use super::item::{HabitItem, kind_of};
use super::{MAX_ITEMS, MAX_OPEN};
use crate::mcp::definition::claims::Claims;
use crate::policy::action::PolicyAction;
use crate::policy::compiled::{ItemRules, Policy};
use crate::policy::decide::{Decision, decide, needs_arguments};
use crate::policy::effect::AGAIN_RULE;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::kind::ActionKind;
use crate::policy::limiter::Limiter;
use crate::policy::records::chain::{AuditLine, LoggedArguments};
use crate::policy::rules::problems::PolicyProblem;
use crate::policy::spec::PolicySpec;
use crate::wire::json::raw::RawJson;

/// Most items whose rules are kept at hand.
const MAX_RULES: usize = 4096;

/// Numbers of calls by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Questions that people were asked.
    pub asked: u64,
    /// Calls that a rule allowed.
    pub allowed: u64,
    /// Calls that an earlier approval allowed.
    pub granted: u64,
    pub denied: u64,
}

/// The changes that the other rules make for one item, as numbers of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemChange {
    /// Calls that are allowed now, and were asked about or denied.
    pub opened: u64,
    /// Opened calls that no person agreed to.
    pub unapproved: u64,
    /// Opened calls that a person or a rule denied.
    pub denied_before: u64,
    /// Calls that are asked about now, and were allowed.
    pub asked: u64,
    /// Calls that are denied now, and were not.
    pub closed: u64,
    /// Calls that were allowed before, by a rule or a person.
    pub allowed_before: u64,
    /// True if the server or the operator called the item destructive.
    pub is_destructive: bool,
}

/// A log that is replayed under other rules. Records are read from the latest backwards.
#[derive(Debug)]
pub struct PolicyReplay {
    policy: Policy,
    limiter: Limiter,
    rules: HashMap<(ActionKind, Box<str>), Arc<ItemRules>>,
    answers: PendingAnswers,
    uses: GrantUses,
    pub before: CallCounts,
    pub after: CallCounts,
    /// Number of records that cannot be decided. They are among those that are asked about.
    pub undecided: u64,
    /// Questions that each rule would have saved, and how many of them no person agreed to.
    pub saved: HashMap<Arc<str>, (u64, u64)>,
    items: HashMap<HabitItem, ItemChange>,
    /// Number of records of items for which the table has no room. Their calls are in the counts.
    pub beyond: u64,
}

/// Grants with a recorded use whose answer was not read yet. Beyond a bound the oldest is
/// forgotten.
#[derive(Debug, Default)]
struct GrantUses {
    grants: HashSet<Box<str>>,
    order: VecDeque<Box<str>>,
}

impl GrantUses {
    fn add(&mut self, grant: &str) {
        if self.grants.insert(Box::from(grant)) {
            self.order.push_back(Box::from(grant));
        }
        while self.order.len() > MAX_OPEN {
            if let Some(oldest) = self.order.pop_front() {
                self.grants.remove(&oldest);
            }
        }
    }

    fn take(&mut self, grant: &str) -> bool {
        self.grants.remove(grant)
    }
}

/// The decision about a recorded call under the other rules.
#[derive(Debug, PartialEq, Eq)]
enum ReplayedDecision {
    Allow(Arc<str>),
    Ask,
    Deny,
    Undecided,
}

impl PolicyReplay {
    /// Compiles the rules without their limits.
    ///
    /// # Errors
    /// The rules have a problem.
    pub fn new(spec: &PolicySpec) -> Result<Self, Vec<PolicyProblem>> {
        let policy = Policy::build(&PolicySpec { limits: Vec::new(), ..spec.clone() })?;
        let limiter = Limiter::new(&policy);
        Ok(Self {
            policy,
            limiter,
            rules: HashMap::new(),
            answers: PendingAnswers::default(),
            uses: GrantUses::default(),
            before: CallCounts::default(),
            after: CallCounts::default(),
            undecided: 0,
            saved: HashMap::new(),
            items: HashMap::new(),
            beyond: 0,
        })
    }

    /// Adds a record. Records must come from the latest backwards.
    pub fn read(&mut self, line: &AuditLine<'_>) {
        if line.event == "answer" {
            self.answers.add(line);
            return;
        }
        let Some(kind) = kind_of(line).filter(|kind| kind.can_ask()) else { return };
        match (&*line.event, line.result.as_deref(), line.rule.as_deref()) {
            (_, _, Some(AGAIN_RULE)) => {}
            ("prompt", _, _) => {
                let (verdict, grant) = self.answers.take(line);
                let came_back = grant.is_some_and(|grant| self.uses.take(&grant));
                self.question(kind, line, verdict, came_back);
            }
            ("decision", Some("allow" | "limit"), _) => self.allowed(kind, line),
            ("decision", Some("deny"), _) => self.denied(kind, line),
            // The question has a record of its own.
            _ => {}
        }
    }

    /// Counts a question. With `came_back`, the call was decided once more after its approval and
    /// that record is counted already; both are one call.
    fn question(&mut self, kind: ActionKind, line: &AuditLine<'_>, verdict: ApprovalVerdict, came_back: bool) {
        self.before.asked += 1;
        self.before.granted = self.before.granted.saturating_sub(u64::from(came_back));
        let is_approved = matches!(verdict, ApprovalVerdict::Yes(_));
        match self.judge(kind, line) {
            ReplayedDecision::Allow(rule) => {
                self.after.allowed += u64::from(!came_back);
                let saved = self.saved.entry(rule).or_default();
                *saved = (saved.0 + 1, saved.1 + u64::from(!is_approved));
                self.change(line, |change| {
                    change.opened += 1;
                    change.unapproved += u64::from(!is_approved);
                    change.denied_before += u64::from(verdict == ApprovalVerdict::No);
                });
            }
            ReplayedDecision::Ask | ReplayedDecision::Undecided => {
                self.after.asked += 1;
                self.after.granted = self.after.granted.saturating_sub(u64::from(came_back));
            }
            ReplayedDecision::Deny => {
                self.after.denied += u64::from(!came_back);
                self.change(line, |change| change.closed += u64::from(!came_back));
            }
        }
        self.change(line, |change| change.allowed_before += u64::from(is_approved));
    }

    /// Counts a call that was allowed.
    fn allowed(&mut self, kind: ActionKind, line: &AuditLine<'_>) {
        let is_granted = line.grant.is_some();
        if let Some(grant) = &line.grant {
            self.uses.add(grant);
        }
        self.before.granted += u64::from(is_granted);
        self.before.allowed += u64::from(!is_granted);
        match self.judge(kind, line) {
            ReplayedDecision::Allow(_) => self.after.allowed += 1,
            ReplayedDecision::Ask | ReplayedDecision::Undecided if is_granted => self.after.granted += 1,
            ReplayedDecision::Ask | ReplayedDecision::Undecided => {
                self.after.asked += 1;
                self.change(line, |change| change.asked += 1);
            }
            ReplayedDecision::Deny => {
                self.after.denied += 1;
                self.change(line, |change| change.closed += 1);
            }
        }
        self.change(line, |change| change.allowed_before += 1);
    }

    /// Counts a call that was denied.
    fn denied(&mut self, kind: ActionKind, line: &AuditLine<'_>) {
        self.before.denied += 1;
        match self.judge(kind, line) {
            ReplayedDecision::Allow(_) => {
                self.after.allowed += 1;
                self.change(line, |change| {
                    change.opened += 1;
                    change.unapproved += 1;
                    change.denied_before += 1;
                });
            }
            ReplayedDecision::Ask | ReplayedDecision::Undecided => self.after.asked += 1,
            ReplayedDecision::Deny => self.after.denied += 1,
        }
    }

    /// Decides a recorded call under the other rules, and counts it if it is undecided.
    fn judge(&mut self, kind: ActionKind, line: &AuditLine<'_>) -> ReplayedDecision {
        let now = self.decided(kind, line);
        self.undecided += u64::from(now == ReplayedDecision::Undecided);
        now
    }

    /// Decides a recorded call under the other rules, without grants and limits. A record that
    /// lacks facts that the rules need is undecided.
    fn decided(&mut self, kind: ActionKind, line: &AuditLine<'_>) -> ReplayedDecision {
        let (Some(caller), Some(upstream), Some(item)) =
            (line.caller.as_deref(), line.upstream.as_deref(), line.item.as_deref())
        else {
            return ReplayedDecision::Undecided;
        };
        let facts = line.facts();
        // A template stands for URIs that the record does not have.
        if (kind == ActionKind::Tool && facts.is_none()) || (kind == ActionKind::Resource && item.contains('{')) {
            return ReplayedDecision::Undecided;
        }
        let facts = facts.unwrap_or_default();
        let arguments = match line.arguments() {
            _ if kind == ActionKind::Resource => None,
            LoggedArguments::None => None,
            LoggedArguments::Whole(text) => Some(RawJson::trusted(text.to_owned())),
            // No condition is sure about this text.
            LoggedArguments::Not => Some(RawJson::trusted("")),
        };
        let is_unknown = arguments.as_ref().is_some_and(|raw| raw.bytes().is_empty());
        let action = PolicyAction {
            kind,
            profile: line.profile.as_deref().map(Arc::from),
            annotations: facts.annotations,
            claims: facts.claims,
            arguments,
            ..PolicyAction::stand_in(caller, upstream, item)
        };
        let rules = self.rules_of(kind, upstream, item);
        if is_unknown && needs_arguments(&self.policy, &rules, &action) {
            return ReplayedDecision::Undecided;
        }
        let nobody = |_: &Arc<str>, _: ApprovalEvidence| None;
        match decide(&self.policy, &rules, &action, &nobody, &self.limiter, Duration::ZERO) {
            Decision::Allow(permit) => ReplayedDecision::Allow(Arc::clone(permit.rule())),
            Decision::Ask { .. } => ReplayedDecision::Ask,
            Decision::Deny { .. } | Decision::Scope { .. } => ReplayedDecision::Deny,
            Decision::Limit { .. } => ReplayedDecision::Undecided,
        }
    }

    /// Returns the rules of an item, from the cache if it has them.
    fn rules_of(&mut self, kind: ActionKind, upstream: &str, item: &str) -> Arc<ItemRules> {
        if self.rules.len() >= MAX_RULES {
            self.rules.clear();
        }
        let made = self.rules.entry((kind, Box::from(item)));
        Arc::clone(made.or_insert_with(|| Arc::new(self.policy.item_rules(kind, upstream, item))))
    }

    /// Updates the changes of the record's item, or counts the record if the table is full.
    fn change(&mut self, line: &AuditLine<'_>, add: impl FnOnce(&mut ItemChange)) {
        let Some(item) = HabitItem::of(line) else { return };
        if self.items.len() >= MAX_ITEMS && !self.items.contains_key(&item) {
            self.beyond += 1;
            return;
        }
        let change = self.items.entry(item).or_default();
        let destroys = |claims: &Claims| claims.hints.destructive == Some(true);
        let facts = line.facts();
        change.is_destructive |=
            facts.is_some_and(|facts| facts.annotations.known_destructive || destroys(&facts.claims));
        add(change);
    }

    /// Returns the items whose calls change, the largest change first: kind, name and change.
    pub fn changes(&self) -> Vec<(ActionKind, Arc<str>, ItemChange)> {
        let changed = self.items.iter().filter(|(_, change)| change.opened + change.asked + change.closed > 0);
        let mut all: Vec<_> =
            changed.map(|(item, change)| (item.kind, Arc::clone(&item.name), change.clone())).collect();
        let size = |change: &ItemChange| change.opened + change.asked + change.closed;
        all.sort_by(|one, other| (size(&other.2), &one.1).cmp(&(size(&one.2), &other.1)));
        all
    }

    /// Returns true if a record of the item was read.
    pub fn has(&self, kind: ActionKind, name: &str) -> bool {
        self.items.contains_key(&HabitItem { kind, name: Arc::from(name) })
    }

    /// Returns the other rules.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }
}
