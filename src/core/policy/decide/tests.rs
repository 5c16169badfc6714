use proptest::prelude::*;
use strum::VariantArray as _;

use self::any::{any_case, any_rule, any_spec};
use super::super::tests::{SECOND, TOOL, limit, nobody, rule, spec, strings};
use super::super::{PolicySpec, RuleSpec};
use super::*;
use crate::policy::action::ToolFacts;
use crate::policy::rules::arguments::{ArgumentSpec, MatcherSpec, ScalarSpec};
use crate::policy::rules::problems::PolicyProblems;
use crate::wire::json::raw::RawJson;

mod any;
mod claims;
mod reference;
mod rights;
mod unknown;

#[test]
fn deny_beats_ask_beats_allow_beats_the_default() {
    use RuleEffect::{Allow, Ask, Deny};
    let rows: [(&str, RuleEffect, &[RuleEffect], &str); 9] = [
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
        assert_eq!(told(&outcome(&policy, &TOOL)), expected, "{label}");
    }
}

#[test]
fn what_may_be_asked_about_is_told_without_arguments() {
    use RuleEffect::{Allow, Ask, Deny};
    let prompt = PolicyAction { kind: ActionKind::Prompt, canonical: "a__x".into(), ..TOOL.clone() };
    let looks = |id: &str, effect| {
        let matcher = ArgumentSpec { pointer: "/n".to_owned(), matcher: MatcherSpec::Eq(ScalarSpec::Number(1.0)) };
        RuleSpec { prompts: strings(&["a__x"]), arguments: vec![matcher], ..rule(id, effect) }
    };
    let strong = RuleSpec { min_evidence: Some(ApprovalEvidence::Operator), ..rule("strong", Ask) };
    let rows = [
        ("default allow", Allow, vec![], None),
        ("default ask", Ask, vec![], Some(("default", ApprovalEvidence::Client))),
        ("default deny", Deny, vec![], None),
        ("a rule that asks", Allow, vec![rule("r", Ask)], Some(("r", ApprovalEvidence::Client))),
        ("one that asks about some arguments", Allow, vec![looks("r", Ask)], Some(("r", ApprovalEvidence::Client))),
        ("the strictest", Allow, vec![rule("r", Ask), strong], Some(("strong", ApprovalEvidence::Operator))),
        ("allowed over the default", Ask, vec![rule("r", Allow)], None),
        ("allowed with some arguments", Ask, vec![looks("r", Allow)], Some(("default", ApprovalEvidence::Client))),
        ("allowed and asked about", Ask, vec![rule("r", Allow), rule("s", Ask)], Some(("s", ApprovalEvidence::Client))),
    ];
    for (label, default, rules, expected) in rows {
        let policy = compile(&PolicySpec { default, ..spec(rules) });
        let item = policy.item_rules(prompt.kind, &prompt.upstream, &prompt.canonical);
        let told = asking_rule(&policy, &item, &prompt).map(|(rule, need)| (&**rule, need));
        assert_eq!(told, expected, "{label}");
        let other = PolicyAction { upstream: "b".into(), ..prompt.clone() };
        assert_eq!(asking_rule(&policy, &item, &other).map(|(rule, _)| &**rule), Some("doubt"), "{label}");
    }
}

#[test]
fn facts_that_do_not_fit_are_denied() {
    let policy = compile(&spec(vec![rule("all", RuleEffect::Allow)]));
    let item = policy.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
    let limiter = Limiter::new(&policy);
    let rows = [
        ("fits", TOOL.clone(), "allow all"),
        ("no caller", PolicyAction { caller: Caller::named(""), ..TOOL.clone() }, "deny doubt"),
        ("another upstream", PolicyAction { upstream: "b".into(), ..TOOL.clone() }, "deny doubt"),
        ("another item", PolicyAction { canonical: "a__y".into(), ..TOOL.clone() }, "deny doubt"),
        ("another kind", PolicyAction { kind: ActionKind::Prompt, ..TOOL.clone() }, "deny doubt"),
    ];
    for (label, action, expected) in rows {
        assert_eq!(told(&decide(&policy, &item, &action, &nobody, &limiter, SECOND)), expected, "{label}");
    }
    let item = policy.item_rules(ActionKind::Tool, "a", "b__x");
    let action = PolicyAction { canonical: "b__x".into(), ..TOOL.clone() };
    assert!(policy.hidden(&item, &RuleSubject::ungrouped(Caller::local(), "", TOOL.annotations)));
    assert_eq!(told(&decide(&policy, &item, &action, &nobody, &limiter, SECOND)), "deny doubt");
}

