//! Tests of views with several owners, and of URIs that tools hand to callers.

use std::time::Duration;

use serde_json::{Value, json};

use super::views::{MIME, VIEW, content, host, host_at, html, read, view_of, with_view};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::eventually;
use crate::stage::steps::pins::ok;
use crate::stage::upstream::{Fake, InputLog, Patch};

fn result_of(client: &mut Mcp, tool: &str) -> Value {
    client.call(tool, json!({})).result().clone()
}

/// Starts a gateway before `a`, whose tool names the view, and `b`, which lists it; their own URI
/// of it is in the results of both.
fn two_owners(more: &str) -> (Gateway, [Patch; 2], [InputLog; 2], GatewaySetup) {
    let (setup, second) = (GatewaySetup::new(), GatewaySetup::new());
    let folder = setup.world.path("work");
    // Each patch is in a folder of its own.
    let patches = [Patch::new(&setup), Patch::new(&second)];
    let logs = ["a", "b"].map(|name| InputLog::new(&folder, name));
    let result = |text: &str| {
        let block = json!({"type": "resource", "resource": {"uri": VIEW, "mimeType": MIME, "text": text}});
        json!({
            "content": [{"type": "resource_link", "uri": VIEW, "name": "v"}, block],
            "_meta": {"ui": {"resourceUri": VIEW}, "ui/resourceUri": VIEW},
        })
    };
    let mut patch = with_view(&html("of a"));
    patch["results"] = json!({"echo": result("of a")});
    patches[0].write(&patch);
    patches[1].write(&json!({
        "more": {"resources": [{"uri": VIEW, "name": "view", "mimeType": MIME}]},
        "reads": {VIEW: html("of b")}, "results": {"echo": result("of b")},
    }));
    let fakes = [0, 1].map(|at| patches[at].of(Fake::stdio("modern")).logging(&logs[at]));
    let setup = setup.fake("a", &fakes[0]).fake("b", &fakes[1]).toml(more);
    let gateway = setup.start();
    gateway.wait_for_tools(&["a__echo", "b__echo"]);
    (gateway, patches, logs, second)
}

#[test]
fn a_view_of_two_owners_has_their_names_everywhere_and_keeps_them() {
    let profiles = "[profiles.one]\nupstreams = [\"a\"]\n[profiles.bare]\nupstreams = [\"a\"]\ntransparent = true\n";
    let (mut gateway, patches, logs, _second) = two_owners(profiles);
    let [of_a, of_b] = ["ui://a+maps/view.html", "ui://b+maps/view.html"];
    let all_of = |result: &Value| {
        ["/content/0/uri", "/content/1/resource/uri", "/_meta/ui/resourceUri", "/_meta/ui~1resourceUri"]
            .map(|place| result.pointer(place).unwrap().clone())
    };
    for era in ClientEra::BOTH {
        let mut client = host(&gateway, era);
        assert_eq!(view_of(&mut client, "a__echo"), of_a);
        let listed = json!(client.list("resources/list", "resources")).to_string();
        assert!(listed.contains(of_b) && !listed.contains("ui://maps"), "{listed}");
        for (uri, text) in [(of_a, "of a"), (of_b, "of b")] {
            let content = content(&mut client, uri);
            assert_eq!((&content["uri"], &content["text"]), (&json!(uri), &json!(text)));
        }
        assert!(read(&mut client, VIEW)["error"].is_object(), "it belongs to two");
        assert_eq!(all_of(&result_of(&mut client, "a__echo")), [of_a; 4]);
        assert_eq!(all_of(&result_of(&mut client, "b__echo")), [of_b; 4]);
        assert!(read(&mut client, VIEW)["error"].is_object());
        let mut one = host_at(&gateway, era, "/mcp/one");
        assert_eq!(
            (view_of(&mut one, "a__echo"), content(&mut one, of_a)["text"].clone()),
            (json!(of_a), json!("of a"))
        );
        let mut bare = host_at(&gateway, era, "/mcp/bare");
        assert_eq!(
            (view_of(&mut bare, "echo"), content(&mut bare, VIEW)["text"].clone()),
            (json!(VIEW), json!("of a"))
        );
        assert_eq!(all_of(&result_of(&mut bare, "echo")), [VIEW; 4]);
    }
    assert!(
        logs.iter().all(|log| log.lines_with(&["resources/read", "+maps"]).is_empty()),
        "they know their own alone"
    );
    // Pins remember both owners when one of them is gone.
    patches[1].write(&json!({}));
    for _ in 0..2 {
        gateway = gateway.restart();
        gateway.wait_for_tools(&["a__echo", "b__echo"]);
        let mut client = host(&gateway, ClientEra::Modern);
        eventually("it is gone", || client.list("resources/list", "resources").iter().all(|item| item["uri"] != of_b));
        assert_eq!(
            (view_of(&mut client, "a__echo"), content(&mut client, of_a)["text"].clone()),
            (json!(of_a), json!("of a"))
        );
        assert!(read(&mut client, VIEW)["error"].is_object());
    }
}

