//! Tests of calls around the end of a server's program.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::ClientEra;
use crate::stage::pass;
use crate::stage::upstream::Fake;

#[test]
fn a_call_that_was_not_sent_when_its_server_died_waits_for_the_next_start() {
    for era in ["legacy", "modern"] {
        let gateway = GatewaySetup::new().fake("fx", &Fake::stdio(era)).start();
        gateway.wait_for_tools(&["fx__sleep"]);
        let mut calls = Vec::new();
        for number in 0..200 {
            if number == 100 {
                assert_eq!(gateway.kill("fx", Signal::KILL), 1);
            }
            let mut client = gateway.client(if number % 2 == 0 { ClientEra::LEGACY } else { ClientEra::Modern });
            calls.push(client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 20}})));
            pass(Duration::from_millis(2));
        }
        let answers: Vec<Value> = calls.iter_mut().map(|call| call.response()).collect();
        let refusal = |answer: &Value| answer["result"]["_meta"]["headend/refusal"].clone();
        let not_made: Vec<Value> = answers.iter().map(refusal).filter(|refusal| refusal["executed"] == "no").collect();
        assert!(not_made.is_empty(), "{era}: {not_made:?}");
        let lost = answers.iter().map(refusal).filter(|refusal| refusal["executed"] == "unknown").count();
        assert!((1..=25).contains(&lost), "{era}: {lost} were in flight");
    }
}
