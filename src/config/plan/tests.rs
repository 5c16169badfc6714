use super::*;
use crate::config::tests::{good, with_policy};

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
        ("another bound of its lists", BASE.replace("url =", "max-inventory = 9\nurl ="), "replace b"),
        ("a timeout", BASE.replace("url =", "call-timeout = \"9s\"\nurl ="), "change b"),
        ("a filter", BASE.replace("url =", "tools = { deny = [\"x\"] }\nurl ="), "change b; new names or views"),
        ("a profile", format!("{BASE}[profiles.p]\nupstreams = [\"a\"]\n"), "new names or views"),
        ("naming", format!("{BASE}[naming]\nmax-length = 60\n"), "new names or views"),
        (
            "a rule",
            format!("{BASE}[[policy.rules]]\nid = \"r\"\neffect = \"deny\"\nupstreams = [\"a\"]\n"),
            "new policy",
        ),
        ("a caller", format!("{BASE}{CI}"), "replace a; new settings of server.auth"),
        (
            "what holds at once",
            format!(
                "{BASE}[server.limits]\nmax-depth = 32\n[policy.consent]\ntimeout = \"1s\"\n[audit]\nstrict = true\n[log]\nfilter = \"warn\"\n"
            ),
            "new settings of policy.consent, audit.strict, log.filter, server.limits.max-depth",
        ),
        (
            "what is read at start",
            format!("{BASE}[server]\nendpoint = \"/x\"\n[metrics]\nlisten = \"\"\n[admin]\ngroup = \"g\"\n"),
            "replace a; only after a restart: server.endpoint, metrics.listen, admin.group",
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
            format!("{settings}; end the sessions of ann, local"),
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
