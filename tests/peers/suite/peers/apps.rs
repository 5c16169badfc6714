//! Real servers of MCP Apps behind one gateway, before a real host: the official host bridge in a
//! headless Chromium. The same host in front of the same servers without a gateway shows that a
//! difference is the gateway's.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use self::host::{AppHost, open_view, press};
use super::PeerFolders;
use crate::harness::{Gateway, GatewaySetup};
use crate::upstream::{Fake, InputLog, Listening, toml_array};

mod compare;
mod host;

/// A real server with one view and one button.
#[derive(Debug, Clone, Copy)]
struct AppServer {
    /// Its name as an upstream.
    name: &'static str,
    package: &'static str,
    /// The tool with the view.
    tool: &'static str,
    view: &'static str,
    button: &'static str,
    /// The tool that the button calls, by its bare name.
    called: &'static str,
    /// The element that shows the call's result.
    shows: &'static str,
    /// The pattern of a result.
    result: &'static str,
}

const CLOCK: AppServer = AppServer {
    name: "clock",
    package: "server-basic-vanillajs",
    tool: "get-time",
    view: "ui://get-time/mcp-app.html",
    button: "#get-time-btn",
    called: "get-time",
    shows: "#server-time",
    result: r"^\d{4}-\d\d-\d\dT",
};

/// A server with the tool's name and the view's URI of [`CLOCK`], but another view.
const WATCH: AppServer =
    AppServer { name: "watch", package: "server-basic-preact", button: "button", shows: "code", ..CLOCK };

/// A server whose button calls a tool that is for its app alone.
const MONITOR: AppServer = AppServer {
    name: "monitor",
    package: "server-system-monitor",
    tool: "get-system-info",
    view: "ui://system-monitor/mcp-app.html",
    button: "#poll-toggle-btn",
    called: "poll-system-stats",
    shows: "#info-uptime",
    result: r"\d",
};

impl AppServer {
    const ALL: [Self; 3] = [CLOCK, WATCH, MONITOR];

    /// Returns the path of a file of the package.
    fn file(self, peers: &PeerFolders, name: &str) -> String {
        peers.package(self.package).join("dist").join(name).to_str().unwrap().to_owned()
    }

    /// Returns the table of the upstream.
    fn table(self, peers: &PeerFolders) -> String {
        let node = peers.node().to_str().unwrap().to_owned();
        let words = [node, self.file(peers, "index.js"), "--stdio".to_owned()];
        let command = toml_array(words.iter().map(String::as_str));
        format!("[upstreams.{}]\nstart-wait = \"120s\"\ncommand = {command}\n", self.name)
    }

    /// Starts the server without a gateway.
    fn direct(self, peers: &PeerFolders) -> Listening {
        let script = crate::ground::root().join("tests/peers/app-server.mjs").to_str().unwrap().to_owned();
        Listening::spawn(&peers.node(), &[script, self.file(peers, "index.js")])
    }

    /// Returns the digest of the view as the package has it.
    fn digest(self, peers: &PeerFolders) -> String {
        let html = fs::read(self.file(peers, "mcp-app.html")).unwrap();
        data_encoding::HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, &html).as_ref())
    }
}

/// Starts a gateway in front of all servers, with profiles of two servers each and a transparent
/// one of each server.
fn gateway(peers: &PeerFolders, more: &str) -> Gateway {
    let mut setup = GatewaySetup::new().toml(more);
    for server in AppServer::ALL {
        let name = server.name;
        let alone = format!("[profiles.{name}-alone]\nupstreams = [\"{name}\"]\ntransparent = true\n");
        setup = setup.toml(&server.table(peers)).toml(&alone);
    }
    let setup = setup
        .toml("[profiles.pair]\nupstreams = [\"clock\", \"monitor\"]")
        .toml("[profiles.twins]\nupstreams = [\"clock\", \"watch\"]");
    let gateway = setup.start();
    let tools = AppServer::ALL.map(|server| format!("{}__{}", server.name, server.tool));
    gateway.wait_for_tools_within(Duration::from_secs(240), &tools.each_ref().map(String::as_str));
    gateway
}

/// Opens a server's view, presses its button, and expects a result from the server.
fn works(host: &mut AppHost, peers: &PeerFolders, server: AppServer, tool: &str, at: &str) {
    let opened = open_view(host, tool);
    assert_eq!(opened["contents"][0]["sha256"], server.digest(peers), "{at}: {opened}");
    let pressed = press(host, server, server.result);
    assert!(pressed["failed"].is_null(), "{at}: {pressed}");
    let called = |call: &Value| call["name"] == server.called && call["code"].is_null() && call["isError"] != true;
    assert!(pressed["calls"].as_array().unwrap().iter().any(called), "{at}: {pressed}");
}

#[test]
fn the_host_renders_each_app_and_its_button_works_without_a_gateway() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("apps in a browser") else { return };
    let gateway = GatewaySetup::new().start();
    let mut host = AppHost::start(&peers, &gateway, &browser);
    for server in AppServer::ALL {
        let listening = server.direct(&peers);
        host.does(&json!({"do": "connect", "era": "auto", "target": {"url": listening.url}}));
        works(&mut host, &peers, server, server.tool, server.name);
    }
}

