//! Tests of client state that survives a restart of the daemon, by kill -9 and clean, with the
//! reference server; and of kills at any moment of a call.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::steps::revive::{asks_for_approval, going_on, got, server_says, state_of};
use crate::tools::upstream::{Fake, InputLog};

/// Ends the daemon by this signal and starts it again.
fn again(mut gateway: Gateway, by: Signal) -> Gateway {
    gateway.signal(by);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let (world, path) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    Gateway::start(world, Some(path), &["serve"], &[])
}

/// Starts a daemon that asks for an approval of every call, in front of a modern server that
/// answers as a file says.
fn before() -> (Gateway, InputLog) {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("modern").logging(&log)).start();
    gateway.wait_for_tools(&["fx__raw"]);
    (gateway, log)
}

fn client(gateway: &Gateway) -> Mcp {
    Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", json!({"elicitation": {}}))
}

/// Makes a call and approves it once, after which the server asks for input under its own state.
/// Returns the arguments, and the state to continue with.
fn waiting(gateway: &Gateway, client: &mut Mcp, theirs: &str) -> (Value, Value) {
    let arguments = server_says(&gateway.world, Some(theirs));
    let first = client.call("fx__raw", arguments.clone());
    assert!(asks_for_approval(&first), "{}", first.raw);
    let second = client.request("tools/call", going_on(&arguments, &state_of(&first)));
    assert!(!asks_for_approval(&second), "{}", second.raw);
    (arguments, state_of(&second))
}

#[test]
fn no_state_is_used_twice_whenever_the_daemon_is_killed() {
    let (mut gateway, log) = before();
    let mut client = client(&gateway);
    for n in 0..8_u64 {
        let theirs = format!("theirs-{n}.");
        let (arguments, state) = waiting(&gateway, &mut client, &theirs);
        server_says(&gateway.world, None);
        let call = client.open("tools/call", going_on(&arguments, &state));
        // Before the call arrives, on its way to the disk, and after it went on.
        std::thread::sleep(Duration::from_micros(n * 700));
        gateway = again(gateway, Signal::KILL);
        drop(call);
        gateway.wait_for_tools(&["fx__raw"]);
        client.follow(gateway.address);
        let answer = client.request("tools/call", going_on(&arguments, &state));
        if !asks_for_approval(&answer) {
            assert_eq!((answer.text().as_str(), got(&log, &theirs)), ("done", 1), "{n}: {}", answer.raw);
        }
        assert!(got(&log, &theirs) <= 1, "{n}: the server got it twice");
    }
}
