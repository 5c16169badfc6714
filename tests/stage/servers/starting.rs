//! Tests of calls of tools whose server starts for the first time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};
use crate::stage::pass;
use crate::stage::upstream::Fake;

const TOKEN: &str = "token-of-the-second-caller-0123456789";
const RULES: &str = r#"
[[policy.rules]]
id = "not-for-second"
effect = "deny"
callers = ["second"]
tools = ["fx__echo"]
[profiles.none]
upstreams = ["other"]
[profiles.few]
upstreams = ["fx"]
tools = { allow = ["fx__env"] }
[profiles.bare]
upstreams = ["fx"]
transparent = true
"#;

fn refusal(answer: &McpAnswer) -> Value {
    answer.message["result"]["_meta"]["headend/refusal"].clone()
}

#[test]
fn only_a_client_that_could_be_shown_the_tool_learns_that_its_server_starts() {
    let command = Fake::stdio("both").behaving("slow-start=20000").command();
    let tools = "tools = { deny = [\"sleep\"], rename = { env = \"surroundings\" } }";
    let gateway = GatewaySetup::new()
        .second_caller(TOKEN)
        .fake("other", &Fake::stdio("both"))
        .toml(&format!("[upstreams.fx]\ncommand = {command}\nstart-timeout = \"60s\"\n{tools}\n{RULES}"))
        .start();
    pass(Duration::from_secs(2));
    let local = gateway.token();
    let second = Some(TOKEN.to_owned());
    // Path, caller, name, and whether the client learns of the start.
    let rows = [
        ("/mcp", &local, "fx__echo", true),
        ("/mcp", &local, "fx__surroundings", true),
        ("/mcp", &local, "fx__sleep", false),
        ("/mcp", &local, "fx__", false),
        ("/mcp", &local, "fy__echo", false),
        ("/mcp", &second, "fx__echo", false),
        ("/mcp/none", &local, "fx__echo", false),
        ("/mcp/few", &local, "fx__echo", false),
        ("/mcp/few", &local, "fx__surroundings", true),
        ("/mcp/bare", &local, "echo", true),
    ];
    for era in ClientEra::BOTH {
        for (path, token, name, learns) in rows {
            let mut client = Mcp::http_at(gateway.address, token.clone(), era, path, json!({}));
            let answer = client.call(name, json!({"text": "early"}));
            let at = format!("{era:?} {path} {name}: {}", answer.raw);
            if learns {
                let refusal = refusal(&answer);
                assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("upstream_down"), &json!("no")), "{at}");
                assert!(answer.text().contains("`fx` has been starting for"), "{at}");
            } else {
                assert_eq!(answer.code(), Some(-32602), "{at}");
                assert!(!answer.raw.contains("starting"), "{at}");
            }
        }
    }
    gateway.wait_for_tools(&["fx__echo"]);
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "later"})).text(), "later");
}

#[test]
fn a_call_before_the_first_list_learns_that_the_tools_are_being_listed() {
    let setup = GatewaySetup::new();
    let lists = setup.world.write("work/lists.json", &json!({"tools/list": {"after": 4000}}).to_string());
    let fake = Fake::stdio("both").with("--lists", lists.to_str().unwrap());
    let gateway = setup.fake("fx", &fake).start();
    pass(Duration::from_secs(1));
    for era in ClientEra::BOTH {
        let answer = gateway.client(era).call("fx__echo", json!({"text": "early"}));
        let refusal = refusal(&answer);
        let facts = [&refusal["reason"], &refusal["executed"], &refusal["retry-after-ms"]];
        assert_eq!(facts, [&json!("upstream_down"), &json!("no"), &json!(1000)], "{era:?}: {}", answer.raw);
        assert!(answer.text().contains("`fx` has started and lists its tools"), "{}", answer.raw);
    }
    gateway.wait_for_tools(&["fx__echo"]);
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "later"})).text(), "later");
    assert_eq!(gateway.modern().call("fx__nothing", json!({})).code(), Some(-32602));
}
