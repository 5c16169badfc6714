//! Tests of tools that a legacy server lists only for clients which it can ask: which clients see
//! them, and what is known of them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::AskingTransport;
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Patch;
use crate::stage::upstream::{Fake, InputLog, Listening};

/// A gateway in front of a server that hides tools, named `fx`.
struct HidingGateway {
    gateway: Gateway,
    log: InputLog,
    _server: Option<Listening>,
}

impl HidingGateway {
    fn new(setup: GatewaySetup, fake: Fake, upstream: &str) -> Self {
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = fake.behaving("coy").logging(&log);
        let is_stdio = fake.command().contains("\"stdio\"");
        let (place, server) = if is_stdio {
            (format!("command = {}", fake.command()), None)
        } else {
            let server = fake.spawn();
            (format!("url = \"{}\"", server.url), Some(server))
        };
        let gateway = setup.toml(&format!("[upstreams.fx]\n{place}\n{upstream}")).start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log, _server: server }
    }

    /// Stops the daemon and starts it again.
    fn restart(&mut self) {
        self.gateway.signal(Signal::TERM);
        assert!(self.gateway.wait(Duration::from_secs(60)).is_some(), "{}", self.gateway.story());
        let (world, config) = (self.gateway.world.clone(), self.gateway.config.clone());
        self.gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    }

    fn tools(&self, era: ClientEra, capabilities: &Value) -> Vec<String> {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities.clone()).tool_names()
    }

    /// Returns the number of handshakes.
    fn greetings(&self) -> usize {
        self.log.count("initialize")
    }
}

/// Returns kinds of clients, and the hidden tools that each is shown.
fn kinds() -> [(Value, &'static [&'static str]); 5] {
    [
        (json!({}), &[]),
        (json!({"roots": {}}), &[]),
        (json!({"elicitation": {}}), &["gate", "inquire", "moody"]),
        (json!({"sampling": {}}), &["sample"]),
        (
            json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}}),
            &["browse", "gate", "inquire", "moody", "sample"],
        ),
    ]
}

fn hidden(names: &[String]) -> Vec<&str> {
    let all = ["browse", "gate", "inquire", "moody", "sample"];
    let mut names: Vec<&str> =
        names.iter().filter_map(|name| name.strip_prefix("fx__")).filter(|name| all.contains(name)).collect();
    names.sort_unstable();
    names
}

const WAYS: [(AskingTransport, &str); 4] = [
    (AskingTransport::Stdio, "instance = \"per-session\""),
    (AskingTransport::Stdio, "instance = \"per-caller\""),
    (AskingTransport::Session, ""),
    (AskingTransport::Sse, ""),
];

#[test]
fn each_kind_of_client_sees_the_tools_that_its_capabilities_are_enough_for() {
    for (way, upstream) in WAYS {
        let stage = HidingGateway::new(GatewaySetup::new(), way.fake(), upstream);
        let all = &kinds()[4];
        eventually("all tools are known", || hidden(&stage.tools(ClientEra::Modern, &all.0)) == all.1);
        for era in ClientEra::BOTH {
            for (capabilities, want) in kinds() {
                let mut client =
                    Mcp::http_at(stage.gateway.address, stage.gateway.token(), era, "/mcp", capabilities.clone());
                let seen = client.tool_names();
                assert_eq!(hidden(&seen), want, "{way:?} {upstream} {era:?} {capabilities}");
                assert!(seen.iter().any(|name| name == "fx__echo"), "{way:?}: {seen:?}");
                for name in ["browse", "sample"] {
                    let answer = client.call(&format!("fx__{name}"), json!({}));
                    if want.contains(&name) {
                        assert_eq!(answer.text(), "done", "{way:?} {era:?} {capabilities}");
                    } else {
                        assert_eq!(answer.code(), Some(-32602), "{way:?} {era:?} {capabilities}: {}", answer.raw);
                    }
                }
            }
        }
        let by_kind = |kind: &str| {
            let output = stage.gateway.run(&["tools", "--json", "--as", kind]);
            let tools: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
            crate::stage::mcp::names(tools["tools"].as_array().unwrap())
        };
        for (kind, at) in [("none", 0), ("forms", 2), ("all", 4)] {
            assert_eq!(hidden(&by_kind(kind)), kinds()[at].1, "{way:?}: {kind}");
        }
    }
}

#[test]
fn what_some_clients_see_is_kept_and_its_definition_does_not_change_with_the_process() {
    for (way, upstream) in WAYS {
        let mut stage = HidingGateway::new(GatewaySetup::new(), way.fake(), upstream);
        let (all, want) = kinds()[4].clone();
        eventually("all tools are known", || hidden(&stage.tools(ClientEra::Modern, &all)) == want);
        let moody = |stage: &HidingGateway, capabilities: &Value| {
            let gateway = &stage.gateway;
            let mut client =
                Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", capabilities.clone());
            let tools = client.list("tools/list", "tools");
            tools.iter().find(|tool| tool["name"] == "fx__moody").map(|tool| tool["description"].clone())
        };
        let first = moody(&stage, &all);
        assert!(first.is_some());
        for _ in 0..2 {
            let before = stage.greetings();
            stage.restart();
            assert_eq!(hidden(&stage.tools(ClientEra::Modern, &all)), want, "{way:?}: known from before");
            assert_eq!(
                hidden(&stage.tools(ClientEra::Modern, &json!({}))),
                [] as [&str; 0],
                "{way:?}: for those alone"
            );
            eventually("the lists are read again", || stage.greetings() >= before + 5);
            for (capabilities, want) in [(&all, 5), (&kinds()[2].0, 3)] {
                assert_eq!(hidden(&stage.tools(ClientEra::LEGACY, capabilities)).len(), want, "{way:?}");
                assert_eq!(moody(&stage, capabilities), first, "{way:?}: one definition");
            }
        }
        let output = stage.gateway.run(&["pins", "--waiting"]);
        assert!(!said(&output).contains("moody"), "{way:?}: {}", said(&output));
    }
}

