//! Tests of approving all waiting items at once, which need terminals and processes that share a
//! database.

use serde_json::{Value, json};

use super::{lists, ok, open};
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::terminal::Terminal;
use crate::tools::upstream::Fake;
use crate::tools::upstream::Patch;

/// Returns a patch that gives other descriptions to these items.
fn described(items: &[&str], text: &str) -> Value {
    let members = items.iter().map(|item| ((*item).to_owned(), json!({"description": text})));
    Value::Object(members.collect())
}

struct ManyPinsGateway {
    gateway: Gateway,
    patch: Patch,
}

impl ManyPinsGateway {
    /// Starts two servers that list the same items, each of them pinned.
    fn new() -> Self {
        let setup = GatewaySetup::new();
        let patch = Patch::new(&setup);
        let fake = patch.of(Fake::stdio("both"));
        let gateway = setup.fake("fx", &fake).fake("gx", &fake).start();
        gateway.wait_for_tools(&["fx__echo", "gx__echo"]);
        Self { gateway, patch }
    }

    /// Changes the lists of both servers, and waits until that is noticed.
    fn change(&self, patch: &Value, waiting: &[&str]) {
        self.patch.write(patch);
        for name in ["fx", "gx"] {
            assert_eq!(self.gateway.modern().call(&format!("{name}__mutate"), json!({})).text(), "grown");
        }
        eventually(&format!("waiting: {waiting:?}"), || open(&self.gateway) == waiting);
    }

    fn ok(&self, args: &[&str]) -> String {
        ok(&self.gateway, args)
    }

