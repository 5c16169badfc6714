//! Tests of servers and clients that attack by apps: views on other ways than a read, other
//! spellings of a URI, floods of URIs, and names and views of servers that are not there.

use std::time::Duration;

use serde_json::{Value, json};

use super::views::{MIME, VIEW, assert_withheld, before_each, content, host, html, read, view_of, with_view};
use super::{lists, patched};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::eventually;
use crate::stage::steps::pins::{MARKER, ok, open};
use crate::stage::upstream::{Fake, InputLog, Patch};

const UI: &str = "io.modelcontextprotocol/ui";

/// Returns a content block that embeds a view.
fn embedded(uri: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": MIME, "text": text}})
}

/// Returns the first content block of a call of `fx__echo`, and the whole answer.
fn block(client: &mut Mcp) -> (Value, String) {
    let answer = client.call("fx__echo", json!({}));
    (answer.result()["content"][0].clone(), answer.raw)
}

#[test]
fn a_view_that_a_result_embeds_is_judged_as_a_read_of_it() {
    let patch_of = |text: &str| {
        let mut patch = with_view(&html("<p>one"));
        patch["results"] = json!({"echo": {"content": [embedded(VIEW, text)]}});
        patch
    };
    before_each(
        |patch| patch.write(&patch_of("<p>one")),
        |gateway, patch| {
            for era in ClientEra::BOTH {
                assert_eq!(block(&mut host(&gateway, era)).0, embedded(VIEW, "<p>one"));
            }
            patch.write(&patch_of(&format!("<p>{MARKER}")));
            let clients = || {
                let http = ClientEra::BOTH.map(|era| host(&gateway, era));
                http.into_iter().chain([Mcp::stdio_with(gateway.pipe(), ClientEra::LEGACY, json!({}))])
            };
            for mut client in clients() {
                let (block, raw) = block(&mut client);
                assert!(block["type"] == "text" && !raw.contains(MARKER), "{raw}");
            }
            assert_eq!(open(&gateway), [format!("fx+{VIEW} app changed")]);
            assert_eq!(content(&mut host(&gateway, ClientEra::Modern), VIEW)["text"], "<p>one");
            assert_eq!(open(&gateway), [""; 0], "the approved page is back");
            block(&mut host(&gateway, ClientEra::Modern));
            ok(&gateway, &["pins", "approve", &format!("fx+{VIEW}"), "--kind", "app"]);
            for mut client in clients() {
                assert_eq!(block(&mut client).0, embedded(VIEW, &format!("<p>{MARKER}")));
            }
        },
    );
}

#[test]
fn embedded_views_of_a_doubt_and_in_masses_are_withheld() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let mut camera = embedded("ui://made/camera", MARKER);
    camera["resource"]["_meta"] = json!({"ui": {"permissions": {"camera": {}}}});
    let results = json!({"echo": {"content": [camera]}});
    patch.write(&json!({"results": results}));
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = host(&gateway, ClientEra::Modern);
    assert!(!block(&mut client).1.contains(MARKER));
    assert_eq!(open(&gateway), ["fx+ui://made/camera app quarantined"]);
    let many: Vec<Value> = (0..300).map(|n| embedded(&format!("ui://made/{n}"), "<p>")).collect();
    patch.write(&json!({"results": {"echo": {"content": many}}}));
    let result = client.call("fx__echo", json!({})).result().clone();
    let passed = result["content"].as_array().unwrap().iter().filter(|block| block["type"] == "resource").count();
    assert_eq!(passed, 16, "the others are not judged");
}

#[test]
fn a_view_comes_with_no_other_resource() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let mut patched = with_view(&html("<p>one"));
    let mut other = html(MARKER);
    other["uri"] = json!(VIEW);
    patched["more"] = json!({"resources": [{"uri": "note://1", "name": "note"}]});
    patched["reads"]["note://1"] = other;
    patch.write(&patched);
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let answer = read(&mut host(&gateway, era), "note://1");
        assert!(answer["error"].is_object() && !answer.to_string().contains(MARKER), "{answer}");
    }
    // The URI of the content is a part of what was approved.
    assert_eq!(content(&mut host(&gateway, ClientEra::Modern), VIEW)["text"], "<p>one");
    patched["reads"][VIEW]["uri"] = json!("ui://other");
    patch.write(&patched);
    assert!(read(&mut host(&gateway, ClientEra::Modern), VIEW)["error"].is_object());
}

