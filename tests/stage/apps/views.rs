//! Tests of apps: views are read by the clients that may, under one name for each owner, and never
//! in a form that neither a person nor the first sight approved.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup, status_of};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::steps::pins::{MARKER, ok, open};
use crate::stage::upstream::{Fake, Listening, Patch};

pub(super) const VIEW: &str = "ui://maps/view.html";
pub(super) const MIME: &str = "text/html;profile=mcp-app";

/// Returns a content with that HTML.
pub(super) fn html(text: &str) -> Value {
    json!({"mimeType": MIME, "text": text})
}

/// Returns a patch in which the tool `echo` names a view that no list has.
pub(super) fn with_view(content: &Value) -> Value {
    json!({"echo": {"_meta": {"ui": {"resourceUri": VIEW}}}, "reads": {VIEW: content}})
}

/// Connects a client that declares apps.
pub(super) fn host_at(gateway: &Gateway, era: ClientEra, path: &str) -> Mcp {
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME]}}});
    Mcp::http_at(gateway.address, gateway.token(), era, path, capabilities)
}

pub(super) fn host(gateway: &Gateway, era: ClientEra) -> Mcp {
    host_at(gateway, era, "/mcp")
}

pub(super) fn read(client: &mut Mcp, uri: &str) -> Value {
    client.request("resources/read", json!({"uri": uri})).message
}

/// Returns the content of a view.
pub(super) fn content(client: &mut Mcp, uri: &str) -> Value {
    read(client, uri)["result"]["contents"][0].clone()
}

/// Returns the view that a tool names to this client.
pub(super) fn view_of(client: &mut Mcp, tool: &str) -> Value {
    let tools = client.list("tools/list", "tools");
    let tool = tools.into_iter().find(|listed| listed["name"] == tool).unwrap();
    tool.pointer("/_meta/ui/resourceUri").cloned().unwrap_or_default()
}

/// Fails unless a view is unknown to the client, and no list names it.
pub(super) fn assert_withheld(client: &mut Mcp, uri: &str) {
    let (answer, unknown) = (read(client, uri), read(client, "ui://no"));
    assert_eq!(answer["error"].to_string(), unknown["error"].to_string().replace("ui://no", uri), "{answer}");
    for (method, member) in
        [("tools/list", "tools"), ("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")]
    {
        let listed = json!(client.list(method, member)).to_string();
        assert!(!listed.contains(MARKER) && !listed.contains(uri), "{method}: {listed}");
    }
}

/// Starts a gateway before a server of each era and transport with this patch.
pub(super) fn before_each(write: impl Fn(&Patch), run: impl Fn(Gateway, &Patch)) {
    for fake in [Fake::stdio("legacy"), Fake::stdio("modern"), Fake::http("legacy"), Fake::http("modern")] {
        let is_program = format!("{fake:?}").contains("stdio");
        let setup = GatewaySetup::new().toml("[profiles.few]\nupstreams = [\"fx\"]\ntools = { deny = [\"fx__echo\"] }");
        let patch = Patch::new(&setup);
        write(&patch);
        let server: Option<Listening> = (!is_program).then(|| patch.of(fake.clone()).spawn());
        let setup = match &server {
            Some(server) => setup.url("fx", &server.url),
            None => setup.fake("fx", &patch.of(fake)),
        };
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__echo"]);
        run(gateway, &patch);
    }
}

#[test]
fn a_view_that_a_tool_names_is_read_byte_for_byte_by_clients_that_see_the_tool() {
    let ui = json!({"csp": {"connectDomains": ["https://a.example"]}, "prefersBorder": true});
    let mut view = json!({"mimeType": MIME, "text": "<p>\u{e9}\u{202e}", "_meta": {"ui": ui, "x": [1]}});
    before_each(
        |patch| patch.write(&with_view(&view.clone())),
        |gateway, _| {
            for era in ClientEra::BOTH {
                let mut client = host(&gateway, era);
                assert_eq!(view_of(&mut client, "fx__echo"), VIEW);
                assert_eq!(content(&mut client, VIEW), {
                    let mut view = view.clone();
                    view["uri"] = json!(VIEW);
                    view
                });
                assert!(!json!(client.list("resources/list", "resources")).to_string().contains("ui://"));
                let mut other = host_at(&gateway, era, "/mcp/few");
                assert!(read(&mut other, VIEW)["error"].is_object(), "the profile does not have the tool");
            }
        },
    );
    // A view of several megabytes.
    view["text"] = json!("<p>é</p>".repeat(600_000));
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    patch.write(&with_view(&view));
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        assert_eq!(content(&mut host(&gateway, era), VIEW)["text"], view["text"]);
    }
    let shown = ok(&gateway, &["pins", "diff", &format!("fx+{VIEW}")]);
    assert!(
        shown.contains("5400000 bytes of HTML as `text`, of which") && shown.len() < 1 << 20,
        "{}",
        shown.get(..2000).unwrap_or(&shown)
    );
}

