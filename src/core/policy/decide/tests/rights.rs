//! Groups in rules and limits, and scopes.

use super::*;
use crate::policy::{CallerPatterns, CallerRights, LimitSpec, ScopeSpec};

fn groups(names: &[&str]) -> Groups {
    Groups::Of(names.iter().map(|name| Box::from(*name)).collect())
}

/// A call of a tool by a person with these rights.
fn call(scopes: Option<&[&str]>, groups: Groups) -> PolicyAction {
    let scopes = scopes.map_or(Scopes::All, |some| Scopes::Of(some.iter().map(|scope| Box::from(*scope)).collect()));
    let rights = Arc::new(CallerRights { scopes, groups });
    PolicyAction { caller: Caller::issued("corp", "ann").unwrap(), rights, ..TOOL.clone() }
}

fn scope(name: &str, tools: &[&str]) -> ScopeSpec {
    let items = RuleSpec { tools: strings(tools), ..rule(&ScopeSpec::id(name), RuleEffect::Deny) };
    ScopeSpec { scope: name.to_owned(), items }
}

#[test]
fn unknown_groups_are_denied_and_asked_about_but_allow_nothing() {
    use RuleEffect::{Allow, Ask, Deny};
    let devs = |effect| RuleSpec { groups: strings(&["dev*"]), ..rule("r", effect) };
    for (label, effect, default, groups, want) in [
        ("denied", Deny, Allow, groups(&["ops", "devs"]), "deny r"),
        ("not denied", Deny, Allow, groups(&["ops"]), "allow default"),
        ("in no group", Deny, Allow, groups(&[]), "allow default"),
        ("unknown, denied", Deny, Allow, Groups::Unknown, "deny r"),
        ("asked about", Ask, Allow, groups(&["dev"]), "ask r"),
        ("unknown, asked about", Ask, Allow, Groups::Unknown, "ask r"),
        ("allowed", Allow, Deny, groups(&["dev"]), "allow r"),
        ("unknown, not allowed", Allow, Deny, Groups::Unknown, "deny default"),
    ] {
        let policy = compile(&PolicySpec { default, ..spec(vec![devs(effect)]) });
        let action = call(None, groups);
        assert_eq!(told(&outcome(&policy, &action)), want, "{label}");
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        assert_eq!(policy.hidden(&item, &RuleSubject::of(&action)), want.starts_with("deny"), "{label}");
    }
    let both = RuleSpec { callers: strings(&["corp:bob"]), ..devs(Deny) };
    let policy = compile(&spec(vec![both]));
    assert_eq!(told(&outcome(&policy, &call(None, Groups::Unknown))), "allow default", "another caller");
}

#[test]
fn a_limit_over_groups_counts_callers_of_unknown_groups() {
    for (groups, counts) in [(groups(&["dev"]), true), (groups(&["ops"]), false), (Groups::Unknown, true)] {
        let policy = compile(&PolicySpec {
            limits: vec![LimitSpec { groups: strings(&["dev"]), ..limit("l", 1) }],
            ..spec(vec![])
        });
        let action = call(None, groups);
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let limiter = Limiter::new(&policy);
        let once = || told(&decide(&policy, &item, &action, &nobody, &limiter, SECOND));
        assert_eq!(once(), "allow default");
        assert_eq!(once().starts_with("limit l"), counts, "{:?}", action.rights);
    }
}

#[test]
fn credentials_of_one_caller_share_its_limits() {
    let policy = compile(&PolicySpec { limits: vec![limit("l", 2)], ..spec(vec![]) });
    let limiter = Limiter::new(&policy);
    let once = |action: &PolicyAction| {
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        told(&decide(&policy, &item, action, &nobody, &limiter, SECOND))
    };
    assert_eq!(once(&call(None, groups(&["dev"]))), "allow default");
    assert_eq!(once(&call(Some(&["a"]), Groups::Unknown)), "allow default");
    assert!(once(&call(Some(&["b"]), groups(&[]))).starts_with("limit l"));
    let bob = PolicyAction { caller: Caller::issued("corp", "bob").unwrap(), ..call(None, groups(&[])) };
    assert_eq!(once(&bob), "allow default");
}

