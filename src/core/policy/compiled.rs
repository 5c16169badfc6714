//! The compiled policy, and the rules that can match one item.

use std::sync::Arc;

use super::effect::{AGAIN_RULE, DEFAULT_RULE, DOUBT_RULE, RuleEffect};
use super::kind::ActionKind;
use super::limit::Limit;
use super::lint;
use super::spec::PolicySpec;
use crate::policy::rules::pattern::{NamePattern, is_special};
use crate::policy::rules::problems::{PolicyProblem, PolicyProblems};
use crate::policy::rules::rule::{MatchedItem, PatternField, Rule, ScopeSpec};
use crate::policy::rules::truth::Truth;

/// Proof that an [`ItemRules`] or a [`Limiter`](super::limiter::Limiter) was made for a certain
/// [`Policy`]: the address of an allocation that all three keep alive.
#[derive(Clone, Debug)]
pub(super) struct PolicyStamp(Arc<()>);

impl PolicyStamp {
    /// Whether both stamps are of the same policy.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Compiled rules and limits. Immutable; clones count as the same policy.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) stamp: PolicyStamp,
    pub(super) default: RuleEffect,
    pub(super) default_id: Arc<str>,
    pub(super) doubt_id: Arc<str>,
    pub(super) again_id: Arc<str>,
    pub(super) rules: Vec<Arc<Rule>>,
    pub(super) scopes: Vec<Arc<ScopeRule>>,
    pub(super) limits: Vec<Arc<Limit>>,
}

impl Policy {
    /// Checks and compiles a policy.
    ///
    /// # Errors
    /// All problems at once. A policy with a problem is not used in part, since leaving out a deny
    /// rule would allow calls.
    pub fn build(spec: &PolicySpec) -> Result<Self, Vec<PolicyProblem>> {
        let mut problems = PolicyProblems::default();
        let policy = Self::compile(spec, &mut problems);
        if problems.0.is_empty() {
            lint::check(spec, &policy.rules, &mut problems);
        }
        if problems.0.is_empty() { Ok(policy) } else { Err(problems.0) }
    }

    /// Compiles all parts without problems and adds the problems of the others to `problems`.
    pub(super) fn compile(spec: &PolicySpec, problems: &mut PolicyProblems) -> Self {
        let rules = spec.rules.iter().enumerate();
        let limits = spec.limits.iter().enumerate();
        problems.check_ids("policy.rules", spec.rules.iter().map(|rule| rule.id.as_str()));
        problems.check_ids("policy.limits", spec.limits.iter().map(|limit| limit.id.as_str()));
        Self {
            stamp: PolicyStamp(Arc::new(())),
            default: spec.default,
            default_id: Arc::from(DEFAULT_RULE),
            doubt_id: Arc::from(DOUBT_RULE),
            again_id: Arc::from(AGAIN_RULE),
            rules: rules
                .map(|(i, rule)| Arc::new(Rule::compile(rule, &format!("policy.rules[{i}]"), problems)))
                .collect(),
            scopes: spec.scopes.iter().map(|one| Arc::new(ScopeRule::compile(one, problems))).collect(),
            limits: limits.filter_map(|(i, limit)| Limit::compile(limit, i, problems).map(Arc::new)).collect(),
        }
    }

    /// Finds the rules and limits that can match an item, so that a call runs no globs over names.
    ///
    /// `canonical` is the item's canonical name: `<upstream>__<original>` for tools and prompts,
    /// `<upstream>+<uri>` for resources. A completion, subscription or task has the name of its
    /// item; an action on a whole upstream has the upstream's name (see [`ActionKind`]). If the
    /// name does not belong to `upstream`, every action on the item is denied. A URI that is not in
    /// the catalog (it matched a template, or came as a link) needs `item_rules` of its own.
    pub fn item_rules(&self, kind: ActionKind, upstream: &str, canonical: &str) -> ItemRules {
        let mut item = ItemRules {
            stamp: self.stamp.clone(),
            kind,
            upstream: Box::from(upstream),
            canonical: Box::from(canonical),
            sound: false,
            deny: Vec::new(),
            ask: Vec::new(),
            allow: Vec::new(),
            scopes: Vec::new(),
            limits: Vec::new(),
        };
        let Some(subject) = MatchedItem::new(kind, upstream, canonical) else {
            return item;
        };
        item.sound = true;
        for rule in &self.rules {
            let truth = rule.matches(&subject);
            let list = match rule.effect {
                RuleEffect::Deny if truth != Truth::No => &mut item.deny,
                RuleEffect::Ask if truth != Truth::No => &mut item.ask,
                RuleEffect::Allow if truth == Truth::Yes => &mut item.allow,
                RuleEffect::Deny | RuleEffect::Ask | RuleEffect::Allow => continue,
            };
            list.push(Arc::clone(rule));
        }
        // Rules without conditions on arguments come first.
        for list in [&mut item.deny, &mut item.ask, &mut item.allow] {
            list.sort_by_key(|rule| rule.conditions.is_some());
        }
        let scopes = self.scopes.iter().filter(|scope| scope.items.matches(&subject) != Truth::No);
        item.scopes = scopes.cloned().collect();
        let limits = self.limits.iter().enumerate();
        let limits = limits.filter(|(_, limit)| limit.target.matches(&subject) != Truth::No);
        item.limits = limits.map(|(index, limit)| (index, Arc::clone(limit))).collect();
        item
    }

