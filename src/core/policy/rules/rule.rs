//! Compiled rules: globs over upstreams, canonical names, callers, groups and profiles, kinds,
//! annotations, claims, and conditions on arguments.

use std::sync::Arc;

use super::arguments::RuleConditions;
use super::pattern::NamePattern;
use super::problems::PolicyProblems;
use super::truth::Truth;
use super::uri::{UriReading, read};
use crate::mcp::definition::annotations::Hints;
use crate::mcp::definition::claims::Claims;
use crate::policy::action::ToolFacts;
use crate::policy::effect::RuleEffect;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::kind::ActionKind;

mod callers;
mod kinds;
mod patterns;
mod spec;
mod subject;

pub use self::callers::CallerPatterns;
pub(in crate::policy) use self::kinds::KindSet;
pub(in crate::policy) use self::patterns::PatternList;
pub use self::spec::{PatternField, RuleSpec, ScopeSpec};
pub use self::subject::RuleSubject;

/// A compiled rule.
#[derive(Debug)]
pub(in crate::policy) struct Rule {
    pub(in crate::policy) id: Arc<str>,
    pub(in crate::policy) effect: RuleEffect,
    pub(in crate::policy) target: RuleTarget,
    pub(in crate::policy) profiles: PatternList,
    pub(in crate::policy) kinds: KindSet,
    pub(in crate::policy) annotations: Hints,
    pub(in crate::policy) claims: Hints,
    pub(in crate::policy) conditions: Option<RuleConditions>,
    pub(in crate::policy) min_evidence: Option<ApprovalEvidence>,
}

impl Rule {
    /// Compiles a rule at `path`, and adds its problems to `problems`.
    pub(in crate::policy) fn compile(spec: &RuleSpec, path: &str, problems: &mut PolicyProblems) -> Self {
        let mut list = |field, texts| PatternList::compile(path, field, texts, problems);
        let target = RuleTarget {
            upstreams: list(PatternField::Upstreams, &spec.upstreams),
            tools: list(PatternField::Tools, &spec.tools),
            prompts: list(PatternField::Prompts, &spec.prompts),
            resources: list(PatternField::Resources, &spec.resources),
            who: CallerPatterns::default(),
        };
        let profiles = list(PatternField::Profiles, &spec.profiles);
        let who = CallerPatterns::compile(path, &spec.callers, &spec.groups, problems);
        Self {
            id: Arc::from(spec.id.as_str()),
            effect: spec.effect,
            target: RuleTarget { who, ..target },
            profiles,
            kinds: KindSet::of(spec),
            annotations: spec.annotations,
            claims: spec.claims,
            conditions: RuleConditions::compile(path, spec.effect, &spec.arguments, &spec.unless, problems),
            min_evidence: spec.min_evidence,
        }
    }

    /// Whether the rule is about this item. Caller, profile, facts and arguments are left aside.
    pub(in crate::policy) fn matches(&self, subject: &MatchedItem<'_>) -> Truth {
        if self.kinds.has(subject.kind, subject.field) { self.target.matches(subject) } else { Truth::No }
    }

    /// Whether the rule is about this caller and its groups, profile, and tool with these facts.
    pub(in crate::policy) fn covers(&self, subject: &RuleSubject<'_>) -> Truth {
        let RuleSubject { caller, groups, profile, facts: ToolFacts { annotations, claims } } = subject;
        let Hints { read_only, destructive, idempotent, open_world } = self.annotations;
        let agrees = |wanted: Option<bool>, value: bool| wanted.is_none_or(|wanted| wanted == value);
        let has_all = (self.profiles.is_empty() || self.profiles.matches(profile))
            && agrees(read_only, annotations.read_only)
            && agrees(destructive, annotations.destructive)
            && agrees(idempotent, annotations.idempotent)
            && agrees(open_world, annotations.open_world);
        if has_all { self.target.who.covers(caller, groups).and(self.claimed(claims)) } else { Truth::No }
    }

    /// Whether the claims of a tool agree with those of the rule. A hint that the server does not
    /// state is unknown, and so are to an allow rule all claims that may allow nothing.
    fn claimed(&self, claims: &Claims) -> Truth {
        if self.claims.is_empty() {
            return Truth::Yes;
        }
        let pairs = self.claims.values().into_iter().zip(claims.hints.values());
        let agrees = |(wanted, said): (Option<bool>, Option<bool>)| {
            wanted.map(|wanted| said.map_or(Truth::Unknown, |said| Truth::from(said == wanted)))
        };
        let at_most = if self.effect == RuleEffect::Allow && !claims.may_open { Truth::Unknown } else { Truth::Yes };
        pairs.filter_map(agrees).fold(at_most, Truth::and)
    }

