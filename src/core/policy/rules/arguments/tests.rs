use super::*;

const YES: Truth = Truth::Yes;
const NO: Truth = Truth::No;
const UNKNOWN: Truth = Truth::Unknown;

/// Applies a matcher to a value, given as JSON.
fn of(matcher: &MatcherSpec, json: &str) -> Truth {
    let matcher = ArgumentMatcher::compile(matcher).unwrap();
    matcher.matches(&LosslessJson::read(json.as_bytes()).unwrap())
}

fn table(matcher: &MatcherSpec, rows: &[(&str, Truth)]) {
    for (json, want) in rows {
        assert_eq!(of(matcher, json), *want, "{matcher:?} of {json}");
    }
}

fn text(text: &str) -> ScalarSpec {
    ScalarSpec::Text(text.to_owned())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn equality_is_of_one_type() {
    let eq = MatcherSpec::Eq(text("a"));
    let rows =
        [("\"a\"", YES), ("\"\\u0061\"", YES), ("\"b\"", NO), ("1", UNKNOWN), ("null", UNKNOWN), ("[\"a\"]", UNKNOWN)];
    table(&eq, &rows);
    table(&eq, &[("\"a\\u0000\"", UNKNOWN), ("\"A\"", NO)]);
    let ne = MatcherSpec::Ne(text("a"));
    table(&ne, &[("\"a\"", NO), ("\"b\"", YES), ("1", UNKNOWN)]);
    let five = MatcherSpec::Eq(ScalarSpec::Number(5.0));
    table(
        &five,
        &[("5", YES), ("5.0", YES), ("50e-1", YES), ("6", NO), ("5.00000000000000000001", UNKNOWN), ("\"5\"", UNKNOWN)],
    );
    let big = MatcherSpec::Eq(ScalarSpec::Number(9_007_199_254_740_992.0));
    table(&big, &[("9007199254740992", YES), ("9007199254740993", UNKNOWN)]);
    table(&MatcherSpec::Eq(ScalarSpec::Number(-0.0)), &[("0", YES), ("-0", YES), ("-0.0", YES)]);
    table(&MatcherSpec::Eq(ScalarSpec::Boolean(true)), &[("true", YES), ("false", NO), ("1", UNKNOWN)]);
    let some = MatcherSpec::In(vec![text("a"), ScalarSpec::Number(1.0)]);
    table(&some, &[("\"a\"", YES), ("\"b\"", NO), ("1", YES), ("2", NO), ("true", UNKNOWN), ("1e999", UNKNOWN)]);
}

#[test]
fn texts_are_matched_as_they_are() {
    let odd = [("1", UNKNOWN), ("null", UNKNOWN), ("[\"x\"]", UNKNOWN), ("\"x\\u0000\"", UNKNOWN)];
    for (matcher, rows) in [
        (MatcherSpec::Prefix("ab".into()), [("\"abc\"", YES), ("\"ab\"", YES), ("\"a\"", NO), ("\"Abc\"", NO)]),
        (MatcherSpec::Suffix(".md".into()), [("\"a.md\"", YES), ("\".md\"", YES), ("\"a.mdx\"", NO), ("\"\"", NO)]),
        (
            MatcherSpec::Glob("a*/[bc]".into()),
            [("\"a/x/b\"", YES), ("\"ab\"", NO), ("\"a/d\"", NO), ("\"é\"", UNKNOWN)],
        ),
        (MatcherSpec::Glob("rm*".into()), [("\"rm -r\"", YES), ("\"rm\"", YES), ("\"é\"", NO), ("\"\"", NO)]),
        (MatcherSpec::Regex("^(a+)+$".into()), [("\"aaa\"", YES), ("\"ab\"", NO), ("\"\"", NO), ("\"aaa\\n\"", NO)]),
        (MatcherSpec::Regex("b".into()), [("\"abc\"", YES), ("\"b\"", YES), ("\"ac\"", NO), ("\"\"", NO)]),
        (MatcherSpec::MaxLen(2), [("\"ab\"", YES), ("\"éé\"", YES), ("\"abc\"", NO), ("\"\"", YES)]),
    ] {
        table(&matcher, &rows);
        table(&matcher, &odd);
    }
}

#[test]
fn a_path_is_plain_or_unknown() {
    let under = MatcherSpec::PathUnder("/srv/work/".into());
    for (path, want) in [
        ("/srv/work", YES),
        ("/srv/work/", YES),
        ("/srv/work/a/b.txt", YES),
        ("/srv/work/..hidden", YES),
        ("/srv/workshop", NO),
        ("/srv", NO),
        ("/", NO),
        ("/etc/passwd", NO),
        ("/SRV/work/a", UNKNOWN),
        ("", UNKNOWN),
        ("a/b", UNKNOWN),
        ("~/a", UNKNOWN),
        ("/srv/work/../../etc", UNKNOWN),
        ("/srv/work/./a", UNKNOWN),
        ("/srv/work//a", UNKNOWN),
        ("//srv/work/a", UNKNOWN),
        ("/srv/work/%2e%2e/a", UNKNOWN),
        ("/srv/work\\..\\a", UNKNOWN),
        ("/srv/work/a\nb", UNKNOWN),
        ("/srv/work/a\0b", UNKNOWN),
        ("file:///srv/work/a", UNKNOWN),
        ("C:/srv/work", UNKNOWN),
    ] {
        assert_eq!(of(&under, &RawJson::string(path).text()), want, "{path:?}");
    }
    table(&MatcherSpec::PathUnder("/".into()), &[("\"/a\"", YES), ("\"/\"", YES), ("\"a\"", UNKNOWN), ("7", UNKNOWN)]);
}

#[test]
fn a_host_is_plain_or_unknown() {
    let hosts = MatcherSpec::UrlHostIn(texts(&["example.com", "*.example.org", "127.0.0.1", "::1"]));
    for (url, want) in [
        ("https://example.com", YES),
        ("HTTPS://EXAMPLE.com:8443/a?b#c", YES),
        ("https://api.example.org/", YES),
        ("http://127.0.0.1/", YES),
        ("http://[::1]:80/", YES),
        ("https://example.org/", NO),
        ("https://badexample.org/", NO),
        ("https://example.com.evil.net/", NO),
        ("https://evil.net/https://example.com", NO),
        ("https://evil.net?https://example.com/", NO),
        ("https://evil.net/@example.com", NO),
        ("https://user@example.com/", UNKNOWN),
        ("https://example.com@evil.net/", UNKNOWN),
        ("https://example.com\\@evil.net/", UNKNOWN),
        ("https://example.com./", UNKNOWN),
        ("https://ex%61mple.com/", UNKNOWN),
        ("https://ｅxample.com/", UNKNOWN),
        ("https:///example.com", UNKNOWN),
        ("https:example.com", UNKNOWN),
        ("//example.com", UNKNOWN),
        ("example.com", UNKNOWN),
        ("file://example.com/", UNKNOWN),
        (" https://example.com", UNKNOWN),
        ("https://exam\tple.com/", UNKNOWN),
        ("http://2130706433/", UNKNOWN),
        ("http://0x7f.1/", UNKNOWN),
        ("http://127.1/", UNKNOWN),
        ("http://0177.0.0.1/", UNKNOWN),
        ("http://[::ffff:127.0.0.1]/", UNKNOWN),
        ("http://example.com:99999/", UNKNOWN),
        ("http://example.com:/", UNKNOWN),
    ] {
        assert_eq!(of(&hosts, &RawJson::string(url).text()), want, "{url:?}");
    }
}

#[test]
fn a_mail_address_is_plain_or_unknown() {
    let domains = MatcherSpec::EmailDomainIn(texts(&["example.com", "*.example.org"]));
    for (address, want) in [
        ("a@example.com", YES),
        ("A.b+c@EXAMPLE.COM", YES),
        ("a@x.example.org", YES),
        ("a@example.org", NO),
        ("a@evil.net", NO),
        ("example.com", UNKNOWN),
        ("@example.com", UNKNOWN),
        ("a@evil.net@example.com", UNKNOWN),
        ("a@example.com,b@evil.net", UNKNOWN),
        ("a@evil.net, b@example.com", UNKNOWN),
        ("Ann <a@example.com>", UNKNOWN),
        ("a@example.com (x)", UNKNOWN),
        ("\"a b\"@example.com", UNKNOWN),
        ("a%evil.net@example.com", UNKNOWN),
        ("evil.net!a@example.com", UNKNOWN),
        ("a@example.com\r\nBcc: x@evil.net", UNKNOWN),
        ("a@example.com.", UNKNOWN),
        ("a@[127.0.0.1]", UNKNOWN),
    ] {
        assert_eq!(of(&domains, &RawJson::string(address).text()), want, "{address:?}");
    }
}

#[test]
fn an_address_is_in_a_network_or_in_none() {
    let nets = MatcherSpec::CidrIn(texts(&["10.0.0.0/8", "192.0.2.1", "fd00::/8"]));
    for (address, want) in [
        ("10.1.2.3", YES),
        ("192.0.2.1", YES),
        ("fd00::1", YES),
        ("11.0.0.1", NO),
        ("fe80::1", NO),
        ("::ffff:10.0.0.1", UNKNOWN),
        ("010.0.0.1", UNKNOWN),
        ("10.1", UNKNOWN),
        ("10.0.0.0/8", UNKNOWN),
        ("localhost", UNKNOWN),
        ("fe80::1%eth0", UNKNOWN),
    ] {
        assert_eq!(of(&nets, &RawJson::string(address).text()), want, "{address:?}");
    }
}

#[test]
fn numbers_lists_and_types_have_bounds() {
    let range = MatcherSpec::Range { min: Some(1.0), max: Some(10.0) };
    table(&range, &[("1", YES), ("10", YES), ("1.5", YES), ("0.99", NO), ("11", NO), ("\"5\"", UNKNOWN)]);
    table(&range, &[("10.000000000000000000001", UNKNOWN), ("18446744073709551617", UNKNOWN), ("1e999", UNKNOWN)]);
    let least = MatcherSpec::Range { min: Some(1.0), max: None };
    table(&least, &[("1e15", YES), ("0", NO), ("null", UNKNOWN)]);
    table(
        &MatcherSpec::MaxItems(2),
        &[("[]", YES), ("[1,2]", YES), ("[1,2,3]", NO), ("{}", UNKNOWN), ("\"ab\"", UNKNOWN)],
    );
    let samples = ["\"x\"", "1", "true", "null", "[]", "{}"];
    for (kind, at) in [
        (JsonType::String, 0),
        (JsonType::Number, 1),
        (JsonType::Boolean, 2),
        (JsonType::Null, 3),
        (JsonType::Array, 4),
        (JsonType::Object, 5),
    ] {
        for (index, sample) in samples.iter().enumerate() {
            assert_eq!(of(&MatcherSpec::Type(kind), sample), Truth::from(index == at), "{kind:?} of {sample}");
        }
    }
    table(
        &MatcherSpec::Type(JsonType::Integer),
        &[("1", YES), ("-7", YES), ("1.0", UNKNOWN), ("1e2", UNKNOWN), ("1.5", NO), ("\"1\"", NO)],
    );
    table(&MatcherSpec::Absent, &[("1", NO), ("\"\"", NO), ("null", UNKNOWN)]);
    table(&MatcherSpec::Present, &[("1", YES), ("\"\"", YES), ("null", UNKNOWN)]);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let none = Vec::new;
    for (label, matcher, reason) in [
        ("an empty list", MatcherSpec::In(Vec::new()), "never holds"),
        ("no hosts", MatcherSpec::UrlHostIn(none()), "never holds"),
        ("no domains", MatcherSpec::EmailDomainIn(none()), "never holds"),
        ("no networks", MatcherSpec::CidrIn(none()), "never holds"),
        ("an empty prefix", MatcherSpec::Prefix(String::new()), "must not be empty"),
        ("an empty glob", MatcherSpec::Glob(String::new()), "must not be empty"),
        ("a broken glob", MatcherSpec::Glob("a[".into()), "not a glob"),
        ("a broken expression", MatcherSpec::Regex("(a".into()), "unclosed group"),
        ("a long expression", MatcherSpec::Regex("a".repeat(10_241)), "10240 bytes"),
        ("a large expression", MatcherSpec::Regex(r"\w{1000}{100}".into()), "too large"),
        ("a relative path", MatcherSpec::PathUnder("srv".into()), "no plain absolute path"),
        ("a path with dots", MatcherSpec::PathUnder("/srv/../etc".into()), "no plain absolute path"),
        ("a URL for a host", MatcherSpec::UrlHostIn(texts(&["https://example.com"])), "no domain"),
        ("a star in the middle", MatcherSpec::UrlHostIn(texts(&["a.*.com"])), "no domain"),
        ("an address for a domain", MatcherSpec::EmailDomainIn(texts(&["a@example.com"])), "no domain"),
        ("no network", MatcherSpec::CidrIn(texts(&["10.0.0.0/33"])), "no network"),
        ("bits beyond the length", MatcherSpec::CidrIn(texts(&["10.0.0.1/8"])), "10.0.0.0/8"),
        ("a range without ends", MatcherSpec::Range { min: None, max: None }, "needs"),
        ("a range inside out", MatcherSpec::Range { min: Some(2.0), max: Some(1.0) }, "never holds"),
        ("a number beyond 2^53", MatcherSpec::Eq(ScalarSpec::Number(1e17)), "2^53"),
    ] {
        let message = ArgumentMatcher::compile(&matcher).unwrap_err();
        assert!(message.contains(reason), "{label}: {message}");
    }
    // Matching takes linear time even for an expression like this.
    assert!(ArgumentMatcher::compile(&MatcherSpec::Regex("(a+)+$".into())).is_ok());
}

/// Compiles the conditions of a rule, each given as pointer and matcher.
fn conditions(effect: RuleEffect, arguments: &[(&str, MatcherSpec)], unless: &[(&str, MatcherSpec)]) -> RuleConditions {
    let list = |pairs: &[(&str, MatcherSpec)]| -> Vec<ArgumentSpec> {
        let spec = |(pointer, matcher): &(&str, MatcherSpec)| ArgumentSpec {
            pointer: (*pointer).to_owned(),
            matcher: matcher.clone(),
        };
        pairs.iter().map(spec).collect()
    };
    let mut problems = PolicyProblems::default();
    let compiled = RuleConditions::compile("r", effect, &list(arguments), &list(unless), &mut problems);
    assert!(problems.0.is_empty(), "{problems:?}");
    compiled.unwrap()
}

fn truth(conditions: &RuleConditions, json: &str) -> Truth {
    let raw = RawJson::trusted(json.to_owned());
    conditions.truth(&CallArguments::new(ActionKind::Tool, Some(&raw)))
}

#[test]
fn mail_stays_inside() {
    let inside = || MatcherSpec::EmailDomainIn(texts(&["example.com"]));
    let rule = conditions(RuleEffect::Deny, &[], &[("/to/*", inside()), ("/bcc", MatcherSpec::Absent)]);
    for (label, json, fires) in [
        ("inside", r#"{"to":["a@example.com","b@example.com"]}"#, NO),
        ("one outside", r#"{"to":["a@example.com","b@evil.net"]}"#, YES),
        ("nobody", r#"{"to":[]}"#, NO),
        ("a text", r#"{"to":"a@example.com"}"#, UNKNOWN),
        ("a list in a text", r#"{"to":["a@example.com,b@evil.net"]}"#, UNKNOWN),
        ("not said", "{}", UNKNOWN),
        ("a copy", r#"{"to":["a@example.com"],"bcc":["x@evil.net"]}"#, YES),
        ("a copy in capitals", r#"{"to":["a@example.com"],"BCC":["x@evil.net"]}"#, UNKNOWN),
        ("a copy to nobody", r#"{"to":["a@example.com"],"bcc":null}"#, UNKNOWN),
        ("two spellings", r#"{"to":["a@example.com"],"To":["x@evil.net"]}"#, UNKNOWN),
        ("no JSON", r#"{"to":["#, UNKNOWN),
        ("no object", "7", UNKNOWN),
    ] {
        assert_eq!(truth(&rule, json), fires, "{label}");
    }
}

#[test]
fn what_is_absent_never_frees() {
    let prod = || MatcherSpec::Eq(text("prod"));
    let rows = [
        ("deny of a value", conditions(RuleEffect::Deny, &[("/env", prod())], &[]), NO),
        ("deny of all others", conditions(RuleEffect::Deny, &[("/env", MatcherSpec::Ne(text("test")))], &[]), UNKNOWN),
        ("deny unless", conditions(RuleEffect::Deny, &[], &[("/env", prod())]), UNKNOWN),
        ("allow of a value", conditions(RuleEffect::Allow, &[("/env", prod())], &[]), NO),
        (
            "allow of all others",
            conditions(RuleEffect::Allow, &[("/env", MatcherSpec::Ne(text("prod")))], &[]),
            UNKNOWN,
        ),
        ("allow unless", conditions(RuleEffect::Allow, &[], &[("/env", prod())]), UNKNOWN),
        ("allow of nothing", conditions(RuleEffect::Allow, &[("/env", MatcherSpec::Absent)], &[]), YES),
    ];
    for (label, rule, want) in rows {
        assert_eq!(truth(&rule, "{}"), want, "{label}");
        let none = CallArguments::new(ActionKind::Tool, None);
        assert_eq!(rule.truth(&none), want, "{label}, without arguments");
    }
}

#[test]
fn all_conditions_must_hold_and_all_exceptions() {
    let rule = conditions(
        RuleEffect::Allow,
        &[("/a", MatcherSpec::Present), ("/b", MatcherSpec::Eq(text("x")))],
        &[("/c", MatcherSpec::Present), ("/d", MatcherSpec::Present)],
    );
    for (json, want) in [
        (r#"{"a":1,"b":"x"}"#, YES),
        (r#"{"a":1,"b":"y"}"#, NO),
        (r#"{"b":"x"}"#, NO),
        (r#"{"a":1,"b":7}"#, UNKNOWN),
        (r#"{"b":7}"#, NO),
        (r#"{"a":1,"b":"x","c":1}"#, YES),
        (r#"{"a":1,"b":"x","c":1,"d":1}"#, NO),
        (r#"{"a":1,"b":"x","c":1,"d":null}"#, UNKNOWN),
    ] {
        assert_eq!(truth(&rule, json), want, "{json}");
    }
}

#[test]
fn kinds_without_arguments_have_an_answer() {
    let rule = |effect| conditions(effect, &[("/a", MatcherSpec::Present)], &[]);
    let raw = RawJson::trusted(r#"{"a":1}"#);
    for (kind, want) in [
        (ActionKind::Tool, YES),
        (ActionKind::Prompt, YES),
        (ActionKind::Elicitation, UNKNOWN),
        (ActionKind::Sampling, UNKNOWN),
        (ActionKind::Resource, NO),
        (ActionKind::Subscription, NO),
        (ActionKind::Completion, UNKNOWN),
        (ActionKind::Task, NO),
    ] {
        assert_eq!(rule(RuleEffect::Deny).truth(&CallArguments::new(kind, Some(&raw))), want, "{kind:?}");
    }
}
