//! Deny, ask and limit as clients of both eras meet them.

use serde_json::json;

use crate::harness::Setup;
use crate::mcp::Era;
use crate::upstream::{Fake, Log};

#[test]
fn a_denied_tool_is_hidden_and_indistinguishable_from_an_unknown_one() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .fake("fx", &Fake::stdio("both").logging(&record))
        .toml("[[policy.rules]]\nid = \"no-denied\"\neffect = \"deny\"\ntools = [\"fx__denied\"]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in Era::BOTH {
        let mut client = gateway.client(era);
        assert!(!client.tool_names().contains(&"fx__denied".to_owned()), "{era:?}");
        let denied = client.call("fx__denied", json!({}));
        let unknown = client.call("fx__nobody", json!({}));
        assert_eq!(denied.code(), Some(-32602), "{era:?}: {}", denied.raw);
        assert_eq!(denied.status, unknown.status, "{era:?}");
        let plain = |answer: &crate::mcp::Answer| answer.message["error"]["message"].to_string();
        assert_eq!(plain(&denied).replace("denied", "nobody"), plain(&unknown), "{era:?}");
    }
    assert_eq!(record.count("tools/call"), 0);
}

#[test]
fn a_rule_that_needs_more_than_this_release_can_do_is_refused_with_a_reason() {
    for (label, rule, reason) in [
        ("ask", "effect = \"ask\"", "consent"),
        ("arguments", "effect = \"deny\"\narguments = [{ pointer = \"/text\", glob = \"s*\" }]", "arguments"),
    ] {
        let rule = format!("[[policy.rules]]\nid = \"r\"\ntools = [\"fx__echo\"]\n{rule}");
        let (world, config) = Setup::new().fake("fx", &Fake::stdio("both")).toml(&rule).write();
        let checked = world.run(&["check", "--config", config.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(78), "{label}: {told}");
        assert!(told.contains("policy.rules[0]") && told.contains(reason), "{label}: {told}");
    }
}

#[test]
fn what_no_rule_names_follows_the_default() {
    for (default, listed) in [("allow", true), ("deny", false)] {
        let setup = Setup::new().policy(&format!("default = \"{default}\""));
        let record = Log::new(&setup.world.path("work"), "fx");
        let gateway = setup
            .fake("fx", &Fake::stdio("both").logging(&record))
            .toml("[[policy.rules]]\nid = \"env\"\neffect = \"allow\"\ntools = [\"fx__env\"]")
            .start();
        gateway.wait_for_tools(&["fx__env"]);
        for era in Era::BOTH {
            let mut client = gateway.client(era);
            assert_eq!(client.tool_names().contains(&"fx__echo".to_owned()), listed, "{default} {era:?}");
            assert!(!client.call("fx__env", json!({})).is_error(), "{default} {era:?}");
            let answer = client.call("fx__echo", json!({"text": "x"}));
            let hidden = answer.code() == Some(-32602);
            assert!(if listed { answer.text() == "x" } else { hidden }, "{default} {era:?}: {}", answer.raw);
        }
        let arrived = !record.lines_with(&["tools/call", "\"echo\""]).is_empty();
        assert_eq!(arrived, listed, "{default}: what is denied is never called");
    }
}

#[test]
fn a_limited_call_is_told_when_to_come_back() {
    let gateway = Setup::new()
        .fake("fx", &Fake::stdio("both"))
        .toml("[[policy.limits]]\nid = \"few\"\ntools = [\"fx__echo\"]\nkey = [\"caller\", \"tool\"]\nrate = \"2/m\"\nburst = 2")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    for _ in 0..2 {
        assert_eq!(client.call("fx__echo", json!({"text": "in"})).text(), "in");
    }
    let limited = client.call("fx__echo", json!({"text": "over"}));
    assert!(limited.is_error(), "{}", limited.raw);
    let text = limited.text();
    assert!(text.chars().any(|c| c.is_ascii_digit()), "it says how many seconds: {text}");
    let refusal = &limited.result()["_meta"]["headend/refusal"];
    assert_eq!(refusal["reason"], "limited", "{}", limited.raw);
    assert_eq!(refusal["executed"], "no", "{}", limited.raw);
    let wait = refusal["retry-after-ms"].as_u64().unwrap_or_default();
    assert!((1..=30_000).contains(&wait), "{}", limited.raw);
    assert_eq!(gateway.legacy().call("fx__fail", json!({})).result()["isError"], true, "other tools are not limited");
}
