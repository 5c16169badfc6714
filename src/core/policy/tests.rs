use super::consent::GrantProof;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::*;

#[test]
fn every_problem_is_reported_with_its_place() {
    let spec = PolicySpec {
        default: RuleEffect::Ask,
        rules: vec![
            rule("same", RuleEffect::Deny),
            RuleSpec { tools: strings(&["a__[", "*", ""]), ..rule("same", RuleEffect::Ask) },
            RuleSpec { callers: strings(&["{a"]), upstreams: strings(&["]["]), ..rule("", RuleEffect::Allow) },
            rule("default", RuleEffect::Allow),
            rule("two words", RuleEffect::Allow),
        ],
        scopes: Vec::new(),
        limits: vec![
            LimitSpec { rate: Some(Rate { count: 0, per: RateUnit::Day }), ..limit("same", 1) },
            limit("no-burst", 0),
            LimitSpec { key: Vec::new(), ..limit("no-key", 1) },
            LimitSpec { key: vec![KeyPart::Tool, KeyPart::Tool], ..limit("twice", 1) },
            LimitSpec { rate: Some(Rate { count: 1, per: RateUnit::Day }), ..limit("endless", u32::MAX) },
            LimitSpec { rate: None, ..limit("nothing", 1) },
            LimitSpec { per_day: Some(0), ..limit("no-day", 1) },
            LimitSpec { concurrent: Some(u32::MAX), ..limit("all-places", 1) },
        ],
    };
    let problems = Policy::build(&spec).unwrap_err();
    let mut places: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    places.sort_unstable();
    let expected = [
        "policy.limits[0].rate",
        "policy.limits[1].burst",
        "policy.limits[2].key",
        "policy.limits[3].key",
        "policy.limits[4].burst",
        "policy.limits[5]",
        "policy.limits[6].per-day",
        "policy.limits[7].concurrent",
        "policy.rules[1].id",
        "policy.rules[1].tools[0]",
        "policy.rules[1].tools[2]",
        "policy.rules[2].callers[0]",
        "policy.rules[2].id",
        "policy.rules[2].upstreams[0]",
        "policy.rules[3].id",
        "policy.rules[4].id",
    ];
    assert_eq!(places, expected);
    assert!(problems.iter().all(|problem| !problem.message.is_empty()));
}

#[test]
fn a_rule_is_about_what_it_names() {
    let all = [
        (ActionKind::Tool, "a", "a__x"),
        (ActionKind::Prompt, "a", "a__x"),
        (ActionKind::Resource, "a", "a+x:1"),
        (ActionKind::Completion, "a", "a__x"),
        (ActionKind::Completion, "a", "a+x:1"),
        (ActionKind::Tool, "b", "b__x"),
    ];
    let none = rule("r", RuleEffect::Deny);
    let star = || strings(&["*"]);
    let rows = [
        ("nothing named", none.clone(), "tprcCb"),
        ("upstream", RuleSpec { upstreams: strings(&["a"]), ..none.clone() }, "tprcC"),
        ("tools", RuleSpec { tools: star(), ..none.clone() }, "tb"),
        ("prompts", RuleSpec { prompts: star(), ..none.clone() }, "pc"),
        ("resources", RuleSpec { resources: star(), ..none.clone() }, "rC"),
        ("tools and prompts", RuleSpec { tools: star(), prompts: star(), ..none.clone() }, "tpcb"),
        ("tools of an upstream", RuleSpec { tools: star(), upstreams: strings(&["b"]), ..none.clone() }, "b"),
        ("original name", RuleSpec { tools: strings(&["x"]), ..none.clone() }, ""),
        ("canonical name", RuleSpec { tools: strings(&["a__x"]), ..none.clone() }, "t"),
        ("this caller", RuleSpec { callers: strings(&["lo*"]), ..none.clone() }, "tprcCb"),
        ("another caller", RuleSpec { callers: strings(&["ci"]), ..none }, ""),
    ];
    for (label, rule, expected) in rows {
        let policy = Policy::build(&spec(vec![rule])).unwrap();
        let hit = all.iter().zip("tprcCb".chars()).filter(|((kind, upstream, canonical), _)| {
            let subject = RuleSubject::ungrouped(Caller::local(), "", Annotations::ASSUMED);
            policy.hidden(&policy.item_rules(*kind, upstream, canonical), &subject)
        });
        assert_eq!(hit.map(|(_, letter)| letter).collect::<String>(), expected, "{label}");
    }
}

