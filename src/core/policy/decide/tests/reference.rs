//! A reference for decisions, written naively: nothing is resolved ahead, rules have no order, one
//! pass over the rules as written.

#![expect(clippy::wildcard_enum_match_arm, reason = "what is not named has one answer, by definition")]

use serde_json::Value;

use super::*;
use crate::mcp::definition::annotations::Hints;
use crate::policy::rules::arguments::{ArgumentSpec, MatcherSpec, ScalarSpec};

/// Yes, no, or unknown.
type Three = Option<bool>;

/// Decides an action by the reference: the effect, whether the item is hidden, and the evidence
/// that is needed.
pub(super) fn reference(spec: &PolicySpec, action: &PolicyAction) -> (RuleEffect, bool, Option<ApprovalEvidence>) {
    let counts = |rule: &&RuleSpec| match rule.effect {
        RuleEffect::Allow => rule.claims.is_empty() || (action.claims.may_open && claimed(rule, action) == Some(true)),
        RuleEffect::Ask | RuleEffect::Deny => claimed(rule, action) != Some(false),
    };
    let about = spec.rules.iter().filter(|rule| is_about(rule, action)).filter(counts).collect::<Vec<_>>();
    let of = |effect: RuleEffect| about.iter().filter(move |rule| rule.effect == effect);
    let plain = |rule: &RuleSpec| rule.arguments.is_empty() && rule.unless.is_empty();
    let can_ask = matches!(action.kind, ActionKind::Tool | ActionKind::Prompt | ActionKind::Resource);
    let servers = matches!(action.kind, ActionKind::Sampling | ActionKind::Elicitation | ActionKind::Launch);
    let default = match spec.default {
        _ if servers => RuleEffect::Allow,
        RuleEffect::Ask if !can_ask => RuleEffect::Allow,
        default => default,
    };
    let opened = of(RuleEffect::Allow).count() > 0 || (can_ask && of(RuleEffect::Ask).count() > 0);
    if of(RuleEffect::Deny).any(|rule| plain(rule)) || (default == RuleEffect::Deny && !opened) {
        return (RuleEffect::Deny, true, None);
    }
    if of(RuleEffect::Deny).any(|rule| applies(rule, action) != Some(false)) {
        return (RuleEffect::Deny, false, None);
    }
    let destroys = action.kind == ActionKind::Tool && action.annotations.known_destructive;
    let least = if destroys { ApprovalEvidence::Page } else { ApprovalEvidence::Client };
    let asking = of(RuleEffect::Ask).filter(|rule| can_ask && applies(rule, action) != Some(false));
    if let Some(need) = asking.map(|rule| rule.min_evidence.unwrap_or(least).max(least)).max() {
        return (RuleEffect::Ask, false, Some(need));
    }
    if of(RuleEffect::Allow).any(|rule| applies(rule, action) == Some(true)) {
        return (RuleEffect::Allow, false, None);
    }
    (default, false, (default == RuleEffect::Ask).then_some(least))
}

fn any(globs: &[String], text: &str) -> bool {
    globs.iter().any(|glob| globset::Glob::new(glob).unwrap().compile_matcher().is_match(text))
}

fn is_about(rule: &RuleSpec, action: &PolicyAction) -> bool {
    let of_uri = !action.canonical.contains("__");
    let (names, base) = match action.kind {
        ActionKind::Tool | ActionKind::Task => (Some(&rule.tools), ActionKind::Tool),
        ActionKind::Prompt => (Some(&rule.prompts), ActionKind::Prompt),
        ActionKind::Resource | ActionKind::Subscription => (Some(&rule.resources), ActionKind::Resource),
        ActionKind::Completion if of_uri => (Some(&rule.resources), ActionKind::Resource),
        ActionKind::Completion => (Some(&rule.prompts), ActionKind::Prompt),
        ActionKind::Sampling | ActionKind::Elicitation | ActionKind::Launch => (None, action.kind),
    };
    let kinds = if rule.kinds.is_empty() {
        names.is_some()
    } else {
        rule.kinds.contains(&action.kind) || rule.kinds.contains(&base)
    };
    let bare = rule.tools.is_empty() && rule.prompts.is_empty() && rule.resources.is_empty();
    let Hints { read_only, destructive, idempotent, open_world } = rule.annotations;
    let agrees = |wanted: Option<bool>, is: bool| wanted.is_none() || wanted == Some(is);
    let held = &action.annotations;
    kinds
        && (rule.callers.is_empty() || any(&rule.callers, action.caller.name()))
        && (rule.profiles.is_empty() || any(&rule.profiles, action.profile()))
        && (rule.upstreams.is_empty() || any(&rule.upstreams, &action.upstream))
        && (bare || names.is_some_and(|names| any(names, &action.canonical)))
        && ((rule.annotations.is_empty() && rule.claims.is_empty()) || base == ActionKind::Tool)
        && agrees(read_only, held.read_only)
        && agrees(destructive, held.destructive)
        && agrees(idempotent, held.idempotent)
        && agrees(open_world, held.open_world)
}

/// Whether the tool's claims agree with those of the rule.
fn claimed(rule: &RuleSpec, action: &PolicyAction) -> Three {
    let (wanted, said) = (&rule.claims, &action.claims.hints);
    let pairs = [
        (wanted.read_only, said.read_only),
        (wanted.destructive, said.destructive),
        (wanted.idempotent, said.idempotent),
        (wanted.open_world, said.open_world),
    ];
    let asked = pairs.iter().filter(|(wanted, _)| wanted.is_some());
    and(&asked.map(|(wanted, said)| said.map(|said| *wanted == Some(said))).collect::<Vec<_>>())
}