#[test]
fn with_prefixed_uris_each_view_has_its_owner_s_name() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let mut patched = with_view(&html("<p>"));
    patched["more"] = json!({"resourceTemplates": [{"uriTemplate": "ui://t/{id}", "name": "t"}]});
    patched["reads"]["ui://t/7"] = html("seven");
    patch.write(&patched);
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).toml("[naming]\nuris = \"prefix\"\n").start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = host(&gateway, era);
        assert_eq!(view_of(&mut client, "fx__echo"), "ui://fx+maps/view.html");
        let templates = client.list("resources/templates/list", "resourceTemplates");
        assert!(templates.iter().any(|template| template["uriTemplate"] == "ui://fx+t/{id}"), "{templates:?}");
        for (uri, text) in [("ui://fx+maps/view.html", "<p>"), ("ui://fx+t/7", "seven")] {
            let content = content(&mut client, uri);
            assert_eq!((&content["uri"], &content["text"]), (&json!(uri), &json!(text)));
        }
        assert!(read(&mut client, VIEW)["error"].is_object());
    }
}

#[test]
fn a_uri_that_a_result_hands_out_is_read_by_its_caller_for_an_hour() {
    let setup = GatewaySetup::new()
        .second_caller("token-of-the-second-caller-0123456789")
        .policy("default = \"allow\"\n[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\nresources = [\"fx+note://denied\"]\n")
        .toml("[profiles.p]\nupstreams = [\"fx\"]\n");
    let patch = Patch::new(&setup);
    let uris = ["note://1", "note://denied", "note://hidden", "ui://made/1"];
    let links = uris.map(|uri| json!({"type": "resource_link", "uri": uri, "name": "n"}));
    let reads: serde_json::Map<String, Value> = uris.iter().map(|uri| ((*uri).to_owned(), html(uri))).collect();
    patch.write(&json!({"results": {"echo": {"content": links}}, "reads": reads}));
    let filter = "resources = { deny = [\"note://hidden\"] }\n";
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).toml(filter).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = host(&gateway, era);
        let mut second = Mcp::http(gateway.address, Some("token-of-the-second-caller-0123456789".to_owned()), era);
        let mut in_profile = host_at(&gateway, era, "/mcp/p");
        let is_read = |client: &mut Mcp, uri: &str| read(client, uri)["result"].is_object();
        assert!(uris.iter().all(|uri| !is_read(&mut client, uri)), "nothing handed them out");
        assert_eq!(result_of(&mut client, "fx__echo")["content"], json!(links), "not a byte is changed");
        for uri in ["note://1", "ui://made/1"] {
            assert!(is_read(&mut client, uri), "{uri}");
            assert!(!is_read(&mut second, uri) && !is_read(&mut in_profile, uri), "{uri}");
        }
        for uri in ["note://denied", "note://hidden", "note://2"] {
            assert!(!is_read(&mut client, uri), "{uri}");
        }
        pass(Duration::from_secs(3590));
        assert!(is_read(&mut host(&gateway, era), "note://1"), "another client of the caller");
        pass(Duration::from_secs(10));
        assert!(!is_read(&mut host(&gateway, era), "note://1"));
    }
    let audit = ok(&gateway, &["audit", "tail", "-n", "1000", "--json"]);
    assert!(audit.contains("fx+note://1"), "{audit}");
}

#[test]
fn a_uri_of_two_upstreams_is_read_from_neither_and_a_view_gets_a_name() {
    let (setup, second) = (GatewaySetup::new(), GatewaySetup::new());
    let [one, two] = [Patch::new(&setup), Patch::new(&second)];
    for (patch, text) in [(&one, "of a"), (&two, "of b")] {
        let links = ["note://1", "ui://made/1"].map(|uri| json!({"type": "resource_link", "uri": uri, "name": "n"}));
        let reads = json!({"note://1": html(text), "ui://made/1": html(text)});
        patch.write(&json!({"results": {"echo": {"content": links}}, "reads": reads}));
    }
    let setup = setup.fake("a", &one.of(Fake::stdio("both"))).fake("b", &two.of(Fake::stdio("both")));
    let gateway = setup.start();
    gateway.wait_for_tools(&["a__echo", "b__echo"]);
    let mut client = host(&gateway, ClientEra::Modern);
    let mut links = |tool: &str| {
        let result = result_of(&mut client, tool);
        [0, 1].map(|at| result["content"][at]["uri"].as_str().unwrap().to_owned())
    };
    assert_eq!(links("a__echo"), ["note://1", "ui://made/1"]);
    let mut reader = host(&gateway, ClientEra::LEGACY);
    assert_eq!(content(&mut reader, "note://1")["text"], "of a");
    assert_eq!(links("b__echo"), ["note://1", "ui://b+made/1"]);
    assert!(read(&mut reader, "note://1")["error"].is_object());
    assert_eq!(content(&mut reader, "ui://made/1")["text"], "of a");
    let of_b = content(&mut reader, "ui://b+made/1");
    assert_eq!((&of_b["text"], &of_b["uri"]), (&json!("of b"), &json!("ui://b+made/1")));
}
