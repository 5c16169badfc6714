use super::*;
use crate::tests::{good, with_policy};

const BASE: &str = "[upstreams.a]\ncommand = [\"/a\", \"x\"]\nenv = { K = \"1\" }\n[upstreams.b]\nurl = \"https://b/mcp\"\nheaders = { H = \"1\" }\n";

const CI: &str = "[server.auth.tokens]\nci = \"ci-0123456789abcdef\"\n";

#[test]
fn a_reload_does_what_changed_and_nothing_else() {
    let rows = [
        ("nothing", BASE.to_owned(), "nothing changed"),
        ("another upstream", format!("{BASE}[upstreams.c]\ncommand = [\"/c\"]\n"), "start c; new names or views"),
        ("one less", BASE.split("[upstreams.b]").next().unwrap().to_owned(), "stop b; new names or views"),
        ("another name", BASE.replace("upstreams.a]", "upstreams.z]"), "start z; stop a; new names or views"),
        ("another program", BASE.replace("/a", "/aa"), "replace a"),
        ("arguments cut elsewhere", BASE.replace("\"/a\", \"x\"", "\"/a\", \"\", \"x\""), "replace a"),
        ("another value", BASE.replace("K = \"1\"", "K = \"2\""), "replace a"),
        ("another directory", BASE.replace("env =", "cwd = \"/\"\nenv ="), "replace a"),
        ("another URL", BASE.replace("b/mcp", "b/other"), "replace b"),
        ("another header", BASE.replace("H =", "I ="), "replace b"),
        ("another header value", BASE.replace("H = \"1\"", "H = \"2\""), "change b"),
        ("another era", BASE.replace("url =", "era = \"modern\"\nurl ="), "replace b"),
        ("another transport", BASE.replace("url =", "transport = \"streamable-http\"\nurl ="), "replace b"),
        (
            "another variable of ours",
            BASE.replace("env =", "env-from = [\"X\"]\nenv ="),
            "replace a; opens more: the upstream a: more variables of ours",
        ),
        ("another directory of programs", BASE.replace("env =", "path = [\"/x\"]\nenv ="), "replace a"),
        ("another bound of its lists", BASE.replace("url =", "max-inventory = 9\nurl ="), "replace b"),
        ("another proxy", BASE.replace("url =", "proxy = \"http://p:1\"\nurl ="), "replace b"),
        ("no proxy", BASE.replace("url =", "proxy = \"none\"\nurl ="), "replace b"),
        ("a timeout", BASE.replace("url =", "call-timeout = \"9s\"\nurl ="), "change b"),
        ("a filter", BASE.replace("url =", "tools = { deny = [\"x\"] }\nurl ="), "change b; new names or views"),
        ("a profile", format!("{BASE}[profiles.p]\nupstreams = [\"a\"]\n"), "new names or views"),
        ("naming", format!("{BASE}[naming]\nuris = \"prefix\"\n"), "new names or views"),
        (
            "a rule",
            format!("{BASE}[[policy.rules]]\nid = \"r\"\neffect = \"deny\"\nupstreams = [\"a\"]\n"),
            "new policy",
        ),
        (
            "a caller",
            format!("{BASE}{CI}"),
            "replace a; new settings of server.auth; no instructions of a, b any more, since there are other callers (`instructions = \"pass\"` passes them); opens more: the new caller ci",
        ),
        (
            "what holds at once",
            format!(
                "{BASE}[server.limits]\nqueue = 32\n[policy.consent]\ntimeout = \"1s\"\n[audit]\nstrict = true\n[log]\nfilter = \"warn\"\n"
            ),
            "new settings of policy.consent, audit.strict, log.filter, server.limits.queue",
        ),
        (
            "what is read at start",
            format!("{BASE}[server]\nendpoint = \"/x\"\n[metrics]\nlisten = \"\"\n[admin]\ngroup = \"g\"\n"),
            "replace a; no instructions of a, b any more, since there are other callers (`instructions = \"pass\"` passes them); only after a restart: server.endpoint, metrics.listen, admin.group",
        ),
    ];
    let old = with_policy(BASE);
    for (label, text, wanted) in rows {
        assert_eq!(diff(&old, &with_policy(&text)).to_string(), wanted, "{label}");
    }
}

#[test]
fn the_order_of_upstreams_is_the_order_of_lists() {
    let (a, b) = BASE.split_at(BASE.find("[upstreams.b]").unwrap());
    let plan = diff(&with_policy(BASE), &with_policy(&format!("{b}{a}")));
    assert!(plan.views_changed && plan.start.is_empty() && plan.replace.is_empty());
    assert_eq!(plan.keep.iter().map(UpstreamName::as_str).collect::<Vec<_>>(), ["b", "a"]);
    assert!(plan.changed.is_empty());
}

#[test]
fn another_default_is_another_policy() {
    let allow = with_policy(BASE);
    let (deny, _) = good(&format!("[policy]\ndefault = \"deny\"\n{BASE}"));
    assert!(diff(&allow, &deny).policy_changed);
}