    /// Whether the policy can never allow a call: the default denies and there are only deny rules.
    /// For a warning of `check`.
    pub fn denies_all(&self) -> bool {
        self.default == RuleEffect::Deny && self.rules.iter().all(|rule| rule.effect == RuleEffect::Deny)
    }

    /// Compiles a pattern into a test for names, with the syntax of the policy's patterns; `None`
    /// if the text is no pattern.
    pub fn pattern(text: &str) -> Option<impl Fn(&str) -> bool + use<>> {
        let pattern = NamePattern::compile(text, None).ok()?;
        Some(move |name: &str| pattern.matches(name))
    }

    /// Whether a text, read as a pattern, matches only the name that it spells.
    pub fn is_exact(name: &str) -> bool {
        !name.is_empty() && !name.contains(is_special)
    }

    /// Returns every pattern of every rule and limit in the order written, so that `check` can warn
    /// of patterns that match nothing.
    pub fn patterns(&self) -> impl Iterator<Item = PatternUse<'_>> {
        let rules = self.rules.iter().flat_map(|rule| {
            rule.patterns().map(|(field, pattern)| PatternUse {
                table: PolicyTable::Rules,
                id: &rule.id,
                field,
                pattern,
            })
        });
        let limits = self.limits.iter().flat_map(|limit| {
            let patterns = limit.target.patterns();
            patterns.map(|(field, pattern)| PatternUse { table: PolicyTable::Limits, id: &limit.id, field, pattern })
        });
        rules.chain(limits)
    }
}

/// A compiled scope.
#[derive(Debug)]
pub(super) struct ScopeRule {
    pub(super) scope: Arc<str>,
    pub(super) items: Rule,
}

impl ScopeRule {
    /// Compiles a scope, and adds its problems to `problems`.
    pub(super) fn compile(spec: &ScopeSpec, problems: &mut PolicyProblems) -> Self {
        let items = Rule::compile(&spec.items, &ScopeSpec::path(&spec.scope), problems);
        Self { scope: Arc::from(spec.scope.as_str()), items }
    }
}

/// The array of tables in the configuration that a pattern belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyTable {
    Rules,
    Limits,
}

/// A pattern, with the rule or limit that it was written in.
#[derive(Clone, Copy, Debug)]
pub struct PatternUse<'p> {
    pub table: PolicyTable,
    /// Id of the rule or limit.
    pub id: &'p str,
    pub field: PatternField,
    pattern: &'p NamePattern,
}

impl PatternUse<'_> {
    /// Returns the pattern as written.
    pub fn text(&self) -> &str {
        self.pattern.text()
    }

    /// Whether the pattern matches a name: a canonical name, or for [`PatternField::Upstreams`] and
    /// [`PatternField::Callers`] the name of an upstream or a caller.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name)
    }
}

/// The rules and limits of a policy that can match one item. Made by [`Policy::item_rules`] and
/// valid for that policy only.
#[derive(Debug)]
pub struct ItemRules {
    pub(super) stamp: PolicyStamp,
    pub(super) kind: ActionKind,
    pub(super) upstream: Box<str>,
    pub(super) canonical: Box<str>,
    /// False if kind, upstream and canonical name do not belong together; then every action is
    /// denied.
    pub(super) sound: bool,
    pub(super) deny: Vec<Arc<Rule>>,
    pub(super) ask: Vec<Arc<Rule>>,
    pub(super) allow: Vec<Arc<Rule>>,
    /// The scopes that actions on the item may need.
    pub(super) scopes: Vec<Arc<ScopeRule>>,
    /// Limits, each with its index in the policy's limits, which is also its index in the limiter's
    /// tables.
    pub(super) limits: Vec<(usize, Arc<Limit>)>,
}