#[test]
fn changed_html_reaches_no_client_before_its_approval() {
    let list = json!([{"uri": VIEW, "name": "view", "mimeType": MIME}]);
    for is_listed in [false, true] {
        let patch_of = |text: &str| {
            let mut patch = with_view(&html(text));
            if is_listed {
                patch["more"] = json!({"resources": list});
            }
            patch
        };
        before_each(
            |patch| patch.write(&patch_of("<p>one")),
            |mut gateway, patch| {
                let both = |gateway: &Gateway, check: &dyn Fn(&mut Mcp)| {
                    ClientEra::BOTH.into_iter().for_each(|era| check(&mut host(gateway, era)));
                };
                both(&gateway, &|client| assert_eq!(content(client, VIEW)["text"], "<p>one"));
                let (mut early, mut watching) = (host(&gateway, ClientEra::LEGACY), host(&gateway, ClientEra::Modern));
                assert_eq!(
                    (view_of(&mut early, "fx__echo"), view_of(&mut watching, "fx__echo")),
                    (json!(VIEW), json!(VIEW))
                );
                patch.write(&patch_of(&format!("<p>{MARKER}")));
                // The first read of the change is withheld already, and no list is a cached one.
                assert!(read(&mut early, VIEW)["error"].is_object());
                eventually("the tool has no view", || view_of(&mut early, "fx__echo").is_null());
                [&mut early, &mut watching].into_iter().for_each(|client| assert_withheld(client, VIEW));
                both(&gateway, &|client| assert_withheld(client, VIEW));
                assert!(early.call("fx__echo", json!({"text": "x"})).text() == "x", "the tool works as text");
                assert_eq!(open(&gateway), [format!("fx+{VIEW} app changed")]);
                let status = status_of(&gateway, "fx");
                assert_eq!(
                    (&status["withheld-list"][0]["kind"], &status["withheld-list"][0]["name"]),
                    (&json!("app"), &json!(format!("fx+{VIEW}"))),
                    "{status}"
                );
                gateway = gateway.restart();
                gateway.wait_for_tools(&["fx__echo"]);
                both(&gateway, &|client| assert_withheld(client, VIEW));
                both(&gateway, &|client| assert!(view_of(client, "fx__echo").is_null()));
                // The approved content is passed as soon as it is back, and no other one.
                patch.write(&patch_of("<p>one"));
                both(&gateway, &|client| assert_eq!(content(client, VIEW)["text"], "<p>one"));
                eventually("the tool has its view", || {
                    view_of(&mut host(&gateway, ClientEra::Modern), "fx__echo") == VIEW
                });
                patch.write(&patch_of(&format!("<p>{MARKER}")));
                both(&gateway, &|client| assert!(read(client, VIEW)["error"].is_object()));
                let diff = ok(&gateway, &["pins", "diff", &format!("fx+{VIEW}")]);
                assert!(diff.contains("(app): changed") && diff.contains(MARKER), "{diff}");
                ok(&gateway, &["pins", "approve", &format!("fx+{VIEW}"), "--kind", "app"]);
                both(&gateway, &|client| assert_eq!(content(client, VIEW)["text"], format!("<p>{MARKER}")));
                both(&gateway, &|client| assert_eq!(view_of(client, "fx__echo"), VIEW));
                ok(&gateway, &["pins", "reject", &format!("fx+{VIEW}"), "--kind", "app"]);
                both(&gateway, &|client| assert_withheld(client, VIEW));
            },
        );
    }
}