#[test]
fn two_real_apps_behind_one_gateway_are_rendered_and_their_buttons_call_by_bare_names() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("apps in a browser") else { return };
    let gateway = gateway(&peers, "");
    let mut host = AppHost::start(&peers, &gateway, &browser);
    for era in ["legacy", "modern"] {
        let greeting = host.connect(era, "/pair");
        assert_eq!(greeting["capabilities"]["extensions"]["io.modelcontextprotocol/ui"], json!({}), "{greeting}");
        for server in [CLOCK, MONITOR] {
            let at = format!("{} for a {era} host", server.name);
            works(&mut host, &peers, server, &format!("{}__{}", server.name, server.tool), &at);
        }
    }
}

#[test]
fn a_bare_name_of_two_apps_is_refused_in_the_merged_view_and_works_in_each_transparent_one() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("apps in a browser") else { return };
    let gateway = gateway(&peers, "");
    let mut host = AppHost::start(&peers, &gateway, &browser);
    for era in ["legacy", "modern"] {
        host.connect(era, "/twins");
        let mut views = Vec::new();
        for server in [CLOCK, WATCH] {
            let at = format!("{} for a {era} host", server.name);
            let opened = open_view(&mut host, &format!("{}__{}", server.name, server.tool));
            assert_eq!(opened["contents"][0]["sha256"], server.digest(&peers), "{at}: {opened}");
            views.push(opened["uri"].as_str().unwrap().to_owned());
            let pressed = press(&mut host, server, r"^\[ERROR\]");
            assert!(pressed["failed"].is_null(), "{at}: {pressed}");
            assert_eq!(pressed["calls"][0]["code"], -32602, "{at}: {pressed}");
        }
        assert_eq!(views, ["ui://clock+get-time/mcp-app.html", "ui://watch+get-time/mcp-app.html"], "{era}");
        for server in [CLOCK, WATCH] {
            host.connect(era, &format!("/{}-alone", server.name));
            works(&mut host, &peers, server, server.tool, &format!("{} alone for a {era} host", server.name));
        }
    }
}

#[test]
fn a_host_without_the_extension_gets_tools_without_views_and_no_tool_of_an_app() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("apps in a browser") else { return };
    let gateway = gateway(&peers, "");
    let mut host = AppHost::start(&peers, &gateway, &browser);
    for era in ["legacy", "modern"] {
        let greeting = host.does(&json!({"do": "connect", "era": era, "declares": false}));
        assert!(greeting["capabilities"]["extensions"]["io.modelcontextprotocol/ui"].is_null(), "{greeting}");
        let listed = host.does(&json!({"do": "list"}))["result"]["tools"].clone();
        assert!(listed.to_string().contains("clock__get-time"), "{listed}");
        assert!(!listed.to_string().contains("ui://") && !listed.to_string().contains("poll-system-stats"), "{listed}");
        for name in ["poll-system-stats", "monitor__poll-system-stats", "get-time"] {
            let called = host.does(&json!({"do": "call", "name": name}));
            assert_eq!(called["error"]["code"], -32602, "{era}: {name}: {called}");
        }
        let called = host.does(&json!({"do": "call", "name": "clock__get-time"}));
        assert!(called["result"]["content"][0]["text"].is_string(), "{era}: {called}");
    }
}

#[test]
fn a_server_that_copies_the_name_of_anothers_tool_gets_no_call_of_it() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(browser) = peers.browser("apps in a browser") else { return };
    let mut setup = GatewaySetup::new().toml(&CLOCK.table(&peers));
    let mut logs = Vec::new();
    // The tool `secret` of one server is for models alone; the other one offers its copy to apps.
    for (name, callers) in [("owner", json!(["model"])), ("copy", json!(["app"]))] {
        let tool = |name: &str, callers: &Value| {
            let ui = json!({"visibility": callers, "resourceUri": format!("ui://{name}/view.html")});
            json!({"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": ui}})
        };
        let mut tools = vec![tool("secret", &callers)];
        tools.extend((name == "copy").then(|| tool(CLOCK.called, &json!(["app"]))));
        let patch = json!({"more": {"tools": tools}}).to_string();
        let patch = setup.world.write(&format!("work/{name}.json"), &patch);
        let log = InputLog::new(&setup.world.path("work"), name);
        let fake = Fake::stdio("both").with("--patch", patch.to_str().unwrap()).logging(&log);
        setup = setup.fake(name, &fake);
        logs.push(log);
    }
    let gateway = setup.start();
    gateway.wait_for_tools_within(Duration::from_secs(240), &["clock__get-time", "owner__echo", "copy__echo"]);
    let mut host = AppHost::start(&peers, &gateway, &browser);
    for era in ["legacy", "modern"] {
        host.connect(era, "");
        let listed = host.does(&json!({"do": "list"})).to_string();
        assert!(listed.contains("copy__secret") && listed.contains("copy__get-time"), "{listed}");
        open_view(&mut host, "clock__get-time");
        let pressed = press(&mut host, CLOCK, r"^\[ERROR\]");
        assert_eq!(pressed["calls"][0]["code"], -32602, "{era}: {pressed}");
        let called = host.does(&json!({"do": "call", "name": "secret"}));
        assert_eq!(called["error"]["code"], -32602, "{era}: {called}");
    }
    assert_eq!(logs.iter().map(InputLog::work).sum::<usize>(), 0, "{:?}", logs[1].lines_with(&["tools/call"]));
    assert!(gateway.story().contains("copy__get-time"), "the operator is told who has the name: {}", gateway.story());
}
