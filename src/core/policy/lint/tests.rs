use super::super::tests::{rule, spec, strings};
use super::super::{ActionKind, ApprovalEvidence, Policy};
use super::*;

fn problems(default: RuleEffect, rules: Vec<RuleSpec>) -> Vec<String> {
    let spec = PolicySpec { default, ..spec(rules) };
    Policy::build(&spec).err().into_iter().flatten().map(|problem| problem.to_string()).collect()
}

fn at(pointer: &str, matcher: MatcherSpec) -> ArgumentSpec {
    ArgumentSpec { pointer: pointer.to_owned(), matcher }
}

fn text(text: &str) -> ScalarSpec {
    ScalarSpec::Text(text.to_owned())
}

#[test]
fn a_rule_that_can_never_match_is_refused() {
    let deny = || rule("r", RuleEffect::Deny);
    let tools = || strings(&["a__x"]);
    let both = Hints { read_only: Some(true), destructive: Some(true), ..Hints::default() };
    let reads = Hints { read_only: Some(true), ..Hints::default() };
    let bcc = || vec![at("/bcc", MatcherSpec::Present)];
    for (label, rule, want) in [
        (
            "kinds beside the lists",
            RuleSpec { tools: tools(), kinds: vec![ActionKind::Prompt], ..deny() },
            ".kinds: never matches",
        ),
        (
            "a launch of a tool",
            RuleSpec { tools: tools(), kinds: vec![ActionKind::Launch], ..deny() },
            ".kinds: never matches",
        ),
        (
            "annotations of prompts",
            RuleSpec { prompts: tools(), annotations: reads, ..deny() },
            ".annotations: never matches",
        ),
        ("claims of prompts", RuleSpec { prompts: tools(), claims: reads, ..deny() }, ".claims: never matches"),
        (
            "an allow by claims at odds",
            RuleSpec { claims: both, ..rule("r", RuleEffect::Allow) },
            ".claims: never matches: a tool that calls itself",
        ),
        ("annotations at odds", RuleSpec { annotations: both, ..deny() }, ".annotations: never matches"),
        (
            "an ask for sampling",
            RuleSpec { kinds: vec![ActionKind::Sampling], ..rule("r", RuleEffect::Ask) },
            ".kinds: cannot wait",
        ),
        (
            "an ask for completions",
            RuleSpec { kinds: vec![ActionKind::Completion], ..rule("r", RuleEffect::Ask) },
            ".kinds: cannot wait",
        ),
        (
            "an allowed launch",
            RuleSpec { kinds: vec![ActionKind::Launch], ..rule("r", RuleEffect::Allow) },
            ".kinds: changes nothing",
        ),
        (
            "evidence for nothing",
            RuleSpec { min_evidence: Some(ApprovalEvidence::Page), ..deny() },
            ".min-evidence: belongs",
        ),
        (
            "arguments of resources",
            RuleSpec { resources: strings(&["a+*"]), arguments: bcc(), ..deny() },
            ".arguments: resources",
        ),
        (
            "arguments of launches",
            RuleSpec { kinds: vec![ActionKind::Launch], unless: bcc(), ..deny() },
            ".unless: never matters",
        ),
        (
            "arguments of a server's questions",
            RuleSpec { kinds: vec![ActionKind::Sampling, ActionKind::Elicitation], arguments: bcc(), ..deny() },
            ".arguments: never matters",
        ),
        (
            "arguments of calls and of a server's questions",
            RuleSpec { kinds: vec![ActionKind::Tool, ActionKind::Sampling], arguments: bcc(), ..deny() },
            ".arguments: what a server may ask is decided before it asks",
        ),
        ("an exception of all", RuleSpec { arguments: bcc(), unless: bcc(), ..deny() }, ".unless: excepts all"),
    ] {
        let found = problems(RuleEffect::Ask, vec![rule]);
        assert_eq!(found.len(), 1, "{label}: {found:?}");
        assert!(found[0].starts_with(&format!("policy.rules[0]{want}")), "{label}: {found:?}");
    }
}

