//! Tests of the metrics page: numbers of approvals and callers.
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::said;
use crate::stage::upstream::Fake;

const ASK: &str = r#"default = "allow"
    [[policy.rules]]
    id = "asks"
    effect = "ask"
    tools = ["fx__echo"]"#;

/// Returns the value of a series, named with its labels as on the page.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is missing:\n{page}")).parse().unwrap()
}

fn open_approvals(gateway: &Gateway) -> Vec<String> {
    let output = gateway.run(&["approvals", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed["approvals"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn approvals_their_answers_grants_and_denials_are_on_the_page() {
    let gateway = GatewaySetup::new().policy(ASK).fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.legacy();
    for text in ["granted", "denied", "open"] {
        client.call("fx__echo", json!({"text": text}));
    }
    let page = gateway.scrape();
    assert_eq!(value(&page, "headend_approvals_open"), 3.0);
    assert!((0.0..300.0).contains(&value(&page, "headend_approvals_oldest_age_seconds")));
    let ids = open_approvals(&gateway);
    for args in [["approve", ids[0].as_str()], ["deny", ids[1].as_str()]] {
        let output = gateway.run(&args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    let page = gateway.scrape();
    for (series, want) in [
        ("headend_approvals_open", 1.0),
        ("headend_denials", 1.0),
        (r#"headend_grants{lifetime="once"}"#, 1.0),
        (r#"headend_approval_answers_total{channel="operator",result="granted"}"#, 1.0),
        (r#"headend_approval_answers_total{channel="operator",result="denied"}"#, 1.0),
        (r#"headend_approval_answers_total{channel="client",result="granted"}"#, 0.0),
        (r#"headend_approval_answer_duration_seconds_count{channel="operator"}"#, 2.0),
        (r#"headend_approval_answer_duration_seconds_bucket{channel="operator",le="+Inf"}"#, 2.0),
    ] {
        assert_eq!(value(&page, series), want, "{series}");
    }
}

#[test]
fn calls_are_counted_by_callers_of_the_configuration_on_every_face() {
    let token = "second-token-of-the-metrics-test";
    let gateway = GatewaySetup::new().second_caller(token).fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let of = |caller: &str| value(&gateway.scrape(), &format!("headend_caller_calls_total{{caller=\"{caller}\"}}"));
    assert_eq!([of("local"), of("second"), of("(other)")], [0.0; 3], "each has a series before its first call");
    for era in ClientEra::BOTH {
        gateway.client(era).call("fx__echo", json!({"text": "ours"}));
        let mut second = Mcp::http(gateway.address, Some(token.to_owned()), era);
        second.call("fx__echo", json!({"text": "theirs"}));
        second.call("fx__none", json!({}));
    }
    assert!(gateway.run(&["call", "fx__echo", r#"{"text":"by hand"}"#]).status.success());
    assert_eq!([of("local"), of("second"), of("(other)")], [3.0, 4.0, 0.0], "an unknown tool is a call too");
}
