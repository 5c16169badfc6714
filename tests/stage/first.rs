//! Tests of the stage itself.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::base::clock;
use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::ClientEra;
use crate::stage::upstream::Fake;

#[test]
fn clients_of_both_eras_call_programs_and_servers() {
    let (http, sse) = (Fake::http("modern"), Fake::sse());
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both"));
    let (http, sse) = (http.spawn(), sse.spawn());
    let gateway = setup.url("web", &http.url).url("old", &sse.url).start();
    gateway.wait_for_tools(&["fx__echo", "web__echo", "old__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        for tool in ["fx__echo", "web__echo", "old__echo"] {
            assert_eq!(client.call(tool, json!({"text": tool})).text(), tool);
        }
    }
}

#[test]
fn minutes_take_no_time_and_pass_on_every_clock() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("call-timeout = \"2h\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let before = crate::stage::block_on(async { clock::since_1970() });
    let call = gateway.modern().call("fx__sleep", json!({"ms": 230_000}));
    assert_eq!(call.text(), "slept");
    let passed = crate::stage::block_on(async { clock::since_1970() }) - before;
    assert!(passed >= Duration::from_secs(229), "{passed:?}");
}

#[test]
fn commands_reach_the_daemon() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let called = gateway.run(&["call", "fx__echo", r#"{"text":"by hand"}"#]);
    assert!(String::from_utf8_lossy(&called.stdout).contains("by hand"), "{called:?}");
    assert!(gateway.scrape().contains("headend_upstream_state"));
}

#[test]
fn a_killed_daemon_leaves_its_state_as_it_was() {
    for (signal, stopped) in [(Signal::TERM, 1), (Signal::KILL, 0)] {
        let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
        gateway.wait_for_tools(&["fx__echo"]);
        gateway.signal(signal);
        assert!(gateway.wait(Duration::from_secs(60)).is_some());
        let gateway = gateway.restart();
        let records = gateway.run(&["audit", "tail", "-n", "1000", "--json"]);
        let records = String::from_utf8(records.stdout).unwrap();
        assert_eq!(records.matches("\"result\":\"stopped\"").count(), stopped, "{signal:?}: {records}");
        gateway.wait_for_tools(&["fx__echo"]);
    }
}