#[test]
fn arguments_that_cannot_hold_together_are_refused() {
    use MatcherSpec::{Absent, CidrIn, Eq, In, MaxItems, MaxLen, Ne, PathUnder, Prefix, Present, Range, Suffix, Type};
    let under = |path: &str| PathUnder(path.to_owned());
    let prefix = |text: &str| Prefix(text.to_owned());
    let range = |min, max| Range { min, max };
    for (label, one, other, clashes) in [
        ("two values", Eq(text("a")), Eq(text("b")), true),
        ("one value twice", Eq(text("a")), Eq(text("a")), false),
        ("a value and its contrary", Eq(text("a")), Ne(text("a")), true),
        ("two contraries", Ne(text("a")), Ne(text("b")), false),
        ("lists without a common value", In(vec![text("a")]), In(vec![text("b"), text("c")]), true),
        ("lists with one", In(vec![text("a"), text("b")]), In(vec![text("b")]), false),
        ("there and not", Absent, Present, true),
        ("a value that is not there", Absent, Eq(text("a")), true),
        ("a value that is there", Present, Eq(text("a")), false),
        ("a value outside", Eq(text("/etc")), under("/srv"), true),
        ("a value inside", Eq(text("/srv/a")), under("/srv"), false),
        ("directories apart", under("/srv"), under("/etc/"), true),
        ("siblings of one beginning", under("/srv"), under("/srv2"), true),
        ("one below the other", under("/srv"), under("/srv/a"), false),
        ("beginnings apart", prefix("/a"), prefix("/b"), true),
        ("one beginning", prefix("/a"), prefix("/a/b"), false),
        ("a beginning outside", prefix("/etc/"), under("/srv"), true),
        ("a beginning inside", prefix("/srv/x"), under("/srv/"), false),
        ("ends apart", Suffix(".md".into()), Suffix(".txt".into()), true),
        ("ranges apart", range(Some(5.0), None), range(None, Some(4.0)), true),
        ("ranges that meet", range(Some(5.0), None), range(None, Some(5.0)), false),
        ("a value out of range", Eq(ScalarSpec::Number(7.0)), range(None, Some(5.0)), true),
        ("a text and a number", prefix("a"), range(None, Some(5.0)), true),
        ("a text and an array", MaxLen(1), MaxItems(1), true),
        ("two types", Type(JsonType::Array), Type(JsonType::Object), true),
        ("an integer is a number", Type(JsonType::Integer), range(Some(0.0), None), false),
        ("a value too long", Eq(text("long")), MaxLen(2), true),
        ("a name for an address", Eq(text("10.0.0.1")), CidrIn(strings(&["11.0.0.0/8"])), true),
    ] {
        for (first, second) in [(one.clone(), other.clone()), (other, one)] {
            let list = vec![at("/p", first.clone()), at("/q", Present), at("/p", second.clone())];
            for (key, rule) in [
                ("arguments", RuleSpec { arguments: list.clone(), ..rule("r", RuleEffect::Allow) }),
                ("unless", RuleSpec { unless: list.clone(), ..rule("r", RuleEffect::Deny) }),
            ] {
                let found = problems(RuleEffect::Ask, vec![rule]);
                let want = clashes.then(|| {
                    format!("policy.rules[0].{key}[2]: cannot hold together with {key}[0], so the two never hold")
                });
                assert_eq!(found, want.into_iter().collect::<Vec<_>>(), "{label}, {key}");
            }
        }
    }
    let elements = vec![at("/l/*", Eq(text("a"))), at("/l/*", Eq(text("b")))];
    let rule = RuleSpec { arguments: elements, ..rule("r", RuleEffect::Deny) };
    assert!(problems(RuleEffect::Ask, vec![rule]).is_empty(), "two elements may each have one");
}

