//! Reloads and shutdown that need a watched file, another program or signals.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::Setup;
use crate::process::{alive, descendants, eventually, said, within};
use crate::upstream::{Fake, Log, example, toml_array};

#[test]
fn a_changed_file_is_noticed_without_being_told() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let next = Setup::new().fake("fx", &Fake::stdio("both")).fake("more", &Fake::stdio("both")).text();
    let fresh = gateway.world.write("headend.toml.new", &next);
    fs::rename(fresh, &gateway.config).unwrap();
    gateway.wait_for_tools(&["fx__echo", "more__echo"]);
}

#[test]
fn nothing_is_left_of_a_server_that_is_removed_before_its_subscribers_leave() {
    let program = example("conformance-fixture").display().to_string();
    let command = toml_array([program.as_str(), "stdio", "--era", "modern"]);
    let without = Setup::new().text();
    let gateway = Setup::new().start();
    let tasks = || {
        let page = gateway.scrape();
        let line = page.lines().find_map(|line| line.strip_prefix("headend_tasks ")).expect("the tasks are counted");
        line.parse::<u64>().unwrap()
    };
    let before = tasks();
    let plan = gateway.reload(&Setup::new().toml(&format!("[upstreams.fx]\ncommand = {command}")).text());
    assert!(plan.status.success(), "{}", said(&plan));
    gateway.wait_for_tools(&["fx__test_simple_text"]);
    assert!(gateway.scrape().contains("headend_upstream_processes{upstream=\"fx\"} 1"));
    let mut client = gateway.legacy();
    client.request("resources/subscribe", json!({"uri": "test://watched-resource"})).result();
    let plan = gateway.reload(&without);
    assert!(plan.status.success(), "{}", said(&plan));
    eventually("the server ends", || descendants(gateway.pid()).is_empty());
    assert_eq!(client.end_session(), 204);
    drop(client);
    within(Duration::from_secs(20), "the tasks for it end", || tasks() <= before);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
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