#[test]
fn a_doubtful_uri_is_denied_but_not_allowed_by_patterns() {
    let doubtful = "fs+file:///srv/../etc/passwd";
    let named = |effect| RuleSpec { resources: strings(&["fs+file:///srv/*"]), ..rule("srv", effect) };
    for effect in [RuleEffect::Allow, RuleEffect::Deny] {
        let default = if effect == RuleEffect::Allow { RuleEffect::Deny } else { RuleEffect::Allow };
        let policy = Policy::build(&PolicySpec { default, ..spec(vec![named(effect)]) }).unwrap();
        let item = policy.item_rules(ActionKind::Resource, "fs", doubtful);
        let subject = RuleSubject::ungrouped(Caller::local(), "", Annotations::ASSUMED);
        assert!(policy.hidden(&item, &subject), "{effect:?}");
    }
    let policy = Policy::build(&spec(vec![])).unwrap();
    assert!(
        !policy.hidden(
            &policy.item_rules(ActionKind::Resource, "fs", doubtful),
            &RuleSubject::ungrouped(Caller::local(), "", Annotations::ASSUMED)
        ),
        "no rule, no doubt"
    );
}

#[test]
fn patterns_can_be_tried_on_an_inventory() {
    let rules = vec![RuleSpec {
        tools: strings(&["a__*", "typo__x"]),
        callers: strings(&["ci"]),
        ..rule("r", RuleEffect::Deny)
    }];
    let limits = vec![LimitSpec { upstreams: strings(&["b"]), ..limit("l", 1) }];
    let policy = Policy::build(&PolicySpec { limits, ..spec(rules) }).unwrap();
    let found: Vec<_> =
        policy.patterns().map(|p| (p.table, p.id, p.field, p.text().to_owned(), p.matches("a__x"))).collect();
    let expected = [
        (PolicyTable::Rules, "r", PatternField::Tools, "a__*".to_owned(), true),
        (PolicyTable::Rules, "r", PatternField::Tools, "typo__x".to_owned(), false),
        (PolicyTable::Rules, "r", PatternField::Callers, "ci".to_owned(), false),
        (PolicyTable::Limits, "l", PatternField::Upstreams, "b".to_owned(), false),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_policy_that_denies_all_is_noticed() {
    let deny = |rules| Policy::build(&PolicySpec { default: RuleEffect::Deny, ..spec(rules) }).unwrap();
    assert!(deny(vec![]).denies_all());
    assert!(deny(vec![rule("r", RuleEffect::Deny)]).denies_all());
    assert!(!deny(vec![rule("r", RuleEffect::Allow)]).denies_all());
    assert!(!Policy::build(&spec(vec![])).unwrap().denies_all());
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Makes a policy that allows everything that no rule matches.
pub(super) fn spec(rules: Vec<RuleSpec>) -> PolicySpec {
    PolicySpec { default: RuleEffect::Allow, rules, scopes: Vec::new(), limits: Vec::new() }
}

/// Makes a rule about everything.
pub(super) fn rule(id: &str, effect: RuleEffect) -> RuleSpec {
    RuleSpec::new(id, effect)
}

/// Makes a limit of one call a second on everything, with a bucket for each caller.
pub(super) fn limit(id: &str, burst: u32) -> LimitSpec {
    LimitSpec {
        id: id.to_owned(),
        tools: Vec::new(),
        upstreams: Vec::new(),
        callers: Vec::new(),
        groups: Vec::new(),
        key: vec![KeyPart::Caller],
        rate: Some(Rate { count: 1, per: RateUnit::Second }),
        burst,
        concurrent: None,
        per_day: None,
    }
}

pub(super) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A tool call of a client without a profile; the tool states no hints.
pub(super) static TOOL: LazyLock<PolicyAction> = LazyLock::new(|| PolicyAction::stand_in("local", "a", "a__x"));

/// A consent function for decisions that finds no grant.
pub(super) fn nobody(_: &Arc<str>, _: ApprovalEvidence) -> Option<GrantProof> {
    None
}
