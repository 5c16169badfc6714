//! Tests of `[policy.consent] operator`: which commands may answer.

use std::process::Output;

use super::*;
use crate::tools::browser::Browser;
use crate::tools::process::said;
use crate::tools::socket::Socket;
use crate::tools::stdio::Pipe;
use crate::tools::terminal::Terminal;

const CONSOLE: &str = "[console]\nlisten = \"127.0.0.1:0\"";

/// Runs a command as an agent's shell may: without a terminal.
fn alone(stage: &ApprovalGateway, args: &[&str]) -> Output {
    let mut command = stage.gateway.world.command("setsid");
    command.args(["--wait", crate::tools::harness::headend()]).args(args).output().unwrap()
}

fn refused(stage: &ApprovalGateway, args: &[&str], why: &str) {
    let output = alone(stage, args);
    assert!(output.status.code() == Some(1) && said(&output).contains(why), "{args:?}: {}", said(&output));
}

/// Returns the daemon's answers to a program that uses its socket directly.
fn told(stage: &ApprovalGateway, lines: &[&str]) -> Vec<Value> {
    let (_, mut socket) = Socket::local(&stage.gateway, "admin");
    let answer = |line: &&str| {
        socket.send(&serde_json::from_str(line).unwrap());
        socket.line()
    };
    lines.iter().map(answer).collect()
}

/// Runs a command on a terminal of its own, and types the code that it shows, or another text.
fn typed(stage: &ApprovalGateway, args: &[&str], right: bool) -> (Option<i32>, String) {
    let mut terminal = Terminal::controlling(&stage.gateway.world, args);
    terminal.wait_for("code: ");
    let screen = terminal.screen();
    let code = screen.split("type ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    terminal.type_in(&if right { format!("{code}\n") } else { "aaaa-aaaa\n".to_owned() });
    terminal.end()
}

fn open_one(stage: &ApprovalGateway) -> (Mcp, String) {
    let mut client = stage.client(ClientEra::Modern, json!({}));
    assert_eq!(reason(&client.call("fx__echo", json!({"text": "x"}))), "awaiting_approval");
    let id = operator::pending(stage).remove(0);
    (client, id)
}

#[test]
fn with_a_terminal_a_person_types_the_code_that_only_the_terminal_shows() {
    let stage = ApprovalGateway::with("operator = \"terminal\"", CONSOLE);
    let (mut client, opened) = open_one(&stage);
    let id = opened.as_str();
    for args in [
        &["approve", id][..],
        &["deny", id],
        &["approvals", "approve", id],
        &["approvals", "deny", id],
        &["console"],
        &["pins", "reject", "fx__env"],
    ] {
        refused(&stage, args, "no controlling terminal");
    }
    let answer =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"approvals.answer","params":{{"id":"{id}","answer":"once"}}}}"#);
    let pin = r#"{"jsonrpc":"2.0","id":1,"method":"pins.approve","params":{"items":[]}}"#;
    let code = r#"{"jsonrpc":"2.0","id":1,"method":"operator.prove","params":{"code":""}}"#;
    let link = r#"{"jsonrpc":"2.0","id":1,"method":"console.link"}"#;
    let unblock = r#"{"jsonrpc":"2.0","id":1,"method":"approvals.unblock","params":{"id":"a"}}"#;
    for told in told(&stage, &[&answer, pin, code, &answer, link, unblock]) {
        assert!(told["error"]["message"].as_str().is_some_and(|text| text.contains("code")), "{told}");
    }
    assert_eq!(operator::pending(&stage), [id], "nothing was answered");

    let (ended, screen) = typed(&stage, &["approve", id], false);
    assert!(ended == Some(1) && screen.contains("not the code"), "{screen}");
    assert!(screen.contains(&format!("approve {id}")), "the daemon says who asks: {screen}");
    assert_eq!(operator::pending(&stage), [id]);
    let (ended, screen) = typed(&stage, &["approve", id], true);
    assert!(ended == Some(0) && screen.contains("granted: "), "{screen}");
    assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
    let (ended, screen) = typed(&stage, &["console"], true);
    assert!(ended == Some(0) && screen.contains("/open/"), "{screen}");
    assert!(alone(&stage, &["approvals"]).status.success(), "looking needs no code");
}

#[test]
fn without_commands_the_page_alone_answers() {
    let stage = ApprovalGateway::with("operator = \"none\"", CONSOLE);
    let (mut client, opened) = open_one(&stage);
    let id = opened.as_str();
    for args in [&["approve", id][..], &["deny", id], &["pins", "reject", "fx__env"]] {
        refused(&stage, args, "operator = \"none\"");
    }
    refused(&stage, &["console"], "no controlling terminal");
    let terminal = Terminal::controlling(&stage.gateway.world, &["approve", id]);
    let (ended, screen) = terminal.end();
    assert!(ended == Some(1) && screen.contains("operator = \"none\""), "{screen}");
    // A socket that is named and does not answer opens no way past the daemon.
    let config = stage.gateway.world.write("other.toml", "[policy]\ndefault = \"allow\"\n");
    let config = config.to_str().unwrap();
    let astray = alone(&stage, &["pins", "reject", "fx__env", "--socket", "/nowhere", "--config", config]);
    assert!(astray.status.code() == Some(69) && said(&astray).contains("no daemon answers"), "{}", said(&astray));

    let mut browser = Browser::signed_in(&stage.gateway);
    browser.answer(id, "once");
    assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
}

#[test]
fn a_gateway_alone_leaves_its_setting_to_commands_of_any_configuration() {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\noperator = \"none\"");
    let (world, config) = setup.fake("fx", &Fake::stdio("both")).write();
    let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::Modern);
    eventually("its tools are listed", || client.tool_names().iter().any(|name| name == "fx__env"));
    let other = world.write("other.toml", "[policy]\ndefault = \"allow\"\n");
    let refused = world.run(&["pins", "reject", "fx__env", "--config", other.to_str().unwrap()]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("operator = \"none\""), "{}", said(&refused));
}