fn applies(rule: &RuleSpec, action: &PolicyAction) -> Three {
    if rule.arguments.is_empty() && rule.unless.is_empty() {
        return Some(true);
    }
    let given = match action.kind {
        ActionKind::Task => return Some(false),
        ActionKind::Completion | ActionKind::Sampling | ActionKind::Elicitation => return None,
        ActionKind::Resource | ActionKind::Subscription | ActionKind::Launch => None,
        ActionKind::Tool | ActionKind::Prompt => action.arguments.as_ref(),
    };
    let text = given.map_or("{}".into(), RawJson::text);
    let root: Value = serde_json::from_str(&text).ok()?;
    let holds = |list: &[ArgumentSpec], absent: Three| {
        let each = list.iter().map(|one| holds(one, &root, rule.effect, absent)).collect::<Vec<_>>();
        and(&each)
    };
    let positive = holds(&rule.arguments, Some(false));
    if rule.unless.is_empty() {
        return positive;
    }
    and(&[positive, holds(&rule.unless, None).map(|held| !held)])
}

fn and(all: &[Three]) -> Three {
    if all.contains(&Some(false)) {
        Some(false)
    } else if all.contains(&None) {
        None
    } else {
        Some(true)
    }
}

/// Evaluates one condition. Each element of a list is judged on its own; if elements are in doubt
/// or disagree, the whole is in doubt wherever doubt is the strict answer.
fn holds(one: &ArgumentSpec, root: &Value, effect: RuleEffect, absent: Three) -> Three {
    let in_unless = absent.is_none();
    let mut answers = Vec::new();
    visit(root, &one.pointer.split('/').skip(1).collect::<Vec<_>>(), &mut |found| {
        answers.push(match found {
            Err(()) => None,
            Ok(None) => match one.matcher {
                MatcherSpec::Absent => Some(true),
                MatcherSpec::Present => Some(false),
                MatcherSpec::Ne(_) => None,
                _ => absent,
            },
            Ok(Some(value)) => matches(&one.matcher, value),
        });
    });
    let some = if answers.contains(&Some(true)) {
        Some(true)
    } else if answers.contains(&None) {
        None
    } else {
        Some(false)
    };
    match (effect, in_unless) {
        (RuleEffect::Deny, false) | (RuleEffect::Allow, true) => some,
        (RuleEffect::Ask, false) if some != Some(false) && and(&answers) == Some(false) => None,
        _ => and(&answers),
    }
}

fn visit<'v>(value: &'v Value, steps: &[&str], found: &mut dyn FnMut(Result<Option<&'v Value>, ()>)) {
    let Some((first, rest)) = steps.split_first() else { return found(Ok(Some(value))) };
    match value {
        Value::Array(items) if *first == "*" => items.iter().for_each(|item| visit(item, rest, found)),
        Value::Array(items) => match first.parse::<usize>() {
            Ok(index) => match items.get(index) {
                Some(item) => visit(item, rest, found),
                None => found(Ok(None)),
            },
            Err(_) => found(Err(())),
        },
        Value::Object(members) if *first != "*" => {
            let alike: Vec<_> = members.keys().filter(|key| key.to_lowercase() == first.to_lowercase()).collect();
            match alike.as_slice() {
                [] => found(Ok(None)),
                [only] if *only == first => visit(&members[*first], rest, found),
                _ => found(Err(())),
            }
        }
        _ => found(Err(())),
    }
}

fn matches(matcher: &MatcherSpec, value: &Value) -> Three {
    let equal = |scalar: &ScalarSpec| match (scalar, value) {
        (ScalarSpec::Text(wanted), Value::String(text)) => Some(wanted == text),
        (ScalarSpec::Number(wanted), Value::Number(number)) => Some(Some(*wanted) == number.as_f64()),
        (ScalarSpec::Boolean(wanted), Value::Bool(is)) => Some(wanted == is),
        _ => None,
    };
    match matcher {
        MatcherSpec::Eq(wanted) => equal(wanted),
        MatcherSpec::Ne(wanted) => equal(wanted).map(|is| !is),
        MatcherSpec::In(wanted) => {
            let answers: Vec<Three> = wanted.iter().map(equal).filter(Option::is_some).collect();
            if answers.is_empty() { None } else { Some(answers.contains(&Some(true))) }
        }
        MatcherSpec::Prefix(prefix) => value.as_str().map(|text| text.starts_with(prefix.as_str())),
        MatcherSpec::PathUnder(base) => {
            let path = value.as_str().filter(|path| path.starts_with('/') && !path.contains(".."))?;
            Some(std::path::Path::new(path).starts_with(base))
        }
        MatcherSpec::Range { min, max } => {
            let number = value.as_f64()?;
            Some(min.is_none_or(|min| min <= number) && max.is_none_or(|max| number <= max))
        }
        MatcherSpec::MaxItems(most) => value.as_array().map(|items| items.len() <= *most),
        MatcherSpec::Absent | MatcherSpec::Present if value.is_null() => None,
        MatcherSpec::Absent => Some(false),
        MatcherSpec::Present => Some(true),
        other => panic!("{} is not in these tests", other.into_str()),
    }
}
