//! Tests of apps: views are read by the clients that may, under one name for each owner, and never
//! in a form that no person or first sight approved.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup, status_of};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::eventually;
use crate::stage::steps::pins::{MARKER, ok, open};
use crate::stage::upstream::{Fake, InputLog, Patch};
use crate::stage::{now, pass};

const VIEW: &str = "ui://maps/view.html";
const MIME: &str = "text/html;profile=mcp-app";

/// Returns a content with that HTML.
fn html(text: &str) -> Value {
    json!({"mimeType": MIME, "text": text})
}

/// Returns a patch in which the tool `echo` names a view that no list has.
fn with_view(read: &Value) -> Value {
    json!({"echo": {"_meta": {"ui": {"resourceUri": VIEW}}}, "reads": {VIEW: read}})
}

fn read(client: &mut Mcp, uri: &str) -> Value {
    client.request("resources/read", json!({"uri": uri})).message
}

/// Returns the view that a tool names to this client.
fn view_of(client: &mut Mcp, tool: &str) -> Value {
    let tools = client.list("tools/list", "tools");
    let tool = tools.into_iter().find(|listed| listed["name"] == tool).unwrap_or_default();
    tool.pointer("/_meta/ui/resourceUri").cloned().unwrap_or_default()
}

/// Fails if a client of any era learns a byte of a text that nothing approved.
fn silent(gateway: &Gateway, uri: &str) {
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let answer = read(&mut client, uri);
        assert!(!answer.to_string().contains(MARKER), "{answer}");
        let unknown = read(&mut client, "ui://maps/nothing");
        assert_eq!(answer["error"]["code"], unknown["error"]["code"], "{answer}");
        for (method, member) in
            [("tools/list", "tools"), ("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")]
        {
            let listed = json!(client.list(method, member)).to_string();
            assert!(!listed.contains(MARKER) && !listed.contains(VIEW), "{method}: {listed}");
        }
    }
}

#[test]
fn a_view_that_a_tool_names_is_read_by_clients_that_see_the_tool_byte_for_byte() {
    for fake in [Fake::stdio("legacy"), Fake::stdio("modern"), Fake::http("legacy"), Fake::http("modern")] {
        let is_program = format!("{fake:?}").contains("stdio");
        let setup = GatewaySetup::new()
            .second_caller("bob-0123456789abcdef")
            .policy("[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ncallers = [\"ci\"]\ntools = [\"fx__echo\"]\n");
        let patch = Patch::new(&setup);
        let ui = json!({"csp": {"connectDomains": ["https://a.example"]}, "prefersBorder": true});
        let content = json!({"mimeType": MIME, "text": "<p>é\u{202e}", "_meta": {"ui": ui, "x": [1]}});
        patch.write(&with_view(&content));
        let server = (!is_program).then(|| patch.of(fake.clone()).spawn());
        let setup = match &server {
            Some(server) => setup.url("fx", &server.url),
            None => setup.fake("fx", &patch.of(fake)),
        };
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__echo"]);
        for era in ClientEra::BOTH {
            let mut client = gateway.client(era);
            assert_eq!(view_of(&mut client, "fx__echo"), VIEW);
            let mut want = content.clone();
            want["uri"] = json!(VIEW);
            assert_eq!(read(&mut client, VIEW)["result"]["contents"], json!([want]));
            assert!(!json!(client.list("resources/list", "resources")).to_string().contains("ui://"));
        }
    }
}
