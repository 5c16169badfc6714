//! Decisions: may this caller do this with this item, and how often. Pure; knows no transports and
//! no protocol eras.
//!
//! All deny rules are asked first, then all ask rules, then all allow rules, then the default; the
//! order of the rules and how specific they are mean nothing. Limits come last, so a refused call
//! burns nothing. Every doubt denies: a rule that *may* match fires when it denies or asks and does not
//! when it allows, and facts that do not fit together are refused.
//!
//! | kind | an ask rule | the default, where no rule matches |
//! |---|---|---|
//! | tool, prompt, resource | needs a consent | holds |
//! | completion | means nothing, but see [`may_ask`] | holds, but "ask" allows |
//! | subscription, task | means nothing | holds, but "ask" allows: who gets no further than this learns nothing |
//! | sampling, elicitation, launch | means nothing | means nothing: allowed unless a rule denies it |
//!
//! [`Policy::build`] compiles what the operator wrote. [`Policy::item_rules`] resolves the globs
//! over names once for each item of the catalog. [`decide`] is what a call costs, and the only
//! source of [`Permit`]s.

use std::fmt;
use std::sync::Arc;

use crate::catalog::name::ItemKind;

pub(crate) mod consent;

mod annotations;
mod arguments;
pub(crate) mod chain;
mod decide;
mod evidence;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod likeness;
mod limit;
mod lint;
mod permit;
mod pin;
mod record;
pub(crate) mod refusals;
mod rule;
mod uri;

pub(crate) use self::annotations::{Annotator, Trust};
pub(crate) use self::arguments::{ArgumentSpec, JsonType, MatcherSpec, Scalar};
pub(crate) use self::decide::{Considered, Decision, Facts, considered, decide, decide_again, may_ask, still_allowed};
pub(crate) use self::evidence::Evidence;
pub(crate) use self::limit::{
    CallerLimiter, Granted, KeyPart, Lease, LimitSpec, Limiter, Overdrawn, Per, Rate, RowId, Stored, day_of,
};
pub(crate) use self::permit::Permit;
pub(crate) use self::pin::{OnChange, Pin, PinState, Undecided};
pub(crate) use self::record::{Entry, Event, Record};
pub(crate) use self::rule::{Field, RuleSpec};
pub(crate) use crate::mcp::annotations::{Annotations, Hints};
pub(crate) use crate::wire::digest::Digest;

use self::limit::Limit;
use self::rule::{Problems, Rule, Subject, Truth};

/// The caller of this machine's own user, which the generated token stands for too. No configuration has to name it.
pub(crate) const LOCAL: &str = "local";

/// What stands in place of a rule's id when no rule decided.
pub(crate) const DEFAULT_RULE: &str = "default";

/// What stands in place of a rule's id when the facts did not fit together.
pub(crate) const DOUBT_RULE: &str = "doubt";

/// What stands in place of a rule's id where a call goes on that was decided before.
pub(crate) const AGAIN_RULE: &str = "again";

/// What a rule, or the default, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    Allow,
    Ask,
    Deny,
}

impl Effect {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// What is acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Tool,
    Prompt,
    /// A resource or a resource template.
    Resource,
    /// Completion of an argument of a prompt or template, named by that prompt's or template's
    /// canonical name. Rules on the prompt or template apply to it.
    Completion,
    /// Word of a resource's changes, named by the resource. Rules on the resource apply to it.
    Subscription,
    /// A request about a task, named by the tool whose call became it. Rules on the tool apply to it, except those that look at
    /// arguments: the call was decided with them.
    Task,
    /// A server that asks for a completion of the client's model; named by the upstream, as are the next two.
    Sampling,
    /// A server that asks the user for input.
    Elicitation,
    /// The start of an upstream's process, or the connection to it.
    Launch,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Tool,
        Self::Prompt,
        Self::Resource,
        Self::Completion,
        Self::Subscription,
        Self::Task,
        Self::Sampling,
        Self::Elicitation,
        Self::Launch,
    ];

    /// Whether it can wait for a person's consent.
    pub(crate) const fn can_ask(self) -> bool {
        matches!(self, Self::Tool | Self::Prompt | Self::Resource)
    }

    /// What becomes of it where no rule matches.
    const fn otherwise(self, default: Effect) -> Effect {
        match (self, default) {
            (Self::Tool | Self::Prompt | Self::Resource, default) => default,
            (Self::Completion | Self::Subscription | Self::Task, Effect::Deny) => Effect::Deny,
            (Self::Completion | Self::Subscription | Self::Task, Effect::Allow | Effect::Ask)
            | (Self::Sampling | Self::Elicitation | Self::Launch, _) => Effect::Allow,
        }
    }
}

impl Kind {
    /// Word for logs and metric labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Completion => "completion",
            Self::Subscription => "subscription",
            Self::Task => "task",
            Self::Sampling => "sampling",
            Self::Elicitation => "elicitation",
            Self::Launch => "launch",
        }
    }
}

impl From<ItemKind> for Kind {
    fn from(kind: ItemKind) -> Self {
        match kind {
            ItemKind::Tool => Self::Tool,
            ItemKind::Prompt => Self::Prompt,
            ItemKind::Resource | ItemKind::Template => Self::Resource,
        }
    }
}

