//! The lint of a policy: finds rules that never match, that another rule always precedes, or that
//! contradict themselves. Such a rule looks like protection and is none, so it refuses the
//! configuration.
//!
//! Each finding is certain; rules that are hard to compare are left alone.

use super::effect::RuleEffect;
use super::kind::ActionKind;
use super::spec::PolicySpec;
use crate::mcp::definition::annotations::Hints;
use crate::policy::rules::arguments::{ArgumentSpec, JsonType, MatcherSpec, ScalarSpec, can_match};
use crate::policy::rules::pattern::NamePattern;
use crate::policy::rules::problems::PolicyProblems;
use crate::policy::rules::rule::{KindSet, PatternList, Rule, RuleSpec, ScopeSpec};

/// Checks the rules of a policy that compiles, and adds their problems to `problems`.
pub(super) fn check(spec: &PolicySpec, rules: &[impl AsRef<Rule>], problems: &mut PolicyProblems) {
    for (index, rule) in spec.rules.iter().enumerate() {
        check_rule(&format!("policy.rules[{index}]"), rule, problems);
    }
    for scope in &spec.scopes {
        check_rule(&ScopeSpec::path(&scope.scope), &scope.items, problems);
    }
    let all: Vec<(&RuleSpec, &Rule)> = spec.rules.iter().zip(rules.iter().map(AsRef::as_ref)).collect();
    for (index, (rule, compiled)) in all.iter().enumerate() {
        let before = all.get(..index).unwrap_or_default();
        let path = format!("policy.rules[{index}]");
        if let Some(first) =
            before.iter().find(|(first, _)| RuleSpec { id: rule.id.clone(), ..(*first).clone() } == **rule)
        {
            problems.add(path, format!("says the same as rule `{}`; remove one of the two", first.0.id));
        } else if let Some((other, _)) = all.iter().find(|other| goes_before(spec.default, other, compiled)) {
            let verb = if other.effect == RuleEffect::Deny { "denies" } else { "asks about" };
            let message =
                format!("never decides anything: rule `{}` {verb} everything that this one matches", other.id);
            problems.add(path, message);
        }
    }
}

/// Adds the problems of one rule, independent of the others.
fn check_rule(path: &str, rule: &RuleSpec, problems: &mut PolicyProblems) {
    let mut add = |key: &str, message: &str| problems.add(format!("{path}{key}"), message);
    let kinds = KindSet::of(rule);
    let heeded = kinds.that_heed(rule.effect);
    if kinds.is_empty() {
        if !rule.claims.is_empty() {
            add(".claims", "never matches: only tools have claims, and this rule matches none");
        } else if rule.annotations.is_empty() {
            add(".kinds", "never matches: `tools`, `prompts` or `resources` of this rule name nothing of these kinds");
        } else {
            add(".annotations", "never matches: only tools have annotations, and this rule matches none");
        }
    } else if heeded.is_empty() && rule.effect == RuleEffect::Ask {
        add(".kinds", "cannot wait for an approval: only tools, prompts and resources can");
    } else if heeded.is_empty() {
        add(".kinds", "changes nothing: these kinds are allowed unless a rule denies them");
    }
    if rule.min_evidence.is_some() && rule.effect != RuleEffect::Ask {
        add(".min-evidence", "belongs to rules with effect = \"ask\"");
    }
    if (rule.annotations.read_only, rule.annotations.destructive) == (Some(true), Some(true)) {
        add(".annotations", "never matches: a read-only tool is never destructive");
    }
    let claims = (rule.claims.read_only, rule.claims.destructive);
    if rule.effect == RuleEffect::Allow && claims == (Some(true), Some(true)) {
        add(".claims", "never matches: a tool that calls itself read-only and destructive allows nothing");
    }
    let key = if rule.arguments.is_empty() { ".unless" } else { ".arguments" };
    if rule.is_conditional() && !rule.resources.is_empty() {
        add(key, "resources have no arguments; write the URIs in `resources`, and tools in a rule of their own");
    } else if rule.is_conditional() && !kinds.is_empty() && !kinds.meets(KindSet::WITH_ARGUMENTS) {
        add(key, "never matters: the items of this rule have no arguments");
    } else if rule.is_conditional()
        && rule.kinds.iter().any(|kind| matches!(kind, ActionKind::Sampling | ActionKind::Elicitation))
    {
        add(
            key,
            "what a server may ask is decided before it asks; write `sampling` and `elicitation` in a rule of their own",
        );
    }
    conditions(path, rule, problems);
}