#[test]
fn the_launch_identity_is_of_the_launch_alone() {
    let config = with_policy(
        &BASE.replace("upstreams.b]", "upstreams.c]\ncommand = [\"/a\", \"x\"]\nenv = { K = \"1\" }\n[upstreams.b]"),
    );
    let [a, c, b] = config.upstreams.as_slice() else { panic!("three") };
    assert_eq!(a.launch_identity(), c.launch_identity(), "the name is no part of it");
    assert_ne!(a.launch_identity(), b.launch_identity());
    assert_eq!(a.launch_identity().len(), 64);
    let moved = with_policy("[upstreams.a]\ncommand = [\"/a\"]\nenv = { A = \"1\", B = \"2\" }\n");
    let other = with_policy("[upstreams.a]\ncommand = [\"/a\"]\nenv = { B = \"2\", A = \"1\" }\n");
    assert_eq!(moved.upstreams[0].launch_identity(), other.upstreams[0].launch_identity(), "nor is the order of env");
}

#[test]
fn a_credential_that_is_not_valid_any_more_is_told() {
    let tokens = |tokens: &str| format!("{BASE}[server.auth.tokens]\n{tokens}");
    let auth = |auth: &str| format!("{BASE}[server.auth]\n{auth}");
    let [ann, bob] = ["ann = \"ann-0123456789abcdef\"\n", "bob = \"bob-0123456789abcdef\"\n"];
    let (both, other) = (format!("{ann}{bob}"), format!("{ann}bob = \"another-0123456789abcdef\"\n"));
    let settings = "new settings of server.auth";
    for (label, old, new, wanted) in [
        ("the same", tokens(&both), tokens(&format!("{bob}{ann}")), settings.to_owned()),
        ("one gone", tokens(&both), tokens(ann), format!("{settings}; end the sessions of bob")),
        ("another token", tokens(&both), tokens(&other), format!("{settings}; end the sessions of bob")),
        (
            "no token needed",
            tokens(ann),
            auth("mode = \"none\""),
            format!(
                "{settings}; end the sessions of ann, local; opens more: no token is needed, the upstream a: its instructions reach clients, the upstream b: its instructions reach clients"
            ),
        ),
        ("a token needed", auth("mode = \"none\""), BASE.to_owned(), format!("{settings}; end the sessions of local")),
        (
            "a user of the socket",
            format!("{BASE}[admin]\nusers = [\"alice\", \"1001\"]\n"),
            format!("{BASE}[admin]\nusers = [\"1001\"]\n"),
            "new settings of admin.users; end the sessions of the user alice".to_owned(),
        ),
    ] {
        assert_eq!(diff(&with_policy(&old), &with_policy(&new)).to_string(), wanted, "{label}");
    }
}

/// Returns what is opened by going from one text to the other, and back.
#[track_caller]
fn opened(one: &str, other: &str) -> [String; 2] {
    let [one, other] = [one, other].map(|text| good(&format!("{BASE}{text}")).0);
    [diff(&one, &other).opens.join(", "), diff(&other, &one).opens.join(", ")]
}

