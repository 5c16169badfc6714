//! Tests of transports other than HTTP: none of them bypasses the approval.

use super::*;
use crate::stage::old_client::OldClient;
use crate::stage::steps::ways::{echo, is_ours, setup, through_a_pipe};

#[test]
fn a_client_of_the_old_transport_is_asked() {
    let (setup, log) = setup();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    for (how, text) in [("deny", None), ("once", Some("b")), ("session", Some("c"))] {
        let mut client = OldClient::connect(&gateway, gateway.token(), "/sse");
        client.request("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}));
        let before = log.work();
        client.send("tools/call", echo(text.unwrap_or("a")));
        let question = client.message();
        assert!(is_ours(&question), "{how}: {question}");
        assert_eq!(log.work(), before, "{how}");
        assert_eq!(client.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": allow(how)})).0, 202);
        let answer = client.message();
        match text {
            Some(text) => assert_eq!(answer["result"]["content"][0]["text"], text, "{how}: {answer}"),
            None => assert_eq!(answer["result"]["isError"], true, "{how}: {answer}"),
        }
        assert_eq!(log.work(), before + usize::from(text.is_some()), "{how}");
    }
    let mut mute = OldClient::connect(&gateway, gateway.token(), "/sse");
    mute.initialize("2024-11-05");
    let refused = mute.request("tools/call", echo("d"));
    assert_eq!(refused["result"]["isError"], true, "of the last session's allowance nothing is left: {refused}");
    assert_eq!(log.work(), 2);
}

#[test]
fn a_client_at_a_pipe_to_the_daemon_is_asked() {
    let (setup, log) = setup();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let pipe = gateway.pipe();
        let mut client = Mcp::stdio_with(pipe, era, forms());
        through_a_pipe(&mut client, era, &log);
    }
}