#[test]
fn a_rule_in_the_shadow_of_another_is_refused() {
    let of = |effect, tools: &[&str]| RuleSpec { tools: strings(tools), ..rule("r", effect) };
    let first = |rule: RuleSpec| RuleSpec { id: "first".to_owned(), ..rule };
    let upstream = |rule: RuleSpec, name: &str| RuleSpec { upstreams: strings(&[name]), ..rule };
    let caller = |rule: RuleSpec, name: &str| RuleSpec { callers: strings(&[name]), ..rule };
    let present = |rule: RuleSpec| RuleSpec { arguments: vec![at("/p", MatcherSpec::Present)], ..rule };
    let reads =
        |rule: RuleSpec, value| RuleSpec { annotations: Hints { read_only: Some(value), ..Hints::default() }, ..rule };
    let says =
        |rule: RuleSpec, value| RuleSpec { claims: Hints { read_only: Some(value), ..Hints::default() }, ..rule };
    let kinds = |rule: RuleSpec, kinds: &[ActionKind]| RuleSpec { kinds: kinds.to_vec(), ..rule };
    use RuleEffect::{Allow, Ask, Deny};
    for (label, wide, narrow, shadowed) in [
        ("the same tools", of(Deny, &["a__*"]), of(Allow, &["a__*"]), true),
        ("fewer tools", of(Deny, &["a__*"]), of(Ask, &["a__x", "a__y*"]), true),
        ("everything", of(Deny, &[]), of(Allow, &["a__x"]), true),
        ("all tools", of(Deny, &["*"]), of(Allow, &["a__x"]), true),
        ("an ask over an allow", of(Ask, &["a__*"]), of(Allow, &["a__x"]), true),
        ("the whole upstream", upstream(of(Deny, &[]), "a"), of(Allow, &["a__x"]), true),
        ("a conditional allow", of(Deny, &["a__*"]), present(of(Allow, &["a__x"])), true),
        ("one caller of all", of(Deny, &["a__*"]), caller(of(Allow, &["a__x"]), "ci"), true),
        ("the same kind of tools", reads(of(Deny, &["a__*"]), false), reads(of(Allow, &["a__x"]), false), true),
        ("tools that say the same", says(of(Ask, &["a__*"]), true), says(of(Allow, &["a__x"]), true), true),
        ("tools that say otherwise", says(of(Deny, &["a__*"]), false), says(of(Allow, &["a__x"]), true), false),
        ("tools that say nothing too", says(of(Deny, &["a__*"]), false), of(Allow, &["a__x"]), false),
        ("claims and annotations", reads(of(Deny, &["a__*"]), false), says(of(Allow, &["a__x"]), true), false),
        ("calls and tasks", kinds(of(Deny, &[]), &[ActionKind::Tool]), of(Allow, &["a__x"]), true),
        ("more tools", of(Deny, &["a__x"]), of(Allow, &["a__*"]), false),
        ("other tools too", of(Deny, &["a__x"]), of(Allow, &["a__x", "b__x"]), false),
        ("another upstream", upstream(of(Deny, &[]), "b"), of(Allow, &["a__x"]), false),
        ("other callers", caller(of(Deny, &["a__*"]), "ci"), of(Allow, &["a__x"]), false),
        ("a conditional deny", present(of(Deny, &["a__*"])), of(Allow, &["a__x"]), false),
        ("another kind of tools", reads(of(Deny, &["a__*"]), false), reads(of(Allow, &["a__x"]), true), false),
        ("any kind of tools", reads(of(Deny, &["a__*"]), false), of(Allow, &["a__x"]), false),
        ("only tasks", kinds(of(Deny, &[]), &[ActionKind::Task]), of(Allow, &["a__x"]), false),
        (
            "prompts of that name",
            of(Deny, &["a__*"]),
            RuleSpec { prompts: strings(&["a__x"]), ..rule("r", Allow) },
            false,
        ),
        ("an allow over an ask", of(Allow, &["a__*"]), of(Ask, &["a__x"]), false),
    ] {
        for order in [vec![first(wide.clone()), narrow.clone()], vec![narrow, first(wide)]] {
            let found = problems(Ask, order);
            assert_eq!(found.len(), usize::from(shadowed), "{label}: {found:?}");
            assert!(
                found.iter().all(|found| found.contains("never decides anything: rule `first`")),
                "{label}: {found:?}"
            );
        }
    }
    let all = vec![first(of(Ask, &[])), of(Allow, &[])];
    assert_eq!(problems(Allow, all.clone()).len(), 1);
    assert_eq!(problems(Deny, all), [""; 0], "completions need the second rule where the default denies");
}

#[test]
fn a_rule_that_stands_twice_is_refused() {
    let present = || RuleSpec { arguments: vec![at("/p", MatcherSpec::Present)], ..rule("one", RuleEffect::Deny) };
    let twice = vec![present(), RuleSpec { id: "two".to_owned(), ..present() }];
    let want = "policy.rules[1]: says the same as rule `one`; remove one of the two";
    assert_eq!(problems(RuleEffect::Ask, twice), [want]);
}