#[test]
fn a_stream_that_is_resumed_brings_no_changed_html() {
    let setup = GatewaySetup::new();
    let (patch, late) =
        (Patch::new(&setup), setup.world.write("work/late.json", r#"{"resources/read":{"after":8000}}"#));
    patch.write(&with_view(&html("<p>one")));
    let fake = patch.of(Fake::stdio("legacy")).with("--lists", late.to_str().unwrap());
    let gateway = setup.fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = host(&gateway, ClientEra::LEGACY);
    let mut resumed = |text: &str, want: Option<&str>| {
        patch.write(&with_view(&html(text)));
        let mut opened = client.open("resources/read", json!({"uri": VIEW}));
        let priming = opened.event().unwrap();
        drop(opened);
        let last = priming.id.unwrap();
        for _ in 0..2 {
            let mut events = String::new();
            let mut stream = client.resume(&last);
            while let Some(event) = stream.event() {
                events.push_str(&event.data);
            }
            match want {
                Some(want) => assert!(events.contains(want), "{events}"),
                None => assert!(events.contains("\"error\"") && !events.contains(MARKER), "{events}"),
            }
        }
    };
    resumed("<p>one", Some("<p>one"));
    resumed(&format!("<p>{MARKER}"), None);
}

#[test]
fn an_app_that_asks_for_much_or_is_untrusted_waits_even_at_first_sight() {
    let asking = |ui: Value| json!({"mimeType": MIME, "text": MARKER, "_meta": {"ui": ui}});
    for (trust, view) in [
        ("untrusted", html(MARKER)),
        ("trusted", asking(json!({"permissions": {"camera": {}}}))),
        ("standard", asking(json!({"csp": {"frameDomains": ["https://a.example"]}}))),
        ("standard", asking(json!({"csp": {"connectDomains": ["https://*.example"]}}))),
        ("standard", asking(json!({"csp": {"resourceDomains": ["https:"]}}))),
    ] {
        let setup = GatewaySetup::new();
        let patch = Patch::new(&setup);
        patch.write(&with_view(&view));
        let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).toml(&format!("trust = \"{trust}\"\n")).start();
        if trust == "untrusted" {
            eventually("its definitions wait", || open(&gateway).len() > 10);
            ok(&gateway, &["pins", "approve", "fx", "--yes"]);
        }
        gateway.wait_for_tools(&["fx__echo"]);
        let mut client = host(&gateway, ClientEra::LEGACY);
        assert!(read(&mut client, VIEW)["error"].is_object());
        eventually("the tool has no view", || view_of(&mut client, "fx__echo").is_null());
        assert_withheld(&mut client, VIEW);
        assert_eq!(open(&gateway), [format!("fx+{VIEW} app quarantined")]);
        ok(&gateway, &["pins", "approve", "fx", "--yes"]);
        assert_eq!(content(&mut client, VIEW)["text"], MARKER);
        assert_eq!(view_of(&mut client, "fx__echo"), VIEW);
    }
}

#[test]
fn html_is_not_pinned_where_the_key_says_so_and_what_it_asks_for_is() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let write = |text: &str, ui: Value| {
        patch.write(&with_view(&json!({"mimeType": MIME, "text": text, "_meta": {"ui": ui}})));
    };
    let camera = json!({"permissions": {"camera": {}}});
    write("one", camera.clone());
    let setup = setup.fake("fx", &patch.of(Fake::stdio("both")));
    let text = setup.text();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = host(&gateway, ClientEra::Modern);
    assert!(read(&mut client, VIEW)["error"].is_object());
    ok(&gateway, &["pins", "approve", &format!("fx+{VIEW}")]);
    write("two", camera.clone());
    assert!(read(&mut client, VIEW)["error"].is_object(), "changed HTML waits");
    let reloaded = gateway.reload(&text.replace("[upstreams.fx]\n", "[upstreams.fx]\npin-html = false\n"));
    assert!(said(&reloaded).contains("changed HTML of apps is accepted"), "{reloaded:?}");
    for html in ["two", "three"] {
        write(html, camera.clone());
        eventually("it is passed", || content(&mut client, VIEW)["text"] == html);
    }
    for changed in [json!({"permissions": {"camera": {}, "microphone": {}}}), json!({}), json!({"domain": "x"})] {
        write(MARKER, changed);
        assert!(read(&mut client, VIEW)["error"].is_object());
    }
    write("four", camera.clone());
    assert_eq!(content(&mut client, VIEW)["text"], "four");
    // Pinned again, the HTML counts from now on.
    assert!(gateway.reload(&text).status.success());
    assert_eq!(content(&mut client, VIEW)["text"], "four");
    write(MARKER, camera);
    eventually("changed HTML waits", || read(&mut client, VIEW)["error"].is_object());
}