#[test]
fn a_tool_that_only_some_clients_see_is_withheld_after_a_change_like_any_other() {
    for (way, upstream) in WAYS {
        let setup = GatewaySetup::new();
        let patch = Patch::new(&setup);
        let mut stage = HidingGateway::new(setup, patch.of(way.fake()), upstream);
        let (all, want) = kinds()[4].clone();
        eventually("all tools are known", || hidden(&stage.tools(ClientEra::Modern, &all)) == want);
        let pins = said(&stage.gateway.run(&["pins"]));
        assert!(want.iter().all(|name| pins.contains(&format!("fx__{name}"))), "{way:?}: {pins}");
        patch.write(&json!({"inquire": {"description": "Now it does something else."}}));
        stage.restart();
        let rest = ["browse", "gate", "moody", "sample"];
        eventually("the changed tool is withheld", || hidden(&stage.tools(ClientEra::Modern, &all)) == rest);
        let waiting = said(&stage.gateway.run(&["pins", "--waiting"]));
        assert!(waiting.contains("fx__inquire") && !waiting.contains("moody"), "{way:?}: {waiting}");
        let approved = stage.gateway.run(&["pins", "approve", "fx__inquire"]);
        assert!(approved.status.success(), "{way:?}: {}", said(&approved));
        eventually("it is back", || hidden(&stage.tools(ClientEra::Modern, &all)) == want);
        assert_eq!(hidden(&stage.tools(ClientEra::LEGACY, &json!({}))), [] as [&str; 0], "{way:?}: for those alone");
    }
}

#[test]
fn a_client_on_pipes_sees_what_its_capabilities_are_enough_for() {
    let stage = HidingGateway::new(GatewaySetup::new(), AskingTransport::Stdio.fake(), "instance = \"per-session\"");
    for era in ClientEra::BOTH {
        for (capabilities, want) in kinds() {
            let mut client = Mcp::stdio_with(stage.gateway.pipe(), era, capabilities.clone());
            eventually("its tools are listed", || hidden(&client.tool_names()) == want);
        }
    }
}

#[test]
fn a_process_that_all_clients_share_may_ask_for_pages() {
    let stage = HidingGateway::new(GatewaySetup::new(), AskingTransport::Stdio.fake(), "");
    let pages = json!({"elicitation": {"url": {}}});
    let page = json!({"mode": "url", "message": "Go", "url": "https://x.example/", "elicitationId": "e1"});
    let asks = AskingTransport::Stdio.asks("t", json!([[{"method": "elicitation/create", "params": page}]]));
    for (capabilities, want) in [(&pages, "accept"), (&json!({"elicitation": {}}), "cancel")] {
        for era in ClientEra::BOTH {
            // One process has one list for all clients.
            assert_eq!(hidden(&stage.tools(era, capabilities)), kinds()[4].1, "{era:?}");
        }
        let (gateway, asks) = (&stage.gateway, asks.clone());
        let mut client =
            Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", capabilities.clone());
        let mut call = super::inquire(&mut client, &asks);
        let (asked, answer) = super::converse(&mut client, &mut call, |_| json!({"action": "accept"}));
        assert_eq!(asked.len(), usize::from(want == "accept"), "{capabilities}: {answer}");
        assert_eq!(super::answered(&answer)[0]["result"]["action"], want, "{capabilities}: {answer}");
    }
}

#[test]
fn an_operator_is_told_that_a_process_of_several_callers_can_ask_nothing() {
    for (callers, instance, status, check) in [
        (1, "", false, false),
        (2, "", true, true),
        (2, "instance = \"shared\"", true, false),
        (2, "instance = \"per-caller\"", false, false),
    ] {
        let setup = if callers == 1 { GatewaySetup::new() } else { GatewaySetup::new().second_caller(super::TOKEN) };
        let stage = HidingGateway::new(setup, AskingTransport::Stdio.fake(), instance);
        let shown = || said(&stage.gateway.run(&["status", "fx"]));
        assert_eq!(shown().contains("`instance = \"per-caller\"`"), status, "{callers} {instance}: {}", shown());
        let config = stage.gateway.config.to_str().unwrap();
        let variables = [("SECOND_TOKEN".to_owned(), super::TOKEN.to_owned())];
        let output = stage.gateway.world.run_in(&["check", "--config", config], &variables);
        let told = said(&output).contains("several callers share the programs of `fx`");
        assert_eq!(told, check, "{callers} {instance}: {}", said(&output));
    }
}