#[test]
fn parts_of_another_policy_are_denied() {
    let limited = PolicySpec { limits: vec![limit("l", 9)], ..spec(vec![]) };
    let (old, new) = (compile(&limited), compile(&limited));
    let old_item = old.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
    let new_item = new.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
    let (old_limiter, new_limiter) = (Limiter::new(&old), Limiter::new(&new));
    assert_eq!(told(&decide(&new, &new_item, &TOOL, &nobody, &new_limiter, SECOND)), "allow default");
    assert_eq!(told(&decide(&new, &old_item, &TOOL, &nobody, &new_limiter, SECOND)), "deny doubt");
    assert_eq!(told(&decide(&new, &new_item, &TOOL, &nobody, &old_limiter, SECOND)), "deny doubt");
    assert_eq!(told(&decide(&new.clone(), &new_item, &TOOL, &nobody, &new_limiter, SECOND)), "allow default");
}

#[test]
fn a_refused_call_burns_no_quota() {
    for effect in [RuleEffect::Deny, RuleEffect::Ask] {
        let stop = RuleSpec { tools: strings(&["a__stop"]), ..rule("stop", effect) };
        let policy = compile(&PolicySpec { limits: vec![limit("l", 1)], ..spec(vec![stop]) });
        let limiter = Limiter::new(&policy);
        let action = PolicyAction { canonical: "a__stop".into(), ..TOOL.clone() };
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        for _ in 0..5 {
            let refused = decide(&policy, &item, &action, &nobody, &limiter, SECOND);
            assert!(told(&refused).ends_with(" stop"), "{refused:?}");
        }
        let item = policy.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
        assert_eq!(told(&decide(&policy, &item, &TOOL, &nobody, &limiter, SECOND)), "allow default");
        assert_eq!(told(&decide(&policy, &item, &TOOL, &nobody, &limiter, SECOND)), "limit l 1s");
    }
}

#[test]
fn a_permit_names_the_rule_that_gave_it() {
    let policy = compile(&spec(vec![rule("yes", RuleEffect::Allow)]));
    let Decision::Allow(permit) = outcome(&policy, &TOOL) else { panic!("not allowed") };
    assert_eq!(&**permit.rule(), "yes");
}

#[test]
fn kinds_that_cannot_ask_never_ask() {
    use RuleEffect::{Allow, Ask, Deny};
    let about_all = |effect| RuleSpec { kinds: ActionKind::VARIANTS.to_vec(), ..rule("r", effect) };
    for (label, default, effect, want) in [
        // Decisions for a tool, a completion and sampling.
        ("default ask", Ask, None, "ask allow allow"),
        ("default deny", Deny, None, "deny deny allow"),
        ("default allow", Allow, None, "allow allow allow"),
        ("ask", Allow, Some(Ask), "ask allow allow"),
        ("ask under a default that denies", Deny, Some(Ask), "ask deny allow"),
        ("deny", Allow, Some(Deny), "deny deny deny"),
        ("allow", Deny, Some(Allow), "allow allow allow"),
    ] {
        let policy = compile(&PolicySpec { default, ..spec(effect.map(about_all).into_iter().collect()) });
        let found = [(ActionKind::Tool, "a__x"), (ActionKind::Completion, "a__x"), (ActionKind::Sampling, "a")].map(
            |(kind, canonical)| {
                let told = told(&outcome(&policy, &PolicyAction { kind, canonical: canonical.into(), ..TOOL.clone() }));
                told.split(' ').next().unwrap().to_owned()
            },
        );
        assert_eq!(found.join(" "), want, "{label}");
    }
}