#[test]
fn a_plan_says_what_it_opens() {
    let rule = |effect: &str, more: &str| format!("[[policy.rules]]\nid = \"r\"\neffect = \"{effect}\"\n{more}\n");
    let with = |default: &str, more: &str| format!("[policy]\ndefault = \"{default}\"\n{more}");
    let (a, both) = ("upstreams = [\"a\"]", "upstreams = [\"a\", \"b\"]");
    let limit = |more: &str| with("allow", &format!("[[policy.limits]]\nid = \"l\"\n{more}\n"));
    let consent = |more: &str| with("ask", &format!("[policy.consent]\n{more}\n"));
    let audit = |more: &str| with("ask", &format!("[audit]\n{more}\n"));
    let server = |more: &str| with("ask", &format!("[server]\n{more}\n"));
    for (label, one, other, there, back) in [
        ("the default", with("deny", ""), with("ask", ""), "the default is \"ask\", it was \"deny\"", ""),
        ("allow", with("deny", ""), with("deny", &rule("allow", a)), "the new rule r allows", ""),
        (
            "allow more",
            with("deny", &rule("allow", a)),
            with("deny", &rule("allow", both)),
            "the rule r allows more",
            "",
        ),
        ("allow where all is allowed", with("allow", ""), with("allow", &rule("allow", a)), "", ""),
        ("deny", with("ask", ""), with("ask", &rule("deny", a)), "", "the rule r is gone, which denies"),
        ("deny less", with("ask", &rule("deny", both)), with("ask", &rule("deny", a)), "the rule r denies less", ""),
        (
            "deny with a condition",
            with("ask", &rule("deny", a)),
            with("ask", &rule("deny", &format!("{a}\nunless = [{{ pointer = \"/x\", eq = 1 }}]"))),
            "the rule r denies less",
            // The comparison does not see whether a condition always holds.
            "the rule r denies less",
        ),
        ("ask before allow", with("allow", ""), with("allow", &rule("ask", a)), "", "the rule r is gone, which asks"),
        ("ask where all is asked", with("ask", ""), with("ask", &rule("ask", a)), "", ""),
        (
            "ask where all was denied",
            with("deny", ""),
            with("deny", &rule("ask", a)),
            "the rule r asks about calls that were denied",
            "",
        ),
        (
            "evidence",
            with("ask", &rule("ask", &format!("{a}\nmin-evidence = \"L3\""))),
            with("ask", &rule("ask", &format!("{a}\nmin-evidence = \"L2\""))),
            "the rule r is satisfied with less evidence",
            "",
        ),
        ("a limit", limit("rate = \"5/m\""), with("allow", ""), "the limit l is gone", ""),
        ("a rate", limit("rate = \"5/m\""), limit("rate = \"6/m\""), "the limit l admits more", ""),
        (
            "a unit",
            limit("rate = \"5/m\""),
            limit("rate = \"5/s\""),
            "the limit l admits more",
            "the limit l admits more",
        ),
        ("at once", limit("concurrent = 1"), limit("concurrent = 2"), "the limit l admits more", ""),
        (
            "a bucket for each tool",
            limit("per-day = 1"),
            limit("per-day = 1\nkey = [\"caller\", \"tool\"]"),
            "the limit l admits more",
            "",
        ),
        ("a timeout", consent("timeout = \"1s\""), consent(""), "policy.consent.timeout is longer", ""),
        ("operator", consent("operator = \"none\""), consent(""), "policy.consent.operator is any", ""),
        ("open approvals", consent(""), consent("max-open = 30"), "policy.consent.max-open is larger", ""),
        ("a hold", consent("hold = \"0s\""), consent(""), "policy.consent.hold is longer", ""),
        ("held calls", consent(""), consent("max-held = 21"), "policy.consent.max-held is larger", ""),
        ("audit", audit(""), audit("on-failure = \"continue\""), "calls go on that cannot be recorded", ""),
        ("a host", server(""), server("allowed-hosts = [\"h.example\"]"), "the host h.example", ""),
        (
            "an origin",
            server(""),
            server("allowed-origins = [\"https://a.example\"]"),
            "pages of https://a.example",
            "",
        ),
    ] {
        assert_eq!(opened(&one, &other), [there, back], "{label}");
    }
}

#[test]
fn a_plan_says_what_it_opens_of_an_upstream() {
    let upstream = |more: &str| format!("[policy]\n[upstreams.c]\ncommand = [\"/c\"]\n{more}\n");
    for (more, there, back) in [
        ("trust = \"trusted\"", "more trust", ""),
        ("trust = \"untrusted\"", "", "more trust"),
        ("on-change = \"accept\"", "changed definitions are accepted", ""),
        ("pin-html = false", "changed HTML of apps is accepted", ""),
        ("annotations = { x = { read-only = true } }", "milder annotations", ""),
        ("annotations = { x = { destructive = true } }", "", "milder annotations"),
        ("tools = { allow = [\"x\"] }", "", "more of its items"),
        ("prompts = { deny = [\"x\"] }", "", "more of its items"),
        ("completions = \"pass\"", "all completions", ""),
        ("apps = \"off\"", "", "apps"),
        ("elicit-secrets = true", "questions for secrets", ""),
        ("elicit-hosts = [\"h.example\"]", "", "pages of more hosts"),
        ("roots = \"client\"", "more roots", ""),
        ("instructions = \"drop\"", "", "its instructions reach clients"),
        ("instructions = \"Ask first.\"", "", "its instructions reach clients"),
        ("no-new-privileges = false", "it may gain privileges", ""),
        ("call-timeout = \"9s\"", "", ""),
    ] {
        let named = |what: &str| if what.is_empty() { String::new() } else { format!("the upstream c: {what}") };
        assert_eq!(opened(&upstream(""), &upstream(more)), [named(there), named(back)], "{more}");
    }
}

#[test]
fn a_plan_says_when_a_new_token_turns_instructions_off() {
    let text = |setting: &str, tokens: &str| {
        format!("[policy]\n[upstreams.c]\ncommand = [\"/c\"]\n{setting}\n[server.auth]\nmode = \"token\"\n{tokens}")
    };
    let token = "[server.auth.tokens]\nd = \"a-token-that-is-long\"\n";
    for (label, setting, is_told) in [
        ("by default", "", true),
        ("passed to all", "instructions = \"pass\"", false),
        ("dropped before", "instructions = \"drop\"", false),
    ] {
        let plan = diff(&good(&text(setting, "")).0, &good(&text(setting, token)).0);
        let told = plan.to_string();
        assert_eq!(
            told.contains("no instructions of c any more, since there are other callers"),
            is_told,
            "{label}: {told}"
        );
    }
}
