use proptest::prelude::*;

use super::super::rule::Problems;
use super::super::tests::{SECOND, limit, rule, spec, strings};
use super::super::{PolicySpec, RuleSpec};
use super::*;

const FACTS: Facts<'static> = Facts { caller: "local", upstream: "a", canonical: "a__x", kind: Kind::Tool };

#[test]
fn deny_beats_ask_beats_allow_beats_the_default() {
    use Effect::{Allow, Ask, Deny};
    let rows: [(&str, Effect, &[Effect], &str); 9] = [
        ("default allow", Allow, &[], "allow default"),
        ("default ask", Ask, &[], "ask default"),
        ("default deny", Deny, &[], "deny default"),
        ("allow over default", Deny, &[Allow], "allow 0"),
        ("deny over default", Allow, &[Deny], "deny 0"),
        ("deny over allow", Allow, &[Allow, Deny], "deny 1"),
        ("ask over allow", Allow, &[Allow, Ask], "ask 1"),
        ("deny over all", Allow, &[Allow, Ask, Deny], "deny 2"),
        ("the first of equals is named", Allow, &[Deny, Deny], "deny 0"),
    ];
    for (label, default, effects, expected) in rows {
        let rules = effects.iter().enumerate().map(|(i, effect)| rule(&i.to_string(), *effect));
        let policy = compile(&PolicySpec { default, ..spec(rules.collect()) });
        assert_eq!(told(&outcome(&policy, &FACTS)), expected, "{label}");
    }
}

#[test]
fn facts_that_do_not_fit_are_denied() {
    let policy = compile(&spec(vec![rule("all", Effect::Allow)]));
    let item = policy.item_rules(FACTS.kind, FACTS.upstream, FACTS.canonical);
    let limiter = Limiter::new(&policy);
    let rows = [
        ("fits", FACTS, "allow all"),
        ("no caller", Facts { caller: "", ..FACTS }, "deny doubt"),
        ("another upstream", Facts { upstream: "b", ..FACTS }, "deny doubt"),
        ("another item", Facts { canonical: "a__y", ..FACTS }, "deny doubt"),
        ("another kind", Facts { kind: Kind::Prompt, ..FACTS }, "deny doubt"),
    ];
    for (label, facts, expected) in rows {
        assert_eq!(told(&decide(&policy, &item, &facts, &limiter, SECOND)), expected, "{label}");
    }
    let item = policy.item_rules(Kind::Tool, "a", "b__x");
    let facts = Facts { canonical: "b__x", ..FACTS };
    assert!(policy.hidden(&item, "local"));
    assert_eq!(told(&decide(&policy, &item, &facts, &limiter, SECOND)), "deny doubt");
}

#[test]
fn parts_of_another_policy_are_denied() {
    let limited = PolicySpec { limits: vec![limit("l", 9)], ..spec(vec![]) };
    let (old, new) = (compile(&limited), compile(&limited));
    let old_item = old.item_rules(FACTS.kind, FACTS.upstream, FACTS.canonical);
    let new_item = new.item_rules(FACTS.kind, FACTS.upstream, FACTS.canonical);
    let (old_limiter, new_limiter) = (Limiter::new(&old), Limiter::new(&new));
    assert_eq!(told(&decide(&new, &new_item, &FACTS, &new_limiter, SECOND)), "allow default");
    assert_eq!(told(&decide(&new, &old_item, &FACTS, &new_limiter, SECOND)), "deny doubt");
    assert_eq!(told(&decide(&new, &new_item, &FACTS, &old_limiter, SECOND)), "deny doubt");
    assert_eq!(told(&decide(&new.clone(), &new_item, &FACTS, &new_limiter, SECOND)), "allow default");
}

#[test]
fn a_refused_call_burns_no_quota() {
    for effect in [Effect::Deny, Effect::Ask] {
        let stop = RuleSpec { tools: strings(&["a__stop"]), ..rule("stop", effect) };
        let policy = compile(&PolicySpec { limits: vec![limit("l", 1)], ..spec(vec![stop]) });
        let limiter = Limiter::new(&policy);
        let facts = Facts { canonical: "a__stop", ..FACTS };
        let item = policy.item_rules(facts.kind, facts.upstream, facts.canonical);
        for _ in 0..5 {
            let refused = decide(&policy, &item, &facts, &limiter, SECOND);
            assert!(told(&refused).ends_with(" stop"), "{refused:?}");
        }
        let item = policy.item_rules(FACTS.kind, FACTS.upstream, FACTS.canonical);
        assert_eq!(told(&decide(&policy, &item, &FACTS, &limiter, SECOND)), "allow default");
        assert_eq!(told(&decide(&policy, &item, &FACTS, &limiter, SECOND)), "limit l 1s");
    }
}

#[test]
fn a_permit_names_the_rule_that_gave_it() {
    let policy = compile(&spec(vec![rule("yes", Effect::Allow)]));
    let Decision::Allow(permit) = outcome(&policy, &FACTS) else { panic!("not allowed") };
    assert_eq!(&**permit.rule(), "yes");
}