    /// Returns all patterns, each with the list that it belongs to.
    pub(in crate::policy) fn patterns(&self) -> impl Iterator<Item = (PatternField, &NamePattern)> {
        self.target.patterns().chain(self.profiles.iter().map(|pattern| (PatternField::Profiles, pattern)))
    }
}

/// An item, prepared for matching.
#[derive(Debug)]
pub(in crate::policy) struct MatchedItem<'n> {
    upstream: &'n str,
    canonical: &'n str,
    kind: ActionKind,
    /// The list of a rule that names the item; `None` for whole upstreams.
    field: Option<PatternField>,
    reading: UriReading,
}

impl<'n> MatchedItem<'n> {
    /// Prepares an item; `None` if `canonical` is no name of this kind and upstream.
    pub(in crate::policy) fn new(kind: ActionKind, upstream: &'n str, canonical: &'n str) -> Option<Self> {
        let rest = canonical.strip_prefix(upstream).filter(|_| !upstream.is_empty())?;
        let name = rest.strip_prefix("__").filter(|name| !name.is_empty());
        let uri = rest.strip_prefix('+').filter(|uri| !uri.is_empty());
        let field = match (kind, name, uri) {
            (ActionKind::Tool | ActionKind::Task, Some(_), _) => Some(PatternField::Tools),
            (ActionKind::Prompt | ActionKind::Completion, Some(_), _) => Some(PatternField::Prompts),
            (ActionKind::Resource | ActionKind::Subscription | ActionKind::Completion, None, Some(_)) => {
                Some(PatternField::Resources)
            }
            (ActionKind::Sampling | ActionKind::Elicitation | ActionKind::Launch, None, None) if rest.is_empty() => {
                None
            }
            (_, _, _) => return None,
        };
        let reading = match uri.map(read) {
            Some(UriReading::Other(other)) => UriReading::Other(format!("{upstream}+{other}")),
            Some(reading) => reading,
            None => UriReading::Plain,
        };
        Some(Self { upstream, canonical, kind, field, reading })
    }
}

/// The items and callers that a rule or limit matches.
#[derive(Debug)]
pub(in crate::policy) struct RuleTarget {
    pub(in crate::policy) upstreams: PatternList,
    pub(in crate::policy) tools: PatternList,
    pub(in crate::policy) prompts: PatternList,
    pub(in crate::policy) resources: PatternList,
    pub(in crate::policy) who: CallerPatterns,
}

impl RuleTarget {
    /// Whether the target is about this item. The caller is left aside.
    pub(in crate::policy) fn matches(&self, subject: &MatchedItem<'_>) -> Truth {
        if !self.upstreams.is_empty() && !self.upstreams.matches(subject.upstream) {
            return Truth::No;
        }
        if self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty() {
            return Truth::Yes;
        }
        match subject.field {
            Some(PatternField::Tools) => self.tools.truth(subject),
            Some(PatternField::Prompts) => self.prompts.truth(subject),
            Some(PatternField::Resources) => self.resources.truth(subject),
            Some(PatternField::Upstreams | PatternField::Callers | PatternField::Groups | PatternField::Profiles)
            | None => Truth::No,
        }
    }

    /// Returns all patterns, each with the list that it belongs to.
    pub(in crate::policy) fn patterns(&self) -> impl Iterator<Item = (PatternField, &NamePattern)> {
        let lists = [
            (PatternField::Upstreams, &self.upstreams),
            (PatternField::Tools, &self.tools),
            (PatternField::Prompts, &self.prompts),
            (PatternField::Resources, &self.resources),
        ];
        let items = lists.into_iter().flat_map(|(field, list)| list.iter().map(move |pattern| (field, pattern)));
        items.chain(self.who.patterns())
    }
}

impl PatternList {
    /// Whether a pattern matches the item; unknown if that depends on the reading of its URI.
    fn truth(&self, subject: &MatchedItem<'_>) -> Truth {
        let MatchedItem { upstream, canonical, reading, .. } = subject;
        let any = |test: &dyn Fn(&NamePattern) -> bool| self.iter().any(test);
        let (sure, possible) = match reading {
            // An operator who wrote this very text meant it, in any reading.
            UriReading::Other(_) | UriReading::Unclear if any(&|p| *p.text() == **canonical) => (true, true),
            UriReading::Plain => (self.matches(canonical), false),
            UriReading::Other(other) => {
                let (this, that) = (self.matches(canonical), any(&|p| p.matches_respelled(other)));
                (this && that, this || that)
            }
            UriReading::Unclear => (any(&|p| p.covers_all_of(upstream)), any(&|p| p.may_touch(upstream))),
        };
        match (sure, possible) {
            (true, _) => Truth::Yes,
            (false, true) => Truth::Unknown,
            (false, false) => Truth::No,
        }
    }
}

#[cfg(test)]
mod tests;