#[test]
fn another_spelling_of_a_view_leads_to_no_other_server() {
    let (setup, second) = (GatewaySetup::new(), GatewaySetup::new());
    let [one, two] = [Patch::new(&setup), Patch::new(&second)];
    one.write(&with_view(&html("of a")));
    two.write(&json!({"echo": {"_meta": {"ui": {"resourceUri": "ui://Other/1"}}}}));
    let setup = setup.fake("a", &one.of(Fake::stdio("both"))).fake("b", &two.of(Fake::stdio("both")));
    let gateway = setup.start();
    gateway.wait_for_tools(&["a__echo", "b__echo"]);
    for (era, uri, want) in [
        (ClientEra::Modern, r"\u0075\u0069\u003a//maps/view.html", "ui://b+maps/view.html"),
        (ClientEra::LEGACY, r"ui:\/\/MAPS/view.html", "ui://b+MAPS/view.html"),
        (ClientEra::Modern, "UI://Maps/view.html", "ui://b+Maps/view.html"),
    ] {
        let result = format!(
            r#"{{"content":[{{"t\u0079pe":"resource\u005flink","uri":"{uri}","name":"v"}}],"\u005fmeta":{{"ui":{{"resourceUri":"{uri}"}}}}}}"#
        );
        let file = gateway.world.write("work/result.json", &result);
        let mut client = host(&gateway, era);
        let answer = client.call("b__raw", json!({"file": file}));
        let result = answer.result();
        let got = [&result["content"][0]["uri"], &result["_meta"]["ui"]["resourceUri"]];
        assert_eq!(got, [&json!(want); 2], "{uri}: {}", answer.raw);
        assert_eq!(content(&mut client, VIEW)["text"], "of a");
    }
}

#[test]
fn the_names_and_views_of_a_server_that_is_away_are_no_other_server_s() {
    let (setup, second) = (GatewaySetup::new(), GatewaySetup::new());
    let two = Patch::new(&second);
    let mut of_a = lists();
    of_a["reads"] = json!({"ui://v/1": html("of a")});
    let a = patched(&setup, "a", Fake::http("modern").with("--tools", "2"), &of_a).spawn();
    let link = json!({"type": "resource_link", "uri": "ui://v/1", "name": "v"});
    two.write(&json!({
        "echo": {"_meta": {"ui": {"resourceUri": "ui://b/1"}}},
        "results": {"echo": {"content": [link]}}, "reads": {"ui://v/1": html("of b")},
    }));
    let log = InputLog::new(&setup.world.path("work"), "b");
    let b = two.of(Fake::stdio("both").with("--tools", "2").logging(&log));
    let gateway = setup.url("a", &a.url).fake("b", &b).start();
    gateway.wait_for_tools(&["a__extra_0001", "b__extra_0001"]);
    let mut client = host(&gateway, ClientEra::Modern);
    assert_eq!(content(&mut client, "ui://v/1")["text"], "of a");
    assert_eq!(client.call("extra_0000", json!({})).code(), Some(-32602), "two have it");
    drop(a);
    pass(Duration::from_secs(700));
    let mut client = host(&gateway, ClientEra::Modern);
    eventually("it is away", || !client.tool_names().iter().any(|name| name == "a__extra_0001"));
    let copied = client.call("extra_0000", json!({}));
    assert_eq!((copied.code(), log.count("tools/call")), (Some(-32602), 0), "{}", copied.raw);
    assert_eq!(client.call("b__echo", json!({})).result()["content"][0]["uri"], "ui://b+v/1");
    assert!(read(&mut client, "ui://v/1")["error"].is_object());
    assert_eq!(content(&mut client, "ui://b+v/1")["text"], "of b");
}