/// The `[policy]` table as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicySpec {
    /// For what no rule matches.
    pub(crate) default: Effect,
    pub(crate) rules: Vec<RuleSpec>,
    pub(crate) limits: Vec<LimitSpec>,
}

/// One thing that is wrong with a [`PolicySpec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyProblem {
    /// Where, as a key path with indices from zero: `policy.rules[2].tools[0]`.
    pub(crate) path: String,
    /// What is wrong and, where that is known, what to write.
    pub(crate) message: String,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Proof that an [`ItemRules`] or a [`Limiter`] was made for a certain [`Policy`]: the address of
/// an allocation that all three keep alive.
#[derive(Clone, Debug)]
struct Stamp(Arc<()>);

impl Stamp {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Compiled rules and limits. Immutable; clones are the same policy.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    stamp: Stamp,
    default: Effect,
    default_id: Arc<str>,
    doubt_id: Arc<str>,
    again_id: Arc<str>,
    rules: Vec<Arc<Rule>>,
    limits: Vec<Arc<Limit>>,
}

impl Policy {
    /// Checks and compiles a policy.
    ///
    /// # Errors
    /// All problems at once; a policy with any problem is not usable in part, since a deny rule
    /// that was left out would allow.
    pub(crate) fn build(spec: &PolicySpec) -> Result<Self, Vec<PolicyProblem>> {
        let mut problems = Problems::default();
        let policy = Self::compile(spec, &mut problems);
        if problems.0.is_empty() {
            lint::check(spec, &policy.rules, &mut problems);
        }
        if problems.0.is_empty() { Ok(policy) } else { Err(problems.0) }
    }

    /// Compiles everything that is without problems and lists the rest.
    fn compile(spec: &PolicySpec, problems: &mut Problems) -> Self {
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
    pub(crate) fn item_rules(&self, kind: Kind, upstream: &str, canonical: &str) -> ItemRules {
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
        // What needs no arguments is asked first.
        for list in [&mut item.deny, &mut item.ask, &mut item.allow] {
            list.sort_by_key(|rule| rule.conditions.is_some());
        }
        let limits = self.limits.iter().enumerate();
        let limits = limits.filter(|(_, limit)| limit.target.matches(&subject) != Truth::No);
        item.limits = limits.map(|(index, limit)| (index, Arc::clone(limit))).collect();
        item
    }

    /// Whether the item is to be kept from this caller altogether: not listed, and answered as
    /// unknown. True when the item is denied whatever its arguments are.
    ///
    /// `profile` is the view, empty for the whole; `annotations` are the effective ones.
    pub(crate) fn hidden(&self, item: &ItemRules, caller: &str, profile: &str, annotations: Annotations) -> bool {
        decide::closed(self, item, &decide::Who { caller, profile, annotations }).is_some()
    }

    /// The rule that keeps an item from this caller, see [`Self::hidden`].
    pub(crate) fn hiding<'p>(&'p self, item: &'p ItemRules, facts: &Facts<'_>) -> Option<&'p Arc<str>> {
        let Facts { caller, profile, annotations, .. } = *facts;
        decide::closed(self, item, &decide::Who { caller, profile, annotations })
    }

    /// What the rules say about an item before any limit, as long as no rule about arguments fires; for displays.
    pub(crate) fn effect(&self, item: &ItemRules, caller: &str, profile: &str, annotations: Annotations) -> Effect {
        decide::usual(self, item, &decide::Who { caller, profile, annotations })
    }

    /// Whether nothing can ever be allowed: the default denies and no rule says otherwise. For a
    /// warning of `check`.
    pub(crate) fn denies_all(&self) -> bool {
        self.default == Effect::Deny && self.rules.iter().all(|rule| rule.effect == Effect::Deny)
    }

    /// A test for names, as patterns are understood everywhere in a policy; `None` for what is no pattern.
    pub(crate) fn pattern(text: &str) -> Option<impl Fn(&str) -> bool + use<>> {
        let pattern = rule::Pattern::compile(text, None).ok()?;
        Some(move |name: &str| pattern.matches(name))
    }

    /// Every pattern of every rule and limit, in the order written, so that `check` can warn of
    /// those that match nothing.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = PatternUse<'_>> {
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
pub(crate) enum Table {
    Rules,
    Limits,
}

/// One pattern where it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternUse<'p> {
    pub(crate) table: Table,
    /// Id of the rule or limit.
    pub(crate) id: &'p str,
    pub(crate) field: Field,
    pattern: &'p rule::Pattern,
}

impl PatternUse<'_> {
    /// The pattern as written.
    pub(crate) fn text(&self) -> &str {
        self.pattern.text()
    }

    /// Whether the pattern matches: a canonical name, or for [`Field::Upstreams`] and
    /// [`Field::Callers`] the name of one.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name)
    }
}

/// What of a policy can match one item; made by [`Policy::item_rules`], valid for that policy only.
#[derive(Debug)]
pub(crate) struct ItemRules {
    stamp: Stamp,
    kind: Kind,
    upstream: Box<str>,
    canonical: Box<str>,
    /// False when kind, upstream and canonical name do not belong together.
    sound: bool,
    deny: Vec<Arc<Rule>>,
    ask: Vec<Arc<Rule>>,
    allow: Vec<Arc<Rule>>,
    /// With the index into the policy's limits, which is that into the limiter's tables too.
    limits: Vec<(usize, Arc<Limit>)>,
}

#[cfg(test)]
mod tests;