#[test]
fn rules_are_about_servers_only_where_they_say_so() {
    let policy = compile(&spec(vec![rule("all", RuleEffect::Deny)]));
    for kind in [ActionKind::Sampling, ActionKind::Elicitation, ActionKind::Launch] {
        let action = PolicyAction { kind, canonical: "a".into(), ..TOOL.clone() };
        assert_eq!(told(&outcome(&policy, &action)), "allow default", "{kind:?}");
        let stated = compile(&spec(vec![RuleSpec { kinds: vec![kind], ..rule("stated", RuleEffect::Deny) }]));
        assert_eq!(told(&outcome(&stated, &action)), "deny stated", "{kind:?}");
        for (policy, caller, want) in
            [(&policy, "p", None), (&stated, "p", Some("stated")), (&policy, "", Some("doubt"))]
        {
            let item = policy.item_rules(kind, "a", "a");
            assert_eq!(
                policy
                    .forbidding(&item, &RuleSubject::ungrouped(&Caller::named(caller), "", ToolFacts::default()))
                    .map(|rule| &**rule),
                want,
                "{kind:?} {caller:?}"
            );
        }
        assert_eq!(told(&outcome(&stated, &TOOL)), "allow default", "{kind:?}");
    }
}

#[test]
fn the_evidence_is_the_most_that_anything_wants() {
    let ask = |id: &str, evidence| RuleSpec { min_evidence: evidence, ..rule(id, RuleEffect::Ask) };
    let known = Annotations { known_destructive: true, ..Annotations::ASSUMED };
    for (label, rules, annotations, want) in [
        ("nothing said", vec![ask("a", None)], TOOL.annotations, ("a", "L1")),
        ("known to destroy", vec![ask("a", None)], known, ("a", "L2")),
        ("a rule wants less", vec![ask("a", Some(ApprovalEvidence::Client))], known, ("a", "L2")),
        ("a rule wants more", vec![ask("a", Some(ApprovalEvidence::Operator))], known, ("a", "L3")),
        ("two rules", vec![ask("a", None), ask("b", Some(ApprovalEvidence::Page))], TOOL.annotations, ("b", "L2")),
        ("the default", vec![], known, ("default", "L2")),
    ] {
        let policy = compile(&PolicySpec { default: RuleEffect::Ask, ..spec(rules) });
        let decision = outcome(&policy, &PolicyAction { annotations, ..TOOL.clone() });
        let Decision::Ask { rule, need } = decision else { panic!("{label}: {decision:?}") };
        assert_eq!((&*rule, need.into_str()), want, "{label}");
    }
}

#[test]
fn a_consent_allows_what_a_rule_asks_about_and_nothing_else() {
    let rules = vec![
        RuleSpec { tools: strings(&["a__no"]), ..rule("no", RuleEffect::Deny) },
        RuleSpec { tools: strings(&["a__x"]), ..rule("ask", RuleEffect::Ask) },
    ];
    let policy = compile(&PolicySpec { limits: vec![limit("l", 1)], ..spec(rules) });
    let limiter = Limiter::new(&policy);
    let asked = std::cell::RefCell::new(Vec::new());
    let consent = |rule: &Arc<str>, need: ApprovalEvidence| {
        asked.borrow_mut().push(format!("{rule} {}", need.into_str()));
        Some(GrantProof::stand_in("g"))
    };
    let decided = |canonical: &str| {
        let action = PolicyAction { canonical: canonical.into(), ..TOOL.clone() };
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        decide(&policy, &item, &action, &consent, &limiter, SECOND)
    };
    assert_eq!(told(&decided("a__no")), "deny no");
    assert!(asked.borrow().is_empty(), "nobody is asked about what is denied");
    let Decision::Allow(permit) = decided("a__x") else { panic!("not allowed") };
    assert_eq!((&**permit.rule(), permit.grant().map(|grant| &**grant.id())), ("ask", Some("g")));
    assert!(permit.onward().grant().is_some());
    assert_eq!(told(&decided("a__x")), "limit l 1s", "the consent is not spent on what a limit refuses");
    assert_eq!(*asked.borrow(), ["ask L1", "ask L1"]);
}