/// Starts a gateway before a server whose tool `echo` hands out that many URIs.
fn handing(count: usize) -> (Gateway, String) {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let links = (0..count).map(|n| json!({"type": "resource_link", "uri": format!("note://{n}"), "name": "n"}));
    let reads: serde_json::Map<String, Value> = (0..300).map(|n| (format!("note://{n}"), html("a note"))).collect();
    patch.write(&json!({"results": {"echo": {"content": links.collect::<Vec<_>>()}}, "reads": reads}));
    let setup = setup.fake("fx", &patch.of(Fake::stdio("both")));
    let text = setup.text();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, text)
}

#[test]
fn a_result_hands_out_a_bounded_number_of_uris() {
    let (gateway, _) = handing(20_000);
    let mut client = host(&gateway, ClientEra::Modern);
    assert_eq!(client.call("fx__echo", json!({})).result()["content"].as_array().unwrap().len(), 20_000);
    for (n, is_read) in [(0, true), (100, true), (254, true), (255, true), (256, false), (257, false), (299, false)] {
        assert_eq!(read(&mut client, &format!("note://{n}"))["result"].is_object(), is_read, "{n}");
    }
}

#[test]
fn a_handed_uri_is_read_while_its_caller_sees_the_tool() {
    let (gateway, text) = handing(1);
    let mut client = host(&gateway, ClientEra::Modern);
    client.call("fx__echo", json!({}));
    assert_eq!(content(&mut client, "note://0")["text"], "a note");
    let rule = "\n[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\n";
    assert!(gateway.reload(&format!("{text}{rule}")).status.success());
    for era in ClientEra::BOTH {
        eventually("it ends with the tool", || read(&mut host(&gateway, era), "note://0")["error"].is_object());
    }
    assert!(gateway.reload(&text).status.success());
    eventually("the tool is back", || content(&mut host(&gateway, ClientEra::LEGACY), "note://0")["text"] == "a note");
}

#[test]
fn a_watch_of_resources_declares_apps_as_lists_do() {
    for (apps, want) in [("on", true), ("off", false)] {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let lists = json!({"subscribes": true});
        let fake = patched(&setup, "fx", Fake::stdio("modern").logging(&log), &lists);
        let gateway = setup.fake("fx", &fake).toml(&format!("apps = \"{apps}\"")).start();
        gateway.wait_for_tools(&["fx__echo"]);
        let mut client = host(&gateway, ClientEra::LEGACY);
        let watched = client.request("resources/subscribe", json!({"uri": "fx://doc/1"}));
        assert_eq!(watched.result(), &json!({}), "{}", watched.raw);
        assert_eq!(log.lines_with(&["subscriptions/listen", "fx://doc/1", UI]).len() == 1, want, "{apps}");
    }
}

#[test]
fn html_that_changes_at_each_read_and_in_each_form_is_never_passed() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    patch.write(&with_view(&html("<p>one")));
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = host(&gateway, ClientEra::LEGACY);
    assert_eq!(content(&mut client, VIEW)["text"], "<p>one");
    let many = vec![MARKER; 50_000];
    let blob = data_encoding::BASE64.encode(MARKER.as_bytes());
    for changed in [
        html(&format!("<p>{MARKER}1")),
        html(&format!("<p>{MARKER}2")),
        json!({"mimeType": MIME, "blob": blob}),
        json!({"mimeType": MIME, "text": "<p>one", "blob": blob}),
        json!({"mimeType": format!("{MIME};{MARKER}"), "text": "<p>one"}),
        json!({"mimeType": MIME, "text": "<p>one", "_meta": {"ui": {"domain": [MARKER]}}}),
        json!({"mimeType": MIME, "text": "<p>one", "_meta": {"ui": {"csp": {"connectDomains": many}}}}),
        json!({"mimeType": MIME, "text": "<p>one", "_meta": {"ui": {"csp": {"connectDomains": MARKER}}}}),
    ] {
        patch.write(&with_view(&changed));
        for era in ClientEra::BOTH {
            let answer = read(&mut host(&gateway, era), VIEW);
            let text = answer.to_string();
            assert!(answer["error"].is_object() && !text.contains(MARKER) && !text.contains(&blob), "{text}");
        }
    }
    eventually("the tool has no view", || view_of(&mut client, "fx__echo").is_null());
    assert_withheld(&mut client, VIEW);
}