/// Adds the problems of a rule's conditions on arguments.
fn conditions(path: &str, rule: &RuleSpec, problems: &mut PolicyProblems) {
    for (key, list) in [("arguments", &rule.arguments), ("unless", &rule.unless)] {
        for (later, one) in list.iter().enumerate() {
            let earlier = list.iter().take(later).position(|other| clash(other, one));
            if let Some(earlier) = earlier {
                let message = format!("cannot hold together with {key}[{earlier}], so the two never hold");
                problems.add(format!("{path}.{key}[{later}]"), message);
            }
        }
    }
    if !rule.unless.is_empty() && rule.unless.iter().all(|one| rule.arguments.contains(one)) {
        problems.add(format!("{path}.unless"), "excepts all that `arguments` are about, so the rule never applies");
    }
}

/// Whether no value satisfies both conditions.
fn clash(one: &ArgumentSpec, other: &ArgumentSpec) -> bool {
    // With several elements, one may satisfy the first condition and another the second.
    if one.pointer != other.pointer || one.pointer.split('/').any(|step| step == "*") {
        return false;
    }
    let (one, other) = (&one.matcher, &other.matcher);
    if types(one) & types(other) == 0 {
        return true;
    }
    let none_taken = |values: &[ScalarSpec], by| !values.is_empty() && !values.iter().any(|value| can_match(by, value));
    none_taken(values(one), other)
        || none_taken(values(other), one)
        || are_disjoint(one, other)
        || are_disjoint(other, one)
}

/// Returns the values of a matcher that lists them.
fn values(matcher: &MatcherSpec) -> &[ScalarSpec] {
    if let MatcherSpec::Eq(value) = matcher {
        std::slice::from_ref(value)
    } else if let MatcherSpec::In(values) = matcher {
        values
    } else {
        &[]
    }
}

/// Whether the texts or numbers of two matchers have nothing in common.
fn are_disjoint(one: &MatcherSpec, other: &MatcherSpec) -> bool {
    let diverge = |a: &str, b: &str| !a.starts_with(b) && !b.starts_with(a);
    let plain = |path: &str| format!("{}/", path.trim_end_matches('/'));
    match (one, other) {
        (MatcherSpec::Prefix(a), MatcherSpec::Prefix(b) | MatcherSpec::PathUnder(b)) => {
            diverge(a, b.trim_end_matches('/'))
        }
        (MatcherSpec::PathUnder(a), MatcherSpec::PathUnder(b)) => diverge(&plain(a), &plain(b)),
        (MatcherSpec::Suffix(a), MatcherSpec::Suffix(b)) => !a.ends_with(b.as_str()) && !b.ends_with(a.as_str()),
        (MatcherSpec::Range { max: Some(max), .. }, MatcherSpec::Range { min: Some(min), .. }) => max < min,
        _ => false,
    }
}

/// Returns the types that a matcher can match, as bits. An absent value is a type of its own.
fn types(matcher: &MatcherSpec) -> u16 {
    const ABSENT: u16 = 1 << 8;
    const ANY: u16 = !ABSENT;
    // Integers are numbers.
    let bit = |kind| 1 << (if kind == JsonType::Integer { JsonType::Number } else { kind } as u16);
    let of = |value: &ScalarSpec| match value {
        ScalarSpec::Text(_) => bit(JsonType::String),
        ScalarSpec::Number(_) => bit(JsonType::Number),
        ScalarSpec::Boolean(_) => bit(JsonType::Boolean),
    };
    match matcher {
        MatcherSpec::Eq(value) => of(value),
        MatcherSpec::In(values) => values.iter().fold(0, |bits, value| bits | of(value)),
        MatcherSpec::Ne(_) | MatcherSpec::Present => ANY,
        MatcherSpec::Prefix(_)
        | MatcherSpec::Suffix(_)
        | MatcherSpec::Glob(_)
        | MatcherSpec::Regex(_)
        | MatcherSpec::PathUnder(_)
        | MatcherSpec::UrlHostIn(_)
        | MatcherSpec::EmailDomainIn(_)
        | MatcherSpec::CidrIn(_)
        | MatcherSpec::MaxLen(_) => bit(JsonType::String),
        MatcherSpec::Range { .. } => bit(JsonType::Number),
        MatcherSpec::MaxItems(_) => bit(JsonType::Array),
        MatcherSpec::Type(kind) => bit(*kind),
        MatcherSpec::Absent => ABSENT,
    }
}