#[test]
fn what_goes_on_is_asked_of_deny_rules_alone() {
    let path = |effect| RuleSpec {
        arguments: vec![ArgumentSpec { pointer: "/p".to_owned(), matcher: MatcherSpec::Present }],
        ..rule("p", effect)
    };
    let raw = RawJson::trusted(r#"{"p":1}"#);
    let call = PolicyAction { arguments: Some(raw.clone()), ..TOOL.clone() };
    let task = PolicyAction { kind: ActionKind::Task, ..TOOL.clone() };
    for (label, default, rules, action, want) in [
        ("a default that denies", RuleEffect::Deny, vec![], TOOL.clone(), "allow again"),
        ("a rule that asks", RuleEffect::Allow, vec![rule("r", RuleEffect::Ask)], TOOL.clone(), "allow again"),
        ("a rule that denies", RuleEffect::Allow, vec![rule("r", RuleEffect::Deny)], TOOL.clone(), "deny r"),
        ("a rule that denies its arguments", RuleEffect::Allow, vec![path(RuleEffect::Deny)], call, "deny p"),
        ("a task of a denied tool", RuleEffect::Allow, vec![rule("r", RuleEffect::Deny)], task.clone(), "deny r"),
        ("a task, which has no arguments", RuleEffect::Allow, vec![path(RuleEffect::Deny)], task, "allow again"),
        (
            "nobody's",
            RuleEffect::Allow,
            vec![],
            PolicyAction { caller: Caller::named(""), ..TOOL.clone() },
            "deny doubt",
        ),
    ] {
        let policy = compile(&PolicySpec { default, ..spec(rules) });
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        assert_eq!(told(&decide_again(&policy, &item, &action)), want, "{label}");
    }
}

#[test]
fn a_denial_by_arguments_leaves_the_item_listed() {
    let present = |effect| RuleSpec {
        arguments: vec![ArgumentSpec { pointer: "/p".to_owned(), matcher: MatcherSpec::Present }],
        ..rule("p", effect)
    };
    let raw = RawJson::trusted(r#"{"p":1}"#);
    let call = PolicyAction { arguments: Some(raw.clone()), ..TOOL.clone() };
    for (label, default, effect, action, want) in [
        ("denied by argument", RuleEffect::Allow, RuleEffect::Deny, call.clone(), (RuleEffect::Deny, false, false)),
        ("another argument", RuleEffect::Allow, RuleEffect::Deny, TOOL.clone(), (RuleEffect::Allow, false, false)),
        ("allowed by argument", RuleEffect::Deny, RuleEffect::Allow, call.clone(), (RuleEffect::Allow, false, false)),
        (
            "not allowed by argument",
            RuleEffect::Deny,
            RuleEffect::Allow,
            TOOL.clone(),
            (RuleEffect::Deny, false, false),
        ),
        ("denied whatever it is", RuleEffect::Deny, RuleEffect::Deny, call, (RuleEffect::Deny, true, true)),
    ] {
        let policy = compile(&PolicySpec { default, ..spec(vec![present(effect)]) });
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let (found, hidden, _) = measure(&outcome(&policy, &action));
        let unlisted = policy.hidden(&item, &RuleSubject::of(&action));
        assert_eq!((found, hidden, unlisted), want, "{label}");
    }
}

#[test]
fn arguments_are_parsed_when_a_rule_needs_them_and_once() {
    let present = RuleSpec {
        callers: strings(&["ci"]),
        arguments: vec![ArgumentSpec { pointer: "/p".to_owned(), matcher: MatcherSpec::Present }],
        ..rule("p", RuleEffect::Deny)
    };
    let policy = compile(&spec(vec![present]));
    let item = policy.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
    let raw = RawJson::trusted(r#"{"p":1}"#);
    for (caller, parsed) in [("local", false), ("ci", true)] {
        let action = PolicyAction { caller: Caller::named(caller), arguments: Some(raw.clone()), ..TOOL.clone() };
        let arguments = CallArguments::new(action.kind, action.arguments.as_ref());
        let fired = item.deny.iter().filter(|rule| rule.fires(&RuleSubject::of(&action), &arguments)).count();
        assert_eq!((fired == 1, arguments.is_parsed()), (parsed, parsed), "{caller}");
    }
}

/// A case that the comparison below finds once in many runs.
#[test]
fn an_element_in_doubt_is_asked_about_beside_one_that_does_not_match() {
    let about =
        ArgumentSpec { pointer: "/l/*/p".to_owned(), matcher: MatcherSpec::Eq(ScalarSpec::Text("a".to_owned())) };
    let asks = spec(vec![RuleSpec { arguments: vec![about], ..rule("0", RuleEffect::Ask) }]);
    for (arguments, expected) in
        [(r#"{"l":[{},"a"]}"#, "ask 0"), (r#"{"l":[{},{"p":"a"}]}"#, "ask 0"), (r#"{"l":[{},{}]}"#, "allow default")]
    {
        let action = PolicyAction { arguments: Some(RawJson::trusted(arguments)), ..TOOL.clone() };
        let found = outcome(&compile(&asks), &action);
        assert_eq!(told(&found), expected, "{arguments}");
        assert_eq!(measure(&found), reference::reference(&asks, &action), "{arguments}");
    }
}

proptest! {
    #[test]
    fn decisions_agree_with_the_definition(spec in any_spec(), action in any_case()) {
        let policy = compile(&spec);
        let found = outcome(&policy, &action);
        prop_assert_eq!(measure(&found), reference::reference(&spec, &action), "{:?}", found);
    }

    #[test]
    fn the_order_of_rules_means_nothing(
        (spec, shuffled) in any_spec().prop_flat_map(|s| (Just(s.clone()), Just(s.rules).prop_shuffle())), action in any_case(),
    ) {
        let other = PolicySpec { rules: shuffled, ..spec.clone() };
        let (one, two) = (told(&outcome(&compile(&spec), &action)), told(&outcome(&compile(&other), &action)));
        prop_assert_eq!(one.split(' ').next(), two.split(' ').next());
    }

    #[test]
    fn one_more_deny_never_allows_more(spec in any_spec(), deny in any_rule(), action in any_case()) {
        let before = outcome(&compile(&spec), &action);
        let mut more = spec;
        more.rules.push(RuleSpec { id: "more".to_owned(), effect: RuleEffect::Deny, ..deny });
        let after = outcome(&compile(&more), &action);
        let freedom = |decision: &Decision| match decision {
            Decision::Deny { .. } | Decision::Scope { .. } => 0,
            Decision::Ask { .. } | Decision::Limit { .. } => 1,
            Decision::Allow(_) => 2,
        };
        prop_assert!(freedom(&after) <= freedom(&before));
    }

    #[test]
    fn what_is_hidden_is_denied_as_hidden_and_nothing_else_is(spec in any_spec(), action in any_case()) {
        let policy = compile(&spec);
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let hidden = matches!(outcome(&policy, &action), Decision::Deny { hidden: true, .. });
        prop_assert_eq!(policy.hidden(&item, &RuleSubject::of(&action)), hidden);
    }

    #[test]
    fn what_goes_on_is_denied_by_the_same_rules(spec in any_spec(), action in any_case()) {
        let rules = spec.rules.into_iter().filter(|rule| rule.effect == RuleEffect::Deny).collect();
        let policy = compile(&PolicySpec { default: RuleEffect::Allow, rules, scopes: Vec::new(), limits: Vec::new() });
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let again = decide_again(&policy, &item, &action);
        prop_assert_eq!(measure(&again), measure(&outcome(&policy, &action)));
    }
}

/// Compiles without the lint, which refuses most random rules.
fn compile(spec: &PolicySpec) -> Policy {
    let mut problems = PolicyProblems::default();
    let policy = Policy::compile(spec, &mut problems);
    assert!(problems.0.is_empty(), "{problems:?}");
    policy
}

fn outcome(policy: &Policy, action: &PolicyAction) -> Decision {
    let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
    decide(policy, &item, action, &nobody, &Limiter::new(policy), SECOND)
}

fn told(decision: &Decision) -> String {
    match decision {
        Decision::Allow(permit) => format!("allow {}", permit.rule()),
        Decision::Ask { rule, .. } => format!("ask {rule}"),
        Decision::Deny { rule, .. } => format!("deny {rule}"),
        Decision::Scope { rule, scopes } => format!("{rule} of {scopes}"),
        Decision::Limit { limit, retry_after } => format!("limit {limit} {retry_after:?}"),
    }
}

/// Returns the effect of a decision, whether it is hidden, and the evidence that it needs.
fn measure(decision: &Decision) -> (RuleEffect, bool, Option<ApprovalEvidence>) {
    match decision {
        Decision::Allow(_) => (RuleEffect::Allow, false, None),
        Decision::Ask { need, .. } => (RuleEffect::Ask, false, Some(*need)),
        Decision::Deny { hidden, .. } => (RuleEffect::Deny, *hidden, None),
        Decision::Scope { .. } | Decision::Limit { .. } => panic!("there are no scopes and limits"),
    }
}
