//! Problems of rules: conditions, words on tools, and scopes.

use super::*;

#[test]
fn conditions_are_checked() {
    let of = |conditions: &str| {
        format!("[policy]\n[[policy.rules]]\nid=\"r\"\neffect=\"deny\"\ntools=[\"fs__*\"]\narguments=[{conditions}]\n")
    };
    let rows = [
        ("none", "", "t:10: policy.rules[0].arguments: must not be empty"),
        ("no pointer", "{eq=1}", "policy.rules[0].arguments[0]: needs `pointer`"),
        ("no matcher", "{pointer=\"/a\"}", "policy.rules[0].arguments[0]: needs a matcher, one of eq, ne, in"),
        ("two matchers", "{pointer=\"/a\",eq=1,ne=2}", "policy.rules[0].arguments[0].ne: is a second matcher"),
        (
            "an unknown one",
            "{pointer=\"/a\",eqs=1}",
            "policy.rules[0].arguments[0].eqs: unknown key; did you mean `eq`?",
        ),
        (
            "another type",
            "{pointer=\"/a\",eq=[1]}",
            "arguments[0].eq: must be a string, a number, true or false, not an",
        ),
        ("an empty list", "{pointer=\"/a\",in=[]}", "arguments[0].in: must not be empty"),
        ("a large number", "{pointer=\"/a\",eq=9007199254740993}", "arguments[0].eq: must not be beyond 2^53"),
        ("no number", "{pointer=\"/a\",range={max=inf}}", "arguments[0].range.max: must be a finite number"),
        ("a range inside out", "{pointer=\"/a\",range={min=2,max=1}}", "arguments[0].range: never holds"),
        (
            "a broken expression",
            "{pointer=\"/a\",regex=\"(\"}",
            "arguments[0].regex: is no regular expression: unclosed group",
        ),
        (
            "not absent",
            "{pointer=\"/a\",absent=false}",
            "arguments[0].absent: must be true; for the opposite write present",
        ),
        (
            "an unknown type",
            "{pointer=\"/a\",type=\"text\"}",
            "arguments[0].type: must be one of \"string\", \"number\"",
        ),
        (
            "at odds",
            "{pointer=\"/a\",eq=\"x\"},\n{pointer=\"/a\",eq=\"y\"}",
            "t:11: policy.rules[0].arguments[1]: cannot hold together with arguments[0]",
        ),
    ];
    let rows = rows.map(|(label, text, want)| (label, of(text), want));
    refused(&rows, BASE);
}

#[test]
fn rules_that_do_nothing_are_refused_where_they_stand() {
    let rows: &[Row] = &[
        (
            "a shadow",
            "[policy]\n[[policy.rules]]\nid=\"a\"\neffect=\"deny\"\nupstreams=[\"fs\"]\n[[policy.rules]]\nid=\"b\"\neffect=\"allow\"\ntools=[\"fs__x\"]\n",
            "t:10: policy.rules[1]: never decides anything: rule `a` denies everything that this one matches",
        ),
        (
            "no such profile",
            "[policy]\n[[policy.rules]]\nid=\"a\"\neffect=\"deny\"\nprofiles=[\"redaer\"]\n[profiles.reader]\nupstreams=[\"fs\"]\n",
            "policy.rules[0].profiles[0]: matches no configured profile; did you mean `reader`?",
        ),
        (
            "no such kind",
            "[policy]\n[[policy.rules]]\nid=\"a\"\neffect=\"deny\"\nkinds=[\"tools\"]\n",
            "policy.rules[0].kinds[0]: must be one of \"tool\"",
        ),
        (
            "evidence of a deny",
            "[policy]\n[[policy.rules]]\nid=\"a\"\neffect=\"deny\"\nmin-evidence=\"L2\"\n",
            "t:9: policy.rules[0].min-evidence: belongs to rules with effect = \"ask\"",
        ),
    ];
    refused(rows, BASE);
}

#[test]
fn the_words_on_tools_are_checked() {
    let of = |line: &str| format!("[upstreams.x]\ncommand=[\"/x\"]\n{line}\n");
    let rows = [
        ("trust", "trust=\"full\"", "t:3: upstreams.x.trust: must be one of \"untrusted\", \"standard\", \"trusted\""),
        ("a change", "on-change=\"ask\"", "upstreams.x.on-change: must be one of \"quarantine\", \"accept\""),
        ("nothing said", "annotations={a={}}", "upstreams.x.annotations.a: has no hints"),
        (
            "an unknown hint",
            "annotations={a={readonly=true}}",
            "annotations.a.readonly: unknown key; did you mean `read-only`?",
        ),
        (
            "both",
            "annotations={a={read-only=true,destructive=true}}",
            "annotations.a: what only reads is not destructive",
        ),
        ("no glob", "annotations={\"a[\"={read-only=true}}", "is not a glob"),
    ];
    let rows = rows.map(|(label, text, want)| (label, of(text), want));
    refused(&rows, "");
}

#[test]
fn scopes_are_checked() {
    let of = |scope: &str| format!("[server.auth.scopes]\n{scope}\n");
    let rows = [
        ("nothing", "read={}", "t:6: server.auth.scopes.read: maps to nothing; name the items that need the scope"),
        (
            "an unknown upstream",
            "\"mcp:read\"={upstreams=[\"doc\"]}",
            "t:6: server.auth.scopes.\"mcp:read\".upstreams[0]: matches no configured upstream",
        ),
        ("an exposed name", "read={tools=[\"delete\"]}", "server.auth.scopes.read.tools[0]: "),
        ("two words", "\"a b\"={tools=[\"fs__x\"]}", "a scope is up to 128 visible ASCII characters without spaces"),
        ("callers", "read={callers=[\"ci\"]}", "server.auth.scopes.read.callers: unknown key"),
        (
            "kinds that are no items",
            "read={tools=[\"fs__x\"],kinds=[\"launch\"]}",
            "server.auth.scopes.read.kinds: never matches",
        ),
        ("kinds without an item", "read={kinds=[\"sampling\"]}", "server.auth.scopes.read: a scope is about items"),
        ("no pattern", "read={tools=[\"fs__[\"]}", "server.auth.scopes.read.tools[0]: "),
    ];
    let rows = rows.map(|(label, text, want)| (label, of(text), want));
    refused(&rows, BASE);
}
