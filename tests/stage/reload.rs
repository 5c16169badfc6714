//! Tests of configuration changes at run time, and of shutdown.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::stage::harness::{GatewaySetup, upstream_pid};
use crate::stage::pass;
use crate::stage::process::{eventually, said, within};
use crate::stage::program::is_alive;
use crate::stage::upstream::{Fake, InputLog, example, toml_array};

#[test]
fn reload_adds_and_removes_upstreams_and_leaves_the_others_running() {
    let keep = Fake::stdio("both");
    let setup = GatewaySetup::new().fake("keep", &keep).fake("old", &Fake::stdio("legacy"));
    let gateway = setup.start();
    gateway.wait_for_tools(&["keep__env", "old__env"]);
    let kept = upstream_pid(&gateway, "keep");

    let next = GatewaySetup::new().fake("keep", &keep).fake("new", &Fake::stdio("modern")).text();
    let plan = gateway.reload(&next);
    assert!(plan.status.success(), "{}", said(&plan));
    gateway.wait_for_tools(&["keep__echo", "new__echo"]);
    eventually("the removed upstream's tools leave", || {
        !gateway.modern().tool_names().contains(&"old__echo".to_owned())
    });
    eventually("the removed upstream ends", || gateway.programs("old") == 0);
    assert_eq!(upstream_pid(&gateway, "keep"), kept, "an unchanged upstream keeps its process");
    let gone = gateway.modern().call("old__echo", json!({"text": "x"}));
    assert_eq!(gone.code(), Some(-32602), "{}", gone.raw);
}

#[test]
fn a_refused_file_changes_nothing() {
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let pid = upstream_pid(&gateway, "fx");
    for (label, text) in [
        ("not TOML", "[upstreams".to_owned()),
        ("unknown key", format!("{}\n[nonsense]\nx = 1\n", GatewaySetup::new().text())),
        ("bad name", "[upstreams.Bad_Name]\ncommand = [\"/bin/true\"]\n".to_owned()),
    ] {
        let refused = gateway.reload(&text);
        assert_eq!(refused.status.code(), Some(1), "{label}: {}", said(&refused));
        assert_eq!(upstream_pid(&gateway, "fx"), pid, "{label}");
        assert_eq!(gateway.modern().call("fx__echo", json!({"text": label})).text(), label);
    }
    gateway.signal(Signal::HUP);
    assert_eq!(upstream_pid(&gateway, "fx"), pid, "SIGHUP with a bad file");
    assert!(gateway.scrape().contains("headend_config_last_reload_successful 0"));
}

#[test]
fn a_call_in_flight_survives_a_reload_that_removes_its_upstream() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let mut client = gateway.modern();
    let mut call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 1000}}));
    eventually("the call arrives", || record.count("tools/call") == 1);
    let plan = gateway.reload(&GatewaySetup::new().text());
    assert!(plan.status.success(), "{}", said(&plan));
    let response = call.response();
    assert!(response["result"].is_object() && response["result"]["isError"] != json!(true), "{response}");
}

#[test]
fn metrics_show_the_server_that_is_there_and_not_the_one_before_it() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__env"]);
    let state = |state: &str| gateway.scrape().contains(&format!("{{state=\"{state}\",upstream=\"fx\"}} 1"));
    for fake in [Some(Fake::stdio("legacy")), None] {
        let old = upstream_pid(&gateway, "fx");
        let next = fake.as_ref().map_or_else(GatewaySetup::new, |fake| GatewaySetup::new().fake("fx", fake));
        let plan = gateway.reload(&next.text());
        assert!(plan.status.success(), "{}", said(&plan));
        eventually("the old server ends", || !is_alive(old));
        if fake.is_some() {
            eventually("the new server is ready", || state("ready"));
            // The new server's lists are read a moment later.
            gateway.wait_for_tools(&["fx__env"]);
        }
        // The old server's task ends a moment after its process.
        pass(Duration::from_millis(300));
        let page = gateway.scrape();
        match fake {
            Some(_) => assert!(state("ready") && !state("stopped"), "{page}"),
            None => assert!(!page.contains("upstream=\"fx\""), "{page}"),
        }
    }
}

#[test]
fn sigterm_finishes_the_calls_in_flight_and_leaves_no_process() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let stubborn = Fake::stdio("legacy").logging(&record);
    let mut gateway = setup.fake("fx", &stubborn).fake("two", &Fake::stdio("modern")).start();
    gateway.wait_for_tools(&["fx__sleep", "two__echo"]);
    let mut client = gateway.modern();
    let mut call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 700}}));
    let legacy = gateway.legacy();
    let stream = legacy.listen();
    eventually("the call arrives", || record.count("tools/call") == 1);
    gateway.signal(Signal::TERM);
    let response = call.response();
    assert!(response["result"].is_object() && response["result"]["isError"] != json!(true), "{response}");
    let status = gateway.wait(Duration::from_secs(60));
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", gateway.story());
    drop(stream);
    assert_eq!((gateway.programs("fx"), gateway.programs("two")), (0, 0));
}
