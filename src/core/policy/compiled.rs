//! The compiled policy, and the rules that can match one item.

use std::sync::Arc;

use super::effect::{AGAIN_RULE, DEFAULT_RULE, DOUBT_RULE, Effect};
use super::kind::Kind;
use super::limit::Limit;
use super::lint;
use super::pattern::{Pattern, is_special};
use super::problems::{PolicyProblem, Problems};
use super::rule::{Field, Rule, Subject};
use super::spec::PolicySpec;
use super::truth::Truth;

/// Proof that an [`ItemRules`] or a [`Limiter`](super::limiter::Limiter) was made for a certain [`Policy`]: the address of
/// an allocation that all three keep alive.
#[derive(Clone, Debug)]
pub(super) struct Stamp(Arc<()>);

impl Stamp {
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Compiled rules and limits. Immutable; clones are the same policy.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) stamp: Stamp,
    pub(super) default: Effect,
    pub(super) default_id: Arc<str>,
    pub(super) doubt_id: Arc<str>,
    pub(super) again_id: Arc<str>,
    pub(super) rules: Vec<Arc<Rule>>,
    pub(super) limits: Vec<Arc<Limit>>,
}

impl Policy {
    /// Checks and compiles a policy.
    ///
    /// # Errors
    /// All problems at once; a policy with any problem is not usable in part, since a deny rule
    /// that was left out would allow.
    pub fn build(spec: &PolicySpec) -> Result<Self, Vec<PolicyProblem>> {
        let mut problems = Problems::default();
        let policy = Self::compile(spec, &mut problems);
        if problems.0.is_empty() {
            lint::check(spec, &policy.rules, &mut problems);
        }
        if problems.0.is_empty() { Ok(policy) } else { Err(problems.0) }
    }

    /// Compiles everything that is without problems and lists the rest.
    pub(super) fn compile(spec: &PolicySpec, problems: &mut Problems) -> Self {
        let rules = spec.rules.iter().enumerate();
        let limits = spec.limits.iter().enumerate();
        problems.check_ids("policy.rules", spec.rules.iter().map(|rule| rule.id.as_str()));
        problems.check_ids("policy.limits", spec.limits.iter().map(|limit| limit.id.as_str()));
        Self {
            stamp: Stamp(Arc::new(())),
            default: spec.default,
            default_id: Arc::from(DEFAULT_RULE),
            doubt_id: Arc::from(DOUBT_RULE),
            again_id: Arc::from(AGAIN_RULE),
            rules: rules.map(|(i, rule)| Arc::new(Rule::compile(rule, i, problems))).collect(),
            limits: limits.filter_map(|(i, limit)| Limit::compile(limit, i, problems).map(Arc::new)).collect(),
        }
    }

    /// The rules and limits that can match this item, so that a call runs no globs over names.
    ///
    /// `canonical` is the item's canonical name: `<upstream>__<original>` for tools and prompts,
    /// `<upstream>+<uri>` for resources; what belongs to an item has the item's name, and what is about a whole upstream the
    /// upstream's (see [`Kind`]). If it is not one of `upstream`, the item is denied to everyone. A URI that is not in the catalog
    /// (it matched a template, or was given as a link) needs its own `item_rules` for that URI.
    pub fn item_rules(&self, kind: Kind, upstream: &str, canonical: &str) -> ItemRules {
        let mut item = ItemRules {
            stamp: self.stamp.clone(),
            kind,
            upstream: Box::from(upstream),
            canonical: Box::from(canonical),
            sound: false,
            deny: Vec::new(),
            ask: Vec::new(),
            allow: Vec::new(),
            limits: Vec::new(),
        };
        let Some(subject) = Subject::new(kind, upstream, canonical) else {
            return item;
        };
        item.sound = true;
        for rule in &self.rules {
            let truth = rule.matches(&subject);
            let list = match rule.effect {
                Effect::Deny if truth != Truth::No => &mut item.deny,
                Effect::Ask if truth != Truth::No => &mut item.ask,
                Effect::Allow if truth == Truth::Yes => &mut item.allow,
                Effect::Deny | Effect::Ask | Effect::Allow => continue,
            };
            list.push(Arc::clone(rule));
        }
        // Rules without conditions on arguments come first.
        for list in [&mut item.deny, &mut item.ask, &mut item.allow] {
            list.sort_by_key(|rule| rule.conditions.is_some());
        }
        let limits = self.limits.iter().enumerate();
        let limits = limits.filter(|(_, limit)| limit.target.matches(&subject) != Truth::No);
        item.limits = limits.map(|(index, limit)| (index, Arc::clone(limit))).collect();
        item
    }

    /// Whether nothing can ever be allowed: the default denies and no rule says otherwise. For a
    /// warning of `check`.
    pub fn denies_all(&self) -> bool {
        self.default == Effect::Deny && self.rules.iter().all(|rule| rule.effect == Effect::Deny)
    }

    /// A test for names, as patterns are understood everywhere in a policy; `None` for what is no pattern.
    pub fn pattern(text: &str) -> Option<impl Fn(&str) -> bool + use<>> {
        let pattern = Pattern::compile(text, None).ok()?;
        Some(move |name: &str| pattern.matches(name))
    }

    /// Whether a name is a pattern that matches this name and no other.
    pub fn is_exact(name: &str) -> bool {
        !name.is_empty() && !name.contains(is_special)
    }

    /// Every pattern of every rule and limit, in the order written, so that `check` can warn of
    /// those that match nothing.
    pub fn patterns(&self) -> impl Iterator<Item = PatternUse<'_>> {
        let rules = self.rules.iter().flat_map(|rule| {
            rule.patterns().map(|(field, pattern)| PatternUse { table: Table::Rules, id: &rule.id, field, pattern })
        });
        let limits = self.limits.iter().flat_map(|limit| {
            let patterns = limit.target.patterns();
            patterns.map(|(field, pattern)| PatternUse { table: Table::Limits, id: &limit.id, field, pattern })
        });
        rules.chain(limits)
    }
}

/// Which array of tables a pattern stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Rules,
    Limits,
}

/// One pattern where it was written.
#[derive(Clone, Copy, Debug)]
pub struct PatternUse<'p> {
    pub table: Table,
    /// Id of the rule or limit.
    pub id: &'p str,
    pub field: Field,
    pattern: &'p Pattern,
}

impl PatternUse<'_> {
    /// The pattern as written.
    pub fn text(&self) -> &str {
        self.pattern.text()
    }

    /// Whether the pattern matches: a canonical name, or for [`Field::Upstreams`] and
    /// [`Field::Callers`] the name of one.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name)
    }
}

/// The rules of a policy that can match one item; made by [`Policy::item_rules`], valid for that policy only.
#[derive(Debug)]
pub struct ItemRules {
    pub(super) stamp: Stamp,
    pub(super) kind: Kind,
    pub(super) upstream: Box<str>,
    pub(super) canonical: Box<str>,
    /// False when kind, upstream and canonical name do not belong together.
    pub(super) sound: bool,
    pub(super) deny: Vec<Arc<Rule>>,
    pub(super) ask: Vec<Arc<Rule>>,
    pub(super) allow: Vec<Arc<Rule>>,
    /// With the index into the policy's limits, which is that into the limiter's tables too.
    pub(super) limits: Vec<(usize, Arc<Limit>)>,
}
