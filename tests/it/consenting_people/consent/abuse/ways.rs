//! Tests of approvals of a gateway that is a process of its own, at the pipes of its client.

use std::time::Instant;

use super::*;
use crate::tools::harness::TestHome;
use crate::tools::stdio::Pipe;
use crate::tools::steps::ways::{PATIENCE, call_and_hear, echo, is_list_change, setup, through_a_pipe};

fn open_prompts(world: &TestHome) -> Vec<Value> {
    let output = world.run(&["approvals", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed["approvals"].as_array().cloned().unwrap()
}

#[test]
fn a_client_at_a_pipe_of_its_own_is_asked() {
    for era in ClientEra::BOTH {
        let (setup, log) = setup();
        let (world, config) = setup.write();
        let pipe = Pipe::start(&world, &config, &["--no-daemon"]);
        let mut client = Mcp::stdio_with(pipe, era, forms());
        eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
        through_a_pipe(&mut client, era, &log);
    }
}

#[test]
fn another_process_answers_for_a_gateway_without_a_daemon() {
    let (setup, log) = setup();
    let (world, config) = setup.write();
    let mut client = Mcp::stdio_with(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::LEGACY, forms());
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
    for (command, text, executed) in [("approve", "yes", true), ("deny", "no", false)] {
        let (id, question) = call_and_hear(&mut client, text);
        eventually("the question is listed", || open_prompts(&world).len() == 1);
        let open = open_prompts(&world);
        let output = world.run(&[command, open[0]["id"].as_str().unwrap()]);
        assert!(output.status.success(), "{}", said(&output));
        let answer = client.pipe().answer(&id, PATIENCE);
        assert_eq!(echoed(&answer, text), executed, "{command}: {}", answer.raw);
        let notices: Vec<&Value> = answer.notices.iter().filter(|notice| !is_list_change(notice)).collect();
        let [withdrawn] = notices.as_slice() else { panic!("{command}: {notices:?}") };
        assert_eq!(withdrawn["params"]["requestId"], question["id"], "{command}: {withdrawn}");
        // The client's answer is too late now.
        client.respond(&question["id"], allow("session"));
        eventually("nothing is open any more", || open_prompts(&world).is_empty());
    }
    let (_, question) = call_and_hear(&mut client, "yes");
    assert_eq!(log.work(), 1, "once is once: {question}");
}

/// Returns a call with this text, which is held, as a message.
fn held(id: &str, client: &Mcp, text: &str) -> String {
    let params = client.dress(echo(text));
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[test]
fn a_program_of_its_own_holds_calls_and_ends_when_its_pipe_is_closed_while_one_is_held() {
    let place = GatewaySetup::new();
    let log = InputLog::new(&place.world.path("work"), "fx");
    let policy = format!("default = \"ask\"\n[policy.consent]\n{LONG}");
    let (world, config) = place.policy(&policy).fake("fx", &Fake::stdio("legacy").logging(&log)).write();
    for era in ClientEra::BOTH {
        let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), era);
        eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
        let text = format!("approved {era:?}");
        let call = held("first", &client, &text);
        client.pipe().send(call.as_bytes());
        eventually("it waits", || open_prompts(&world).len() == 1);
        let approved = world.run(&["approve", open_prompts(&world)[0]["id"].as_str().unwrap()]);
        assert!(approved.status.success(), "{}", said(&approved));
        assert!(echoed(&client.pipe().answer(&json!("first"), Duration::from_secs(60)), &text), "{text}");

        let call = held("second", &client, &format!("{era:?}"));
        client.pipe().send(call.as_bytes());
        eventually("it waits", || open_prompts(&world).len() == 1);
        let begun = Instant::now();
        assert!(client.pipe().close(Duration::from_secs(60)).is_some(), "{era:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{era:?}: {:?}", begun.elapsed());
        assert!(open_prompts(&world).is_empty(), "{era:?}: its approvals end with it");
    }
    assert_eq!(log.count("tools/call"), 2);
}
