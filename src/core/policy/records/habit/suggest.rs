//! Suggested rules: drafts made of habits, joined, and checked against the operator's policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ENOUGH;
use super::answers::ApprovalCounts;
use super::find::{CallerHabit, Habits, ItemHabit};
use super::item::HabitItem;
use super::shape::ShapeConditions;
use crate::mcp::definition::annotations::Hints;
use crate::mcp::definition::claims::Claims;
use crate::policy::action::ToolFacts;
use crate::policy::compiled::Policy;
use crate::policy::consent::{FolderScope, ReservedFolders};
use crate::policy::effect::RuleEffect;
use crate::policy::kind::ActionKind;
use crate::policy::rules::arguments::outline::{is_command, is_named};
use crate::policy::rules::arguments::{ArgumentSpec, MatcherSpec};
use crate::policy::rules::rule::RuleSpec;
use crate::policy::spec::PolicySpec;
use crate::wire::digest::Digest;

/// Most rules that are suggested, the most useful first.
const MAX_RULES: usize = 100;
/// Most names that one rule lists.
const MAX_NAMES: usize = 200;
/// Prefix of the id of each suggested rule.
const ID: &str = "habit";
/// Regular expression for a path without segments that begin with a dot.
const NO_DOTS: &str = "^(/[^/.][^/]*)+/?$";
/// Words in the names of tools that remove things. Such a tool gets no rule for overwriting.
const REMOVES: &[&str] = &[
    "delete", "remove", "erase", "unlink", "rm", "rmdir", "drop", "purge", "prune", "reset", "empty", "trash", "wipe",
    "clear", "truncate", "destroy", "kill", "clean",
];
/// Most characters of an item's name in the id of its rule.
const ID_NAME: usize = 32;

/// The present state of an item, beside the log.
#[derive(Clone, Debug, Default)]
pub struct PresentItem {
    pub facts: ToolFacts,
    /// The arguments that the item's definition names, if it names all of them.
    pub arguments: Option<Vec<String>>,
}

/// The present configuration and store, as far as suggestions depend on them.
pub trait PresentItems {
    /// Whether a rule may name the upstream.
    fn has(&self, upstream: &str) -> bool;
    /// Returns the item as its server offered it last.
    fn known(&self, kind: ActionKind, name: &str) -> Option<PresentItem>;
    /// Returns the folders that no rule for a tool that may overwrite covers.
    fn places(&self) -> ReservedFolders {
        ReservedFolders::default()
    }
}

/// A rule that would have saved questions.
#[derive(Clone, Debug)]
pub struct Suggestion {
    pub rule: RuleSpec,
    /// The approvals that it was made from.
    pub yes: ApprovalCounts,
    /// Clauses about calls that the rule covers beside the approved ones.
    pub also: Vec<String>,
    /// True if the log has no arguments of the approved calls.
    pub is_blind: bool,
    /// True if the server or the operator calls the tool destructive; the rule then covers calls
    /// below folders alone.
    pub overwrites: bool,
}

/// The reason why an approved item has no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum OmissionReason {
    Destructive,
    Denied,
    /// Neither the log nor the store has the claims of the server.
    Unknown,
    /// The name of the item or its caller has a meaning in patterns.
    Name,
    /// The upstream is not in the configuration.
    Gone,
    /// There are fewer approvals than [`ENOUGH`], or as many only with different arguments.
    Few,
    /// A rule of the configuration decides first, or allows the item already.
    Ruled,
    /// There are more rules than are shown.
    Many,
}

/// An approved item that has no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmittedItem {
    pub why: OmissionReason,
    pub name: Arc<str>,
    pub approvals: u64,
}

/// Suggested rules, and approved items without one.
#[derive(Clone, Debug, Default)]
pub struct Suggestions {
    pub rules: Vec<Suggestion>,
    pub left_out: Vec<OmittedItem>,
}

