//! Rules over claims: a server's claims allow a call only if nothing is against the tool, and
//! always deny or ask.

use proptest::prelude::*;

use super::any::{any_case, any_spec};
use super::*;
use crate::mcp::definition::annotations::Hints;
use crate::mcp::definition::claims::Claims;

fn freedom(decision: &Decision) -> u8 {
    match decision {
        Decision::Deny { .. } | Decision::Scope { .. } => 0,
        Decision::Ask { .. } | Decision::Limit { .. } => 1,
        Decision::Allow(_) => 2,
    }
}

fn hints(read_only: Option<bool>, destructive: Option<bool>, open_world: Option<bool>) -> Hints {
    Hints { read_only, destructive, idempotent: None, open_world }
}

#[test]
fn what_a_server_says_counts_and_what_it_does_not_say_binds() {
    let (yes, no) = (Some(true), Some(false));
    let rules = vec![
        RuleSpec { claims: hints(yes, None, no), ..rule("reads", RuleEffect::Allow) },
        RuleSpec { claims: hints(None, yes, None), tools: strings(&["a__x"]), ..rule("deletes", RuleEffect::Deny) },
    ];
    let policy = compile(&PolicySpec { default: RuleEffect::Ask, ..spec(rules) });
    for (label, canonical, claims, may_open, want) in [
        ("reads inside", "a__y", hints(yes, None, no), true, "allow reads"),
        ("reads inside, and may open nothing", "a__y", hints(yes, None, no), false, "ask default"),
        ("reads outside", "a__y", hints(yes, None, yes), true, "ask default"),
        ("reads, and does not say where", "a__y", hints(yes, None, None), true, "ask default"),
        ("writes", "a__y", hints(no, None, no), true, "ask default"),
        ("says nothing", "a__y", hints(None, None, None), true, "ask default"),
        ("says nothing, under a deny", "a__x", hints(None, None, None), true, "deny deletes"),
        ("deletes, and may open nothing", "a__x", hints(no, yes, None), false, "deny deletes"),
        ("deletes nothing, and may open nothing", "a__x", hints(no, no, None), false, "ask default"),
        ("reads and deletes nothing", "a__x", hints(yes, no, no), true, "allow reads"),
    ] {
        let action =
            PolicyAction { canonical: canonical.into(), claims: Claims { hints: claims, may_open }, ..TOOL.clone() };
        assert_eq!(told(&outcome(&policy, &action)), want, "{label}");
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let effect = policy.effect(&item, &RuleSubject::ungrouped(Caller::local(), "", action.facts()));
        assert_eq!(effect.into_str(), want.split(' ').next().unwrap(), "{label}");
        let hidden = policy.hidden(&item, &RuleSubject::ungrouped(Caller::local(), "", action.facts()));
        assert_eq!(hidden, want.starts_with("deny"), "{label}: what is denied with any arguments is not listed");
    }
}

#[test]
fn a_dry_run_tells_why_the_word_of_a_server_does_not_count() {
    let rules = vec![RuleSpec { claims: hints(Some(true), None, None), ..rule("reads", RuleEffect::Allow) }];
    let policy = compile(&PolicySpec { default: RuleEffect::Ask, ..spec(rules) });
    let item = policy.item_rules(TOOL.kind, &TOOL.upstream, &TOOL.canonical);
    for (said, may_open, matches, why) in [
        (Some(true), true, "yes", None),
        (None, true, "unknown", Some("does not say")),
        (Some(true), false, "unknown", Some("new, in doubt")),
    ] {
        let claims = Claims { hints: hints(said, None, None), may_open };
        let rules = matching_rules(&policy, &item, &PolicyAction { claims, ..TOOL.clone() });
        assert_eq!(rules[0].matches, matches, "{said:?} {may_open}");
        assert!(rules[0].why.unwrap_or_default().contains(why.unwrap_or_default()), "{said:?} {may_open}");
        assert_eq!(rules[0].why.is_some(), why.is_some(), "{said:?} {may_open}");
    }
    let other =
        PolicyAction { claims: Claims { hints: hints(Some(false), None, None), may_open: true }, ..TOOL.clone() };
    assert!(matching_rules(&policy, &item, &other).is_empty(), "a rule that is not about it is not told");
}

proptest! {
    #[test]
    fn words_that_may_open_nothing_open_nothing(spec in any_spec(), action in any_case()) {
        let action = PolicyAction { claims: Claims { may_open: false, ..action.claims }, ..action };
        let mut without = spec.clone();
        without.rules.retain(|rule| rule.effect != RuleEffect::Allow || rule.claims.is_empty());
        let (with, without) = (outcome(&compile(&spec), &action), outcome(&compile(&without), &action));
        prop_assert_eq!(measure(&with), measure(&without));
    }

    #[test]
    fn saying_less_or_being_heard_less_never_allows_more(spec in any_spec(), action in any_case(), left_out in 0..4_u8) {
        let mut claims = action.claims;
        match left_out {
            0 => claims.hints.read_only = None,
            1 => claims.hints.destructive = None,
            2 => claims.hints.open_world = None,
            _ => claims.may_open = false,
        }
        let policy = compile(&spec);
        let (before, after) = (outcome(&policy, &action), outcome(&policy, &PolicyAction { claims, ..action.clone() }));
        // An ask rule that may match is asked about even if the default denies.
        let is_by_default = matches!(&before, Decision::Deny { rule, .. } if &**rule == "default");
        let may_be_asked = is_by_default && matches!(after, Decision::Ask { .. });
        prop_assert!(freedom(&after) <= freedom(&before) || may_be_asked, "{before:?} became {after:?}");
        let need = |decision: &Decision| if let Decision::Ask { need, .. } = decision { Some(*need) } else { None };
        if let (Some(before), Some(after)) = (need(&before), need(&after)) {
            prop_assert!(after >= before);
        }
    }

    #[test]
    fn a_call_under_way_goes_on_only_where_it_would_be_allowed_now(spec in any_spec(), action in any_case()) {
        let policy = compile(&spec);
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let unheard = PolicyAction { claims: Claims { may_open: false, ..action.claims }, ..action.clone() };
        let still = is_still_allowed(&policy, &item, &unheard, &|_, _| false);
        prop_assert_eq!(still, matches!(outcome(&policy, &unheard), Decision::Allow(_)));
    }
}