#[test]
fn the_scope_comes_after_the_rules_that_deny_and_before_approvals_and_limits() {
    use RuleEffect::{Allow, Ask, Deny};
    let scopes = || vec![scope("read", &["a__*"]), scope("write", &["a__x", "b__*"]), scope("other", &["b__*"])];
    let looks = |effect| {
        let matcher = ArgumentSpec { pointer: "/n".to_owned(), matcher: MatcherSpec::Absent };
        RuleSpec { arguments: vec![matcher], tools: strings(&["a__x"]), ..rule("r", effect) }
    };
    let lacks = "scope:write of read write";
    for (label, rules, has, want) in [
        ("all that it needs", vec![], Some(&["write", "read"][..]), "allow default"),
        ("every scope", vec![], None, "allow default"),
        ("one of two", vec![], Some(&["read", "other"]), lacks),
        ("none", vec![], Some(&[]), "scope:read of read write"),
        ("a hidden item stays hidden", vec![rule("r", Deny)], Some(&["read"]), "deny r"),
        ("a deny rule over arguments", vec![looks(Deny)], Some(&["read"]), "deny r"),
        ("before an approval", vec![rule("r", Ask)], Some(&["read"]), lacks),
        ("also what a rule allows", vec![rule("r", Allow)], Some(&["read"]), lacks),
    ] {
        let policy = compile(&PolicySpec { scopes: scopes(), limits: vec![limit("l", 1)], ..spec(rules) });
        let action = call(has, groups(&[]));
        assert_eq!(told(&outcome(&policy, &action)), want, "{label}");
        let item = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        let scope = decide_scope(&policy, &item, &action).map(|decision| told(&decision));
        assert_eq!(scope.as_deref(), want.starts_with("scope").then_some(want), "{label}");
        if want.starts_with("scope") {
            assert!(!is_still_allowed(&policy, &item, &action, &|_, _| true), "{label}");
            assert_eq!(told(&decide_again(&policy, &item, &action)), want, "{label}: each request needs it");
            let limiter = Limiter::new(&policy);
            for _ in 0..2 {
                assert_eq!(told(&decide(&policy, &item, &action, &nobody, &limiter, SECOND)), want, "no limit");
            }
        }
    }
}

#[test]
fn a_scope_covers_what_follows_its_items() {
    let resources = RuleSpec { resources: strings(&["a+file:///srv/*"]), ..rule("scope:files", RuleEffect::Deny) };
    let files = ScopeSpec { scope: "files".to_owned(), items: resources };
    let policy = compile(&PolicySpec { scopes: vec![files, scope("tools", &["a__x"])], ..spec(vec![]) });
    for (kind, canonical, want) in [
        (ActionKind::Resource, "a+file:///srv/a", "scope:files of files"),
        (ActionKind::Subscription, "a+file:///srv/a", "scope:files of files"),
        (ActionKind::Resource, "a+file:///srv/../a", "scope:files of files"),
        (ActionKind::Resource, "a+file:///etc/a", "allow default"),
        (ActionKind::Task, "a__x", "scope:tools of tools"),
        (ActionKind::Prompt, "a__x", "allow default"),
    ] {
        let action = PolicyAction { kind, canonical: canonical.into(), ..call(Some(&[]), groups(&[])) };
        assert_eq!(told(&outcome(&policy, &action)), want, "{kind:?} {canonical}");
    }
}

#[test]
fn a_profile_admits_whom_it_names_and_nobody_of_unknown_groups() {
    let patterns = CallerPatterns::build("profiles.p", &strings(&["corp:*"]), &strings(&["dev"])).unwrap();
    let ann = Caller::issued("corp", "ann").unwrap();
    for (caller, groups, want) in [
        (&ann, groups(&["dev"]), true),
        (&ann, groups(&["ops"]), false),
        (&ann, Groups::Unknown, false),
        (Caller::local(), groups(&["dev"]), false),
    ] {
        assert_eq!(patterns.admit(caller, &groups), want, "{caller} {groups:?}");
    }
    assert!(CallerPatterns::default().admit(&ann, &Groups::Unknown));
    assert_eq!(CallerPatterns::build("p", &strings(&["a["]), &[]).unwrap_err()[0].path, "p.callers[0]");
}