/// Whether the first rule decides everything that the second is about.
fn goes_before(default: RuleEffect, (spec, first): &(&RuleSpec, &Rule), second: &Rule) -> bool {
    let kinds = match (first.effect, second.effect) {
        (RuleEffect::Deny, RuleEffect::Allow | RuleEffect::Ask) => second.kinds.that_heed(second.effect),
        // Kinds that cannot ask still need the second rule if the default denies.
        (RuleEffect::Ask, RuleEffect::Allow)
            if default == RuleEffect::Deny && second.kinds.meets(KindSet::FOLLOWING) =>
        {
            return false;
        }
        (RuleEffect::Ask, RuleEffect::Allow) => second.kinds.and(KindSet::ASKING),
        _ => return false,
    };
    !spec.is_conditional()
        && !kinds.is_empty()
        && first.kinds.contains(kinds)
        && is_within(&first.annotations, &second.annotations)
        && is_within(&first.claims, &second.claims)
        && covers(&first.target.who.callers, &second.target.who.callers)
        && covers_groups(first, second)
        && covers(&first.profiles, &second.profiles)
        && covers_upstreams(first, second)
        && covers_names(first, second)
}

/// Whether every tool that the second hints describe is described by the first.
fn is_within(first: &Hints, second: &Hints) -> bool {
    first.values().into_iter().zip(second.values()).all(|(first, second)| first.is_none() || first == second)
}

/// Whether the first list matches every name that the second matches. Says no if that is hard to
/// tell.
fn covers(first: &PatternList, second: &PatternList) -> bool {
    let covered = |pattern: &NamePattern| first.iter().any(|wider| wider.covers(pattern));
    first.is_empty()
        || first.iter().any(|pattern| pattern.text() == "*")
        || (!second.is_empty() && second.iter().all(covered))
}

/// Whether the first rule is about every caller by its groups that the second is about. Even `*` is
/// not about callers without a group.
fn covers_groups(first: &Rule, second: &Rule) -> bool {
    let (first, second) = (&first.target.who.groups, &second.target.who.groups);
    first.is_empty() || (!second.is_empty() && covers(first, second))
}

/// Whether the first rule is about every upstream that the second is about.
fn covers_upstreams(first: &Rule, second: &Rule) -> bool {
    if covers(&first.target.upstreams, &second.target.upstreams) {
        return true;
    }
    // The names say which upstreams they belong to.
    let upstream = |pattern: &NamePattern, between: &str| {
        let name = pattern.head().split_once(between).map(|(name, _)| name.to_owned());
        name.is_some_and(|name| first.target.upstreams.iter().any(|pattern| pattern.matches(&name)))
    };
    let target = &second.target;
    let mut named = target.tools.iter().chain(target.prompts.iter()).peekable();
    let some = named.peek().is_some() || !target.resources.is_empty();
    some && named.all(|pattern| upstream(pattern, "__"))
        && target.resources.iter().all(|pattern| upstream(pattern, "+"))
}

/// Whether the first rule is about every item that the second is about.
fn covers_names(first: &Rule, second: &Rule) -> bool {
    let lists =
        |rule: &Rule| [rule.target.tools.is_empty(), rule.target.prompts.is_empty(), rule.target.resources.is_empty()];
    let (of_first, of_second) = (lists(first), lists(second));
    if of_first == [true; 3] {
        return true;
    }
    if of_second == [true; 3] {
        return false;
    }
    let (a, b) = (&first.target, &second.target);
    let pairs = [(&a.tools, &b.tools), (&a.prompts, &b.prompts), (&a.resources, &b.resources)];
    pairs.into_iter().all(|(wide, narrow)| narrow.is_empty() || (!wide.is_empty() && covers(wide, narrow)))
}

#[cfg(test)]
mod tests;