/// The key under which drafts become one rule: kind, names, claims and conditions.
type JoinKey = (&'static str, BTreeSet<String>, String, String);

/// A draft of a rule, at first for one item and one caller.
#[derive(Clone, Debug)]
struct RuleDraft {
    kind: ActionKind,
    upstream: Arc<str>,
    items: BTreeSet<String>,
    callers: BTreeSet<String>,
    claims: Hints,
    taken: ShapeConditions,
    is_blind: bool,
    overwrites: bool,
}

impl Habits {
    /// Returns the rules that these habits suggest. They are not checked against the policy yet:
    /// see [`Suggestions::fit`].
    pub fn suggest(&self, catalogue: &dyn PresentItems) -> Suggestions {
        let mut out = Suggestions::default();
        let mut drafts = Vec::new();
        for (item, seen) in &self.items {
            let known = catalogue.known(item.kind, &item.name);
            let beside = beside_destruction(item, seen, known.as_ref(), catalogue);
            let why = if is_destructive(seen, known.as_ref()) { Some(OmissionReason::Destructive) } else { beside };
            let may_overwrite =
                why == Some(OmissionReason::Destructive) && beside.is_none() && may_overwrite(item, seen);
            for (caller, habit) in &seen.callers {
                let is_open = why.is_none() || may_overwrite;
                let mut found = if is_open { drafts_of(item, caller, seen, habit, known.as_ref()) } else { Vec::new() };
                if may_overwrite {
                    found.retain_mut(|draft| draft.keep_below(&catalogue.places()));
                }
                if found.is_empty() {
                    let exact = Policy::is_exact(caller);
                    let why = why.unwrap_or(if exact { OmissionReason::Few } else { OmissionReason::Name });
                    out.left_out.push(OmittedItem { why, name: Arc::clone(&item.name), approvals: habit.yes.all() });
                }
                drafts.extend(found);
            }
        }
        // First join the callers of one item, then the items of the same callers. Each time the
        // joined rule covers what its drafts covered, and no more.
        let drafts = join_drafts(drafts, |draft| (draft.items.clone(), conditions(draft)));
        let drafts = join_drafts(drafts, |draft| {
            // Clauses about arguments belong to one item.
            let is_plain = draft.taken.conditions.is_empty() && draft.taken.also.is_empty();
            let own = if is_plain { String::new() } else { format!("{:?}", draft.items) };
            (draft.callers.clone(), format!("{} {own} {}", draft.upstream, conditions(draft)))
        });
        let mut rules: Vec<Suggestion> = drafts.into_iter().map(RuleDraft::rule).collect();
        let size = |rule: &Suggestion| rule.yes.all();
        rules.sort_by(|one, other| (size(other), &one.rule.id).cmp(&(size(one), &other.rule.id)));
        for rule in rules.split_off(rules.len().min(MAX_RULES)) {
            out.left_out.push(rule.left_out(OmissionReason::Many));
        }
        out.rules = rules;
        out.left_out
            .sort_by(|one, other| (one.why, other.approvals, &one.name).cmp(&(other.why, one.approvals, &other.name)));
        out
    }
}

/// Whether the server or the operator called an item destructive, in the log or now.
fn is_destructive(seen: &ItemHabit, known: Option<&PresentItem>) -> bool {
    let destroys = |known: &PresentItem| {
        let ToolFacts { annotations, claims } = known.facts;
        annotations.known_destructive || claims.hints.destructive == Some(true)
    };
    seen.is_destructive || known.is_some_and(destroys)
}

/// Whether a destructive item is a tool that may overwrite: its name neither removes nor runs
/// anything.
fn may_overwrite(item: &HabitItem, seen: &ItemHabit) -> bool {
    let tool = item.name.strip_prefix(&*seen.upstream).unwrap_or(&item.name);
    item.kind == ActionKind::Tool && !is_named(tool, REMOVES) && !is_command(tool)
}

/// Returns why an item has no rule for any caller, apart from being destructive.
fn beside_destruction(
    item: &HabitItem,
    seen: &ItemHabit,
    known: Option<&PresentItem>,
    catalogue: &dyn PresentItems,
) -> Option<OmissionReason> {
    if seen.denied > 0 {
        Some(OmissionReason::Denied)
    } else if !catalogue.has(&seen.upstream) {
        Some(OmissionReason::Gone)
    } else if !Policy::is_exact(&item.name) {
        Some(OmissionReason::Name)
    } else if item.kind == ActionKind::Tool && seen.facts.is_none() && known.is_none() {
        Some(OmissionReason::Unknown)
    } else {
        None
    }
}

/// Returns the draft rules of one caller's habit.
fn drafts_of(
    item: &HabitItem,
    caller: &str,
    seen: &ItemHabit,
    habit: &CallerHabit,
    known: Option<&PresentItem>,
) -> Vec<RuleDraft> {
    if habit.yes.all() < ENOUGH || !Policy::is_exact(caller) {
        return Vec::new();
    }
    let draft = |taken: ShapeConditions, is_blind| RuleDraft {
        kind: item.kind,
        upstream: Arc::clone(&seen.upstream),
        items: BTreeSet::from([item.name.to_string()]),
        callers: BTreeSet::from([caller.to_owned()]),
        claims: narrowing(seen.claims.as_ref(), known),
        taken,
        is_blind,
        overwrites: false,
    };
    if item.kind == ActionKind::Resource {
        return vec![draft(ShapeConditions { yes: habit.yes, ..ShapeConditions::default() }, false)];
    }
    if habit.shapes.is_empty() {
        return vec![draft(ShapeConditions { yes: habit.yes, ..ShapeConditions::default() }, true)];
    }
    let schema = known.and_then(|known| known.arguments.as_deref());
    habit.shapes.taken(ENOUGH, schema).into_iter().map(|taken| draft(taken, false)).collect()
}

/// Returns a claim on which all records and the present definition agree. It ends the rule when the
/// server claims something else.
fn narrowing(claims: Option<&Claims>, known: Option<&PresentItem>) -> Hints {
    let now = known.map(|known| known.facts.claims);
    let Some(claims) = claims.filter(|claims| now.is_none_or(|now| now == **claims)) else { return Hints::default() };
    match (claims.hints.read_only, claims.hints.destructive) {
        (Some(true), _) => Hints { read_only: Some(true), ..Hints::default() },
        (_, Some(false)) => Hints { destructive: Some(false), ..Hints::default() },
        _ => Hints::default(),
    }
}

/// Returns the pointer and the folder of a `path-under` condition.
fn folder(spec: &ArgumentSpec) -> Option<(String, String)> {
    if let MatcherSpec::PathUnder(folder) = &spec.matcher { Some((spec.pointer.clone(), folder.clone())) } else { None }
}

/// Returns a text that is equal for drafts with equal claims and conditions.
fn conditions(draft: &RuleDraft) -> String {
    format!("{:?} {:?} {}", draft.claims, draft.taken.conditions, draft.is_blind)
}

/// Joins the drafts that have the same key.
fn join_drafts(drafts: Vec<RuleDraft>, key: impl Fn(&RuleDraft) -> (BTreeSet<String>, String)) -> Vec<RuleDraft> {
    let mut out: BTreeMap<JoinKey, RuleDraft> = BTreeMap::new();
    for draft in drafts {
        let (names, same) = key(&draft);
        let mut key = (draft.kind.into_str(), names, same, String::new());
        // A rule that would be too long is split.
        while out.get(&key).is_some_and(|to| to.items.len() + to.callers.len() >= MAX_NAMES) {
            key.3.push('+');
        }
        match out.get_mut(&key) {
            Some(to) => {
                to.callers.extend(draft.callers);
                to.items.extend(draft.items);
                to.taken.yes.join(draft.taken.yes);
                for also in draft.taken.also {
                    if !to.taken.also.contains(&also) {
                        to.taken.also.push(also);
                    }
                }
            }
            None => drop(out.insert(key, draft)),
        }
    }
    out.into_values().collect()
}

impl RuleDraft {
    /// Restricts the draft of a destructive tool to paths below its folders, without segments that
    /// begin with a dot. Returns false if the tool can have no such rule.
    fn keep_below(&mut self, places: &ReservedFolders) -> bool {
        let folders: Vec<(String, String)> = self.taken.conditions.iter().filter_map(folder).collect();
        let no_dots = |(pointer, _): &(String, String)| ArgumentSpec {
            pointer: pointer.clone(),
            matcher: MatcherSpec::Regex(NO_DOTS.to_owned()),
        };
        self.taken.conditions.extend(folders.iter().map(no_dots));
        self.overwrites = true;
        self.taken.is_below && folders.iter().all(|(_, folder)| FolderScope::is_folder(folder, places))
    }

    /// Makes the suggestion, with a rule whose id depends on its content.
    fn rule(self) -> Suggestion {
        let mut rule = RuleSpec {
            id: String::new(),
            effect: RuleEffect::Allow,
            upstreams: Vec::new(),
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            callers: self.callers.into_iter().collect(),
            groups: Vec::new(),
            profiles: Vec::new(),
            kinds: Vec::new(),
            annotations: Hints::default(),
            claims: self.claims,
            arguments: self.taken.conditions,
            unless: Vec::new(),
            min_evidence: None,
        };
        let first = self.items.first().cloned().unwrap_or_default();
        let names = self.items.into_iter().collect();
        match self.kind {
            ActionKind::Prompt => rule.prompts = names,
            ActionKind::Resource => rule.resources = names,
            ActionKind::Tool
            | ActionKind::Completion
            | ActionKind::Subscription
            | ActionKind::Task
            | ActionKind::Sampling
            | ActionKind::Elicitation
            | ActionKind::Launch => rule.tools = names,
        }
        // A habit has the same id every day, so that a pasted rule is not pasted twice.
        let digest = Digest::of(format!("{rule:?}").as_bytes()).hex();
        let plain = first.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' });
        let name: String = plain.take(ID_NAME).collect();
        rule.id = format!("{ID}-{name}-{}", digest.get(..6).unwrap_or_default());
        let (yes, also) = (self.taken.yes, self.taken.also);
        Suggestion { rule, yes, also, is_blind: self.is_blind, overwrites: self.overwrites }
    }
}

impl Suggestion {
    /// Returns the entry for a suggestion that is dropped.
    pub fn left_out(&self, why: OmissionReason) -> OmittedItem {
        let RuleSpec { tools, prompts, resources, .. } = &self.rule;
        let name = tools.iter().chain(prompts).chain(resources).next().map(String::as_str).unwrap_or_default();
        OmittedItem { why, name: Arc::from(name), approvals: self.yes.all() }
    }
}

impl Suggestions {
    /// Removes the rules that the policy would refuse, such as a rule that never decides because of
    /// a rule of the operator. Returns the policy with the remaining rules.
    pub fn fit(&mut self, policy: &PolicySpec) -> PolicySpec {
        loop {
            let mut with = policy.clone();
            with.rules.extend(self.rules.iter().map(|one| one.rule.clone()));
            let Err(problems) = Policy::build(&with) else { return with };
            let own = |index: usize| {
                let path = format!("policy.rules[{}]", policy.rules.len() + index);
                problems.iter().any(|problem| {
                    problem.path.strip_prefix(&path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                })
            };
            let before = self.rules.len();
            for (index, rule) in std::mem::take(&mut self.rules).into_iter().enumerate() {
                if own(index) {
                    self.left_out.push(rule.left_out(OmissionReason::Ruled))
                } else {
                    self.rules.push(rule)
                }
            }
            if self.rules.len() == before {
                // The policy itself has a problem: nothing is suggested.
                self.rules.clear();
                return policy.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests;