proptest! {
    #[test]
    fn decisions_agree_with_the_definition(spec in any_spec(), facts in any_facts()) {
        let policy = compile(&spec);
        let matching = |effect| spec.rules.iter().find(|r| r.effect == effect && by_definition(r, &facts));
        let expected = [Effect::Deny, Effect::Ask, Effect::Allow]
            .into_iter()
            .find_map(|effect| matching(effect).map(|r| (effect, r.id.as_str())))
            .unwrap_or((spec.default, "default"));
        let expected = format!("{} {}", format!("{:?}", expected.0).to_lowercase(), expected.1);
        prop_assert_eq!(told(&outcome(&policy, &facts)), expected);
    }

    #[test]
    fn the_order_of_rules_means_nothing(
        (spec, shuffled) in any_spec().prop_flat_map(|s| (Just(s.clone()), Just(s.rules).prop_shuffle())), facts in any_facts(),
    ) {
        let other = PolicySpec { rules: shuffled, ..spec.clone() };
        let (one, two) = (told(&outcome(&compile(&spec), &facts)), told(&outcome(&compile(&other), &facts)));
        prop_assert_eq!(one.split(' ').next(), two.split(' ').next());
    }

    #[test]
    fn one_more_deny_never_allows_more(spec in any_spec(), deny in any_rule(), facts in any_facts()) {
        let before = outcome(&compile(&spec), &facts);
        let mut more = spec;
        more.rules.push(RuleSpec { id: "more".to_owned(), effect: Effect::Deny, ..deny });
        let after = outcome(&compile(&more), &facts);
        let freedom = |decision: &Decision| match decision {
            Decision::Deny { .. } => 0,
            Decision::Ask { .. } | Decision::Limit { .. } => 1,
            Decision::Allow(_) => 2,
        };
        prop_assert!(freedom(&after) <= freedom(&before));
    }

    #[test]
    fn what_is_hidden_is_denied_as_hidden_and_nothing_else_is(spec in any_spec(), facts in any_facts()) {
        let policy = compile(&spec);
        let item = policy.item_rules(facts.kind, facts.upstream, facts.canonical);
        let denied = told(&outcome(&policy, &facts)).starts_with("deny ");
        prop_assert_eq!(policy.hidden(&item, facts.caller), denied);
    }
}

/// Compiles without the refusal of `ask`, which the decision knows already.
fn compile(spec: &PolicySpec) -> Policy {
    let mut problems = Problems::default();
    let policy = Policy::compile(spec, &mut problems);
    assert!(problems.0.is_empty(), "{problems:?}");
    policy
}

fn outcome(policy: &Policy, facts: &Facts<'_>) -> Decision {
    let item = policy.item_rules(facts.kind, facts.upstream, facts.canonical);
    decide(policy, &item, facts, &Limiter::new(policy), SECOND)
}

fn told(decision: &Decision) -> String {
    match decision {
        Decision::Allow(permit) => format!("allow {}", permit.rule()),
        Decision::Ask { rule } => format!("ask {rule}"),
        Decision::Deny { rule, hidden } => {
            assert!(hidden, "every denial of today is one without arguments");
            format!("deny {rule}")
        }
        Decision::Limit { limit, retry_after } => format!("limit {limit} {retry_after:?}"),
    }
}

/// The definition of a match, written down without any resolving ahead.
fn by_definition(rule: &RuleSpec, facts: &Facts<'_>) -> bool {
    let any = |globs: &[String], text: &str| {
        let matches = |glob: &String| globset::Glob::new(glob).unwrap().compile_matcher().is_match(text);
        globs.iter().any(matches)
    };
    let names = match facts.kind {
        Kind::Tool => &rule.tools,
        Kind::Prompt => &rule.prompts,
        Kind::Resource => &rule.resources,
        Kind::Completion if facts.canonical.contains("__") => &rule.prompts,
        Kind::Completion => &rule.resources,
    };
    let bare = rule.tools.is_empty() && rule.prompts.is_empty() && rule.resources.is_empty();
    (rule.callers.is_empty() || any(&rule.callers, facts.caller))
        && (rule.upstreams.is_empty() || any(&rule.upstreams, facts.upstream))
        && (bare || any(names, facts.canonical))
}

fn any_spec() -> impl Strategy<Value = PolicySpec> {
    (any_effect(), prop::collection::vec(any_rule(), 0..6)).prop_map(|(default, mut rules)| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.id = index.to_string();
        }
        PolicySpec { default, ..spec(rules) }
    })
}

fn any_rule() -> impl Strategy<Value = RuleSpec> {
    let names = || globs(&["*", "a*", "a__x", "*x", "{a,b}__?", "b[+_]*", "a+*", "*:1"]);
    let upstreams = globs(&["*", "a", "b*", "[ab]"]);
    let callers = globs(&["*", "p", "q*", "?"]);
    (any_effect(), upstreams, names(), names(), names(), callers).prop_map(
        |(effect, upstreams, tools, prompts, resources, callers)| RuleSpec {
            upstreams,
            tools,
            prompts,
            resources,
            callers,
            ..rule("", effect)
        },
    )
}

fn any_effect() -> impl Strategy<Value = Effect> {
    prop::sample::select(vec![Effect::Allow, Effect::Ask, Effect::Deny])
}

fn any_facts() -> impl Strategy<Value = Facts<'static>> {
    use Kind::{Completion, Prompt, Resource, Tool};
    let items = vec![
        (Tool, "a", "a__x"),
        (Tool, "b", "b__x"),
        (Prompt, "a", "a__y"),
        (Resource, "a", "a+x:1"),
        (Resource, "b", "b+x:2"),
        (Completion, "a", "a__x"),
        (Completion, "b", "b+x:1"),
    ];
    let facts = (prop::sample::select(vec!["p", "q", "qq"]), prop::sample::select(items));
    facts.prop_map(|(caller, (kind, upstream, canonical))| Facts { caller, upstream, canonical, kind })
}

/// None half of the time: a list that is not written is the case with a meaning of its own.
fn globs(choices: &[&'static str]) -> impl Strategy<Value = Vec<String>> + use<> {
    let some = prop::collection::vec(prop::sample::select(choices.to_vec()), 1..3);
    prop_oneof![Just(Vec::new()), some.prop_map(|chosen| strings(&chosen))]
}
