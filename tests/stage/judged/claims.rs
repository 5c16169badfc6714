//! Tests of rules about claims, with servers that tell the truth, lie, say nothing, flip a hint or
//! add a tool.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Patch;
use crate::stage::upstream::{Fake, InputLog, Listening};

/// A policy that allows tools which claim to read only and to stay inside, and asks about all
/// others.
const READS: &str = "default = \"ask\"\n[[policy.rules]]\nid = \"reads\"\neffect = \"allow\"\n\
                     claims = { read-only = true, open-world = false }";

/// Returns the hints of a tool that the rule allows.
fn reads() -> Value {
    json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}})
}

/// Returns the hints of the fake's tools: `sleep` says nothing, `env` not all of it, `fail`
/// contradicts itself. `write` calls itself destructive in any case.
fn claims() -> Value {
    json!({
        "echo": reads(),
        "mutate": reads(),
        "grown_0": reads(),
        "env": {"annotations": {"readOnlyHint": true}},
        "fail": {"annotations": {"readOnlyHint": true, "destructiveHint": true, "openWorldHint": false}},
    })
}

/// Returns [`claims`] with `more` members.
fn claims_and(more: Value) -> Value {
    let mut all = claims();
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// Returns servers of both eras on pipes and HTTP.
fn ways() -> [Fake; 4] {
    [Fake::stdio("legacy"), Fake::stdio("modern"), Fake::http("legacy"), Fake::http("modern")]
}

struct ClaimsGateway {
    gateway: Gateway,
    patch: Patch,
    log: InputLog,
    server: Option<Listening>,
}

impl ClaimsGateway {
    /// Starts a gateway in front of a server with these hints. `keys` are lines of its table,
    /// `more` further tables.
    fn new(fake: Fake, says: &Value, keys: &str, more: &str) -> Self {
        let setup = GatewaySetup::new().policy(READS);
        let (patch, log) = (Patch::new(&setup), InputLog::new(&setup.world.path("work"), "fx"));
        patch.write(says);
        let fake = patch.of(fake.logging(&log));
        let server = (!fake.command().contains("\"stdio\"")).then(|| fake.spawn());
        let place = match &server {
            Some(server) => format!("url = \"{}\"", server.url),
            None => format!("command = {}", fake.command()),
        };
        let gateway = setup.toml(&format!("[upstreams.fx]\n{place}\n{keys}\n{more}")).start();
        Self { gateway, patch, log, server }
    }

    /// Kills the daemon and starts it again.
    fn killed(mut self) -> Self {
        self.gateway.signal(Signal::KILL);
        assert!(self.gateway.wait(Duration::from_secs(60)).is_some());
        let (world, config) = (self.gateway.world.clone(), self.gateway.config.clone());
        let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, ..self }
    }

    /// Makes the server announce a change: it lists one more tool.
    fn change(&self) {
        assert_eq!(self.gateway.modern().call("fx__mutate", json!({})).text(), "grown");
    }

    /// Like [`Self::change`], once the lists of the server's new process are read, not those of the
    /// old one.
    fn change_again(&self) {
        eventually("the list is read", || self.told("fx__grown_0").0.is_empty());
        self.change();
    }

    /// Returns `pin` and `effect` of a tool, as `headend tools` prints them.
    fn told(&self, name: &str) -> (String, String) {
        let tools: Value = serde_json::from_str(&self.ok(&["tools", "--json"])).unwrap();
        let tools = tools["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).cloned().unwrap_or_default();
        let word = |member: &str| tool[member].as_str().unwrap_or_default().to_owned();
        (word("pin"), word("effect"))
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.gateway.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asserts that a call is asked about and does not reach the server.
    fn asks(&self, client: &mut Mcp, name: &str) {
        let before = self.log.count("tools/call");
        let refused = client.call(&format!("fx__{name}"), json!({}));
        assert!(refused.is_error(), "{name}: {}", refused.raw);
        assert_eq!(self.log.count("tools/call"), before, "{name}");
        assert_eq!(self.told(&format!("fx__{name}")).1, "ask", "{name}");
    }

    fn passes(&self, client: &mut Mcp, name: &str) {
        let answer = client.call(&format!("fx__{name}"), json!({}));
        assert!(!answer.is_error() && answer.code().is_none(), "{name}: {}", answer.raw);
        assert_eq!(self.told(&format!("fx__{name}")), ("pinned".to_owned(), "allow".to_owned()), "{name}");
    }
}

#[test]
fn a_tool_that_only_reads_by_its_own_word_needs_no_question_and_every_other_does() {
    for fake in ways() {
        let stage = ClaimsGateway::new(fake, &claims(), "", "");
        stage.gateway.wait_for_tools(&["fx__echo", "fx__write"]);
        for era in ClientEra::BOTH {
            let mut client = stage.gateway.client(era);
            stage.passes(&mut client, "echo");
            for name in ["sleep", "env", "fail", "write"] {
                stage.asks(&mut client, name);
            }
        }
    }
    let stage = ClaimsGateway::new(Fake::stdio("both"), &claims(), "", "");
    stage.gateway.wait_for_tools(&["fx__echo"]);
    let config = stage.gateway.config.to_str().unwrap();
    let tried = |name: &str| {
        said(&stage.gateway.run(&["policy", "test", "--config", config, "--tool", &format!("fx__{name}")]))
    };
    // The daemon stores a list a moment after it has published it.
    eventually("the list is kept", || !tried("echo").contains("no earlier run"));
    for (name, want) in [("echo", "decision     allow"), ("sleep", "its server does not say"), ("fail", "in doubt")] {
        let told = tried(name);
        assert!(told.contains(want), "{name}: {told}");
    }
}

#[test]
fn a_server_that_lies_is_believed_where_nothing_is_against_it_and_nowhere_else() {
    let lies = json!({"write": reads()});
    let stage = ClaimsGateway::new(Fake::stdio("both"), &lies, "", "");
    stage.gateway.wait_for_tools(&["fx__write"]);
    // The README warns of this.
    stage.passes(&mut stage.gateway.modern(), "write");

    let stage = ClaimsGateway::new(Fake::stdio("both"), &lies, "trust = \"untrusted\"", "");
    eventually("the items wait and are approved", || {
        stage.gateway.run(&["pins", "approve", "fx", "--yes"]).status.success()
    });
    stage.gateway.wait_for_tools(&["fx__write"]);
    stage.asks(&mut stage.gateway.modern(), "write");

    let doubted = |member: &str, value: Value| {
        let mut tool = reads();
        tool[member] = value;
        json!({"write": tool})
    };
    let other = format!("[upstreams.gx]\ncommand = {}", Fake::stdio("both").command());
    let stage = ClaimsGateway::new(Fake::stdio("both"), &doubted("description", json!("Like gx__write.")), "", &other);
    eventually("it waits and is approved", || stage.gateway.run(&["pins", "approve", "fx__write"]).status.success());
    stage.gateway.wait_for_tools(&["fx__write"]);
    stage.asks(&mut stage.gateway.modern(), "write");
    let stage = stage.killed();
    stage.gateway.wait_for_tools(&["fx__write"]);
    stage.asks(&mut stage.gateway.modern(), "write");

    let stage = ClaimsGateway::new(Fake::stdio("both"), &doubted("outputSchema", json!(7)), "", "");
    stage.gateway.wait_for_tools(&["fx__write"]);
    stage.asks(&mut stage.gateway.modern(), "write");
}

#[test]
fn a_tool_that_a_server_adds_is_asked_about_until_it_is_confirmed() {
    for fake in ways() {
        let mut stage = ClaimsGateway::new(fake, &claims(), "", "");
        let is_process = stage.server.is_none();
        stage.gateway.wait_for_tools(&["fx__echo"]);
        stage.change();
        for is_first in [true, false] {
            stage.gateway.wait_for_tools(&["fx__grown_0"]);
            stage.asks(&mut stage.gateway.modern(), "grown_0");
            assert_eq!(stage.told("fx__grown_0").0, "new");
            stage.passes(&mut stage.gateway.modern(), "echo");
            let status: Value = serde_json::from_str(&stage.ok(&["status", "fx", "--json"])).unwrap();
            assert_eq!((&status["new-tools"], &status["new-tools-list"]), (&json!(1), &json!(["fx__grown_0"])));
            assert!(stage.ok(&["status"]).contains("(1 new)"));
            assert!(stage.ok(&["status", "fx"]).contains("fx__grown_0"));
            assert!(stage.ok(&["tools"]).contains("pins approve NAME"));
            assert!(stage.ok(&["pins"]).contains("pinned, new"));
            if is_first {
                stage = stage.killed();
                // The old process is gone, and with it the tools it had added.
                if is_process {
                    stage.change_again();
                }
            }
        }
        let shown = stage.ok(&["pins", "approve", "fx__grown_0"]);
        assert!(shown.contains("added it after its first list") && shown.contains("readOnlyHint"), "{shown}");
        assert_eq!(stage.gateway.run(&["pins", "approve", "fx__grown_0"]).status.code(), Some(1), "nothing waits");
        stage.passes(&mut stage.gateway.modern(), "grown_0");
        assert!(!stage.ok(&["status"]).contains("new)"));
        let log = stage.ok(&["audit", "tail", "-n", "1000", "--json"]);
        let confirmed = log.lines().filter(|line| line.contains(r#""event":"pin""#) && line.contains("fx__grown_0"));
        assert_eq!(confirmed.count(), 1, "{log}");

        let stage = stage.killed();
        if is_process {
            stage.change_again();
        }
        stage.gateway.wait_for_tools(&["fx__grown_0"]);
        stage.passes(&mut stage.gateway.modern(), "grown_0");
    }
}

#[test]
fn a_hint_that_is_flipped_opens_nothing_by_itself() {
    let harmless = claims_and(json!({"sleep": {"annotations": {"readOnlyHint": false}}}));
    for on_change in ["quarantine", "accept"] {
        let stage = ClaimsGateway::new(Fake::stdio("both"), &harmless, &format!("on-change = \"{on_change}\""), "");
        stage.gateway.wait_for_tools(&["fx__sleep"]);
        stage.asks(&mut stage.gateway.modern(), "sleep");
        stage.patch.write(&claims_and(json!({"sleep": reads()})));
        stage.change();
        eventually("it is withheld", || stage.told("fx__sleep").0.is_empty());
        let stage = stage.killed();
        assert_eq!(stage.told("fx__sleep").0, "", "{on_change}");
        stage.ok(&["pins", "approve", "fx__sleep"]);
        stage.passes(&mut stage.gateway.modern(), "sleep");

        stage.patch.write(&harmless);
        stage.change();
        let want = if on_change == "accept" { ("pinned", "ask") } else { ("", "") };
        let want = (want.0.to_owned(), want.1.to_owned());
        eventually("it counts no longer", || stage.told("fx__sleep") == want);
        stage.patch.write(&claims_and(json!({"sleep": reads()})));
        stage.change();
        let want = if on_change == "accept" { ("", "") } else { ("pinned", "allow") };
        let want = (want.0.to_owned(), want.1.to_owned());
        eventually("it is withheld, or what was approved", || stage.told("fx__sleep") == want);
    }
}

#[test]
fn a_list_that_was_not_read_to_its_end_is_no_first_inventory() {
    for fake in [Fake::stdio("legacy"), Fake::http("modern")] {
        let folder = tempfile::tempdir().unwrap();
        let lists = folder.path().join("lists.json");
        fs::write(&lists, json!({"tools/list": "loop"}).to_string()).unwrap();
        let stage = ClaimsGateway::new(fake.with("--lists", lists.to_str().unwrap()), &claims(), "", "");
        stage.gateway.wait_for_tools(&["fx__echo"]);
        assert_eq!(stage.told("fx__echo"), ("new".to_owned(), "ask".to_owned()));
        let stage = stage.killed();
        assert_eq!(stage.told("fx__echo"), ("new".to_owned(), "ask".to_owned()));
        fs::write(&lists, "{}").unwrap();
        eventually("the list is read to its end", || stage.told("fx__echo").0 == "pinned");
        stage.passes(&mut stage.gateway.modern(), "echo");
        stage.change();
        stage.gateway.wait_for_tools(&["fx__grown_0"]);
        assert_eq!(stage.told("fx__grown_0").0, "new");
    }
}

#[test]
fn tools_that_only_some_clients_see_are_of_the_first_inventory_too() {
    for (fake, keys) in [(Fake::stdio("legacy"), "instance = \"per-caller\""), (Fake::http("legacy"), "")] {
        let stage = ClaimsGateway::new(fake.behaving("coy"), &claims(), keys, "");
        for is_first in [true, false] {
            let is_listed = |name: &&str| !stage.told(&format!("fx__{name}")).0.is_empty();
            eventually("all are listed", || ["moody", "browse", "sample"].iter().all(is_listed));
            for name in ["echo", "moody", "browse", "sample"] {
                assert_eq!(stage.told(&format!("fx__{name}")).0, "pinned", "{name}, {keys}, first: {is_first}");
            }
            if is_first && stage.server.is_some() {
                stage.change();
                eventually("another tool is listed", || !stage.told("fx__grown_0").0.is_empty());
                assert_eq!(stage.told("fx__grown_0").0, "new");
            }
        }
        let stage = stage.killed();
        eventually("all are listed", || !stage.told("fx__moody").0.is_empty());
        assert_eq!((stage.told("fx__moody").0, stage.told("fx__echo").0), ("pinned".into(), "pinned".into()));
    }
}

#[test]
fn behind_the_desk_configuration_reading_needs_no_question() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/desk.toml");
    let text = fs::read_to_string(&file).unwrap();
    let (servers, policy) = text.split_once("[policy]\n").unwrap();
    let setup = GatewaySetup::new().policy(policy);
    let shipped = setup.world.write("desk.toml", &text);
    let patch = Patch::new(&setup);
    patch.write(&claims());
    let command = format!("command = {}", patch.of(Fake::stdio("both")).command());
    let line = |line: &str| if line.starts_with("command = ") { command.clone() } else { line.to_owned() };
    let servers: Vec<String> = servers.lines().map(line).collect();
    let gateway = setup.toml(&servers.join("\n")).start();
    gateway.wait_for_tools(&["files__echo", "git__echo", "time__echo"]);
    let mut client = gateway.modern();
    for server in ["files", "git", "time"] {
        assert_eq!(client.call(&format!("{server}__echo"), json!({"text": "x"})).text(), "x");
    }
    assert!(client.call("git__write", json!({})).is_error());
    let tools: Value = serde_json::from_slice(&gateway.run(&["tools", "--json"]).stdout).unwrap();
    let effects = tools["tools"].as_array().unwrap().iter().map(|tool| (&tool["name"], &tool["effect"]));
    for (name, effect) in effects {
        let reads = ["__echo", "__mutate"].iter().any(|end| name.as_str().unwrap().ends_with(end));
        assert_eq!(effect, if reads { "allow" } else { "ask" }, "{name}");
    }
    let checked = gateway.world.run(&["check", "--config", shipped.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", said(&checked));
}
