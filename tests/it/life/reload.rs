//! Tests of reloads and shutdowns that need a watched file, another program or signals.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::tools::harness::GatewaySetup;
use crate::tools::process::{alive, descendants, eventually, within};
use crate::tools::upstream::{Fake, InputLog};

#[test]
fn a_changed_file_is_noticed_without_being_told() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let next = GatewaySetup::new().fake("fx", &Fake::stdio("both")).fake("more", &Fake::stdio("both")).text();
    let fresh = gateway.world.write("headend.toml.new", &next);
    fs::rename(fresh, &gateway.config).unwrap();
    gateway.wait_for_tools(&["fx__echo", "more__echo"]);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let mut gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let children = descendants(gateway.pid());
    let mut client = gateway.modern();
    let call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 60_000}}));
    eventually("the call arrives", || record.count("tools/call") == 1);
    gateway.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(200));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    drop(call);
    for child in children {
        within(Duration::from_secs(20), &format!("process {child} is gone"), || !alive(child));
    }
}