    /// Starts both servers with three changed tools each.
    fn changed() -> Self {
        let stage = Self::new();
        let all = ["echo", "fail", "write"].map(|item| format!("{item} tool changed"));
        let of = |name: &str| all.clone().map(|line| format!("{name}__{line}"));
        let lines: Vec<String> = of("fx").into_iter().chain(of("gx")).collect();
        stage.change(
            &described(&["echo", "fail", "write"], "Changed once."),
            &lines.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        stage
    }

    fn terminal(&self, args: &[&str], typed: &str) -> Terminal {
        Terminal::start(&self.gateway.world, args, typed)
    }
}

#[test]
fn a_person_is_asked_once_after_all_changes_were_shown() {
    let stage = ManyPinsGateway::changed();
    // Typed ahead, for something else.
    let mut terminal = stage.terminal(&["pins", "approve", "fx"], "y\ny\n");
    terminal.wait_for("Approve these 3 tools of fx? [y/N]");
    let shown = terminal.screen();
    for name in ["fx__echo", "fx__fail", "fx__write"] {
        assert!(shown.contains(&format!("{name} (tool): changed")), "{shown}");
    }
    assert_eq!(open(&stage.gateway).len(), 6, "what was typed before is no answer");
    terminal.type_in("n\n");
    let (code, shown) = terminal.end();
    assert!(code == Some(1) && shown.contains("nothing was approved"), "{shown}");
    assert_eq!(open(&stage.gateway).len(), 6);

    for refusal in ["\n", "yess\n", "\u{4}"] {
        let mut terminal = stage.terminal(&["pins", "approve", "fx"], "");
        terminal.wait_for("[y/N]");
        terminal.type_in(refusal);
        assert_eq!(terminal.end().0, Some(1), "{refusal:?}");
        assert_eq!(open(&stage.gateway).len(), 6, "{refusal:?}");
    }
    let mut terminal = stage.terminal(&["pins", "approve", "fx"], "");
    terminal.wait_for("[y/N]");
    terminal.type_in("Y\n");
    let (code, shown) = terminal.end();
    assert!(code == Some(0) && shown.contains("approved: 3 tools of fx"), "{shown}");
    assert_eq!(open(&stage.gateway).len(), 3);
    let (code, shown) = stage.terminal(&["pins", "approve", "gx", "--yes"], "").end();
    assert!(code == Some(0) && !shown.contains("[y/N]"), "{shown}");
}

#[test]
fn on_a_terminal_one_item_is_asked_about_after_its_difference_was_shown() {
    let stage = ManyPinsGateway::changed();
    let mut terminal = stage.terminal(&["pins", "approve", "fx__echo"], "y\ny\n");
    terminal.wait_for("Approve this tool as shown? [y/N]");
    assert!(terminal.screen().contains("+[\"Changed]+"), "{}", terminal.screen());
    terminal.type_in("\n");
    let (code, shown) = terminal.end();
    assert!(code == Some(1) && shown.contains("not approved: fx__echo"), "{shown}");
    assert_eq!(open(&stage.gateway).len(), 6, "what was typed before is no answer");
    let mut terminal = stage.terminal(&["pins", "approve", "fx__echo"], "");
    terminal.wait_for("[y/N]");
    terminal.type_in("y\n");
    let (code, shown) = terminal.end();
    assert!(code == Some(0) && shown.contains("approved: fx__echo"), "{shown}");
    let (code, shown) = stage.terminal(&["pins", "approve", "gx__echo", "--yes"], "").end();
    assert!(code == Some(0) && !shown.contains("[y/N]"), "{shown}");
    let digest = shown.rsplit("digest ").next().unwrap().split_whitespace().next().unwrap().to_owned();
    let (code, shown) = stage.terminal(&["pins", "approve", "gx__fail", "--digest", &digest], "").end();
    assert!(code == Some(1) && shown.contains("it changed"), "of another item: {shown}");
    let waiting: Value = serde_json::from_str(&stage.ok(&["pins", "--waiting", "--json"])).unwrap();
    let of_fail = waiting["pins"].as_array().unwrap().iter().find(|pin| pin["name"] == "gx__fail").unwrap();
    let digest = of_fail["waiting-digest"].as_str().unwrap();
    let (code, shown) = stage.terminal(&["pins", "approve", "gx__fail", "--digest", digest], "").end();
    assert!(code == Some(0) && !shown.contains("[y/N]"), "{shown}");
    stage.ok(&["pins", "approve", "fx__fail"]);
    assert_eq!(open(&stage.gateway).len(), 2, "without a terminal it is approved as before");
}

#[test]
fn what_changes_between_the_question_and_the_answer_waits() {
    let stage = ManyPinsGateway::changed();
    let mut terminal = stage.terminal(&["pins", "approve", "fx"], "");
    terminal.wait_for("[y/N]");
    let before = stage.ok(&["pins", "--json"]);
    stage.patch.write(&json!({
        "echo": {"description": "Changed behind your back."},
        "fail": {"description": "Changed once."},
        "write": {"description": "Changed once."},
    }));
    stage.gateway.modern().call("fx__mutate", json!({}));
    eventually("the digest differs", || stage.ok(&["pins", "--json"]) != before);
    terminal.type_in("y\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("approved: 2 of 3 tools of fx"), "{shown}");
    assert!(shown.contains("fx__echo (tool): it changed again after it was shown"), "{shown}");
    assert_eq!(open(&stage.gateway)[0], "fx__echo tool changed");
    assert_eq!(open(&stage.gateway).len(), 4);
    assert!(!lists(&mut stage.gateway.modern(), "fx__echo"));
}

#[test]
fn all_that_waits_is_approved_without_a_daemon_too() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let (world, config) = setup.fake("fx", &patch.of(Fake::stdio("both"))).write();
    let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::Modern);
    eventually("echo is listed", || lists(&mut client, "fx__echo"));
    patch.write(&described(&["echo", "write"], "Changed once."));
    client.call("fx__mutate", json!({}));
    eventually("they leave", || !lists(&mut client, "fx__echo") && !lists(&mut client, "fx__write"));
    let waiting = world.run(&["pins", "--waiting"]);
    assert!(said(&waiting).contains("fx__echo"), "{}", said(&waiting));
    assert_eq!(world.run(&["pins", "approve", "fx"]).status.code(), Some(64));
    let approved = world.run(&["pins", "approve", "fx", "--yes"]);
    assert!(approved.status.success() && said(&approved).contains("2 tools of fx"), "{}", said(&approved));
    eventually("the running process takes it over", || {
        lists(&mut client, "fx__echo") && lists(&mut client, "fx__write")
    });
}
