//! Random policies and calls for the property tests of decisions.

use proptest::prelude::*;
use strum::VariantArray as _;

use super::super::super::tests::{spec, strings};
use super::super::*;
use crate::mcp::definition::annotations::Hints;
use crate::mcp::definition::claims::Claims;
use crate::policy::rules::arguments::{ArgumentSpec, MatcherSpec, ScalarSpec};
use crate::policy::rules::rule::RuleSpec;
use crate::policy::spec::PolicySpec;
use crate::wire::json::raw::RawJson;

pub(super) fn any_spec() -> impl Strategy<Value = PolicySpec> {
    (any_effect(), prop::collection::vec(any_rule(), 0..6)).prop_map(|(default, mut rules)| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.id = index.to_string();
        }
        PolicySpec { default, ..spec(rules) }
    })
}

pub(super) fn any_rule() -> impl Strategy<Value = RuleSpec> {
    let names = || globs(&["*", "a*", "a__x", "*x", "{a,b}__?", "b[+_]*", "a+*", "*:1"]);
    let upstreams = globs(&["*", "a", "b*", "[ab]"]);
    let callers = globs(&["*", "p", "q*", "?"]);
    let profiles = globs(&["*", "r", "?"]);
    let kinds = prop_oneof![4 => Just(Vec::new()), 1 => prop::sample::subsequence(ActionKind::VARIANTS.to_vec(), 1..4)];
    let evidence = prop::option::of(prop::sample::select(vec![
        ApprovalEvidence::Client,
        ApprovalEvidence::Page,
        ApprovalEvidence::Operator,
    ]));
    let conditions = || prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any_condition(), 1..3)];
    let lists = (upstreams, names(), names(), names(), callers, profiles);
    let hints = (any_hints(), any_hints());
    let rest = (any_effect(), kinds, hints, conditions(), conditions(), evidence);
    (lists, rest).prop_map(|(lists, (effect, kinds, (annotations, claims), arguments, unless, min_evidence))| {
        let (upstreams, tools, prompts, resources, callers, profiles) = lists;
        let id = String::new();
        RuleSpec {
            id,
            effect,
            upstreams,
            tools,
            prompts,
            resources,
            callers,
            groups: Vec::new(),
            profiles,
            kinds,
            annotations,
            claims,
            arguments,
            unless,
            min_evidence,
        }
    })
}

pub(super) fn any_hints() -> impl Strategy<Value = Hints> {
    let hint = || prop_oneof![6 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))];
    (hint(), hint(), hint()).prop_map(|(read_only, destructive, open_world)| Hints {
        read_only,
        destructive,
        idempotent: None,
        open_world,
    })
}

fn any_condition() -> impl Strategy<Value = ArgumentSpec> {
    let text = |text: &str| ScalarSpec::Text(text.to_owned());
    let pointers = vec!["/p", "/q", "/p/q", "/l", "/l/*", "/l/0", "/l/*/p"];
    let matchers = vec![
        MatcherSpec::Eq(text("a")),
        MatcherSpec::Eq(ScalarSpec::Number(1.0)),
        MatcherSpec::Ne(text("a")),
        MatcherSpec::In(vec![text("a"), ScalarSpec::Number(5.0), ScalarSpec::Boolean(true)]),
        MatcherSpec::Prefix("/s".to_owned()),
        MatcherSpec::PathUnder("/srv".to_owned()),
        MatcherSpec::Range { min: Some(1.0), max: Some(5.0) },
        MatcherSpec::MaxItems(1),
        MatcherSpec::Absent,
        MatcherSpec::Present,
    ];
    let pair = (prop::sample::select(pointers), prop::sample::select(matchers));
    pair.prop_map(|(pointer, matcher)| ArgumentSpec { pointer: pointer.to_owned(), matcher })
}

fn any_effect() -> impl Strategy<Value = RuleEffect> {
    prop::sample::select(vec![RuleEffect::Allow, RuleEffect::Ask, RuleEffect::Deny])
}

pub(super) fn any_case() -> impl Strategy<Value = PolicyAction> {
    use ActionKind::{Completion, Elicitation, Launch, Prompt, Resource, Sampling, Subscription, Task, Tool};
    let items = vec![
        (Tool, "a", "a__x"),
        (Tool, "a", "a__x"),
        (Tool, "b", "b__x"),
        (Prompt, "a", "a__y"),
        (Resource, "a", "a+x:1"),
        (Resource, "b", "b+x:2"),
        (Completion, "a", "a__x"),
        (Completion, "b", "b+x:1"),
        (Subscription, "a", "a+x:1"),
        (Task, "a", "a__x"),
        (Sampling, "a", "a"),
        (Elicitation, "b", "b"),
        (Launch, "a", "a"),
    ];
    let annotations = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(read_only, destructive, open_world, known_destructive)| Annotations {
            read_only,
            destructive,
            idempotent: false,
            open_world,
            known_destructive,
        },
    );
    // Most tools state some hint.
    let word = || prop_oneof![1 => Just(None), 2 => Just(Some(true)), 2 => Just(Some(false))];
    let claims =
        ((word(), word(), word()), any::<bool>()).prop_map(|((read_only, destructive, open_world), may_open)| Claims {
            hints: Hints { read_only, destructive, idempotent: None, open_world },
            may_open,
        });
    let who = (prop::sample::select(vec!["p", "q", "qq"]), prop::sample::select(vec![None, Some("r")]));
    (who, prop::sample::select(items), (annotations, claims), any_arguments()).prop_map(
        |((caller, profile), (kind, upstream, canonical), (annotations, claims), arguments)| {
            let action = PolicyAction::stand_in(caller, upstream, canonical);
            PolicyAction { profile: profile.map(Arc::from), kind, annotations, claims, arguments, ..action }
        },
    )
}

fn any_arguments() -> impl Strategy<Value = Option<RawJson>> {
    let values = [
        "\"a\"",
        "\"b\"",
        "\"/srv/x\"",
        "\"/srv/../x\"",
        "\"/etc\"",
        "1",
        "5.0",
        "10",
        "true",
        "null",
        "{}",
        "{\"p\":\"a\"}",
    ];
    let value = prop::sample::select(values.to_vec()).prop_map(str::to_owned);
    let list = prop::collection::vec(value.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(",")));
    let member = (prop::sample::select(vec!["p", "P", "q", "l", "l", "L"]), prop_oneof![2 => value, 1 => list]);
    let object = prop::collection::vec(member, 0..4).prop_map(|members| {
        let mut seen = std::collections::BTreeMap::new();
        seen.extend(members);
        let members: Vec<String> = seen.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        Some(RawJson::trusted(format!("{{{}}}", members.join(","))))
    });
    prop_oneof![1 => Just(None), 8 => object, 1 => Just(Some(RawJson::trusted("{\"p\":")))]
}

/// Returns a list of globs that is empty half of the time, since an empty list has a meaning of its
/// own.
fn globs(choices: &[&'static str]) -> impl Strategy<Value = Vec<String>> + use<> {
    let some = prop::collection::vec(prop::sample::select(choices.to_vec()), 1..3);
    prop_oneof![Just(Vec::new()), some.prop_map(|chosen| strings(&chosen))]
}
