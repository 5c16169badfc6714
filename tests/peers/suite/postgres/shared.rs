//! Two replicas that are asked about the same action, as it happens behind a balancer.

use serde_json::json;

use super::server::PostgresServer;
use super::{call, cluster, run};
use crate::consenting::{ApprovalGateway, pending};
use crate::harness::GatewaySetup;
use crate::process::eventually;

#[test]
fn the_same_call_on_two_replicas_is_one_approval_whose_answer_reaches_both() {
    let Some(server) = PostgresServer::start("") else { return };
    let [one, two] =
        ["one", "two"].map(|name| ApprovalGateway::of(GatewaySetup::new(), "", &cluster(&server, name, "")));
    let stages = [&one, &two];
    let calls = |text: &str| stages.map(|stage| call(stage, json!({ "text": text })).to_string());
    let ask = |text: &str| {
        let asked = calls(text);
        let open = pending(&one);
        assert_eq!((open.len(), pending(&two)), (1, open.clone()), "{asked:?}");
        let names = |told: &String| told.contains(&format!("headend approve {}", open[0]));
        assert!(asked.iter().all(names), "both name it: {asked:?}");
        open[0].clone()
    };
    run(&two, &["approve", &ask("granted"), "--for", "once"]);
    eventually("both know", || pending(&one).is_empty() && pending(&two).is_empty());
    eventually("a call is made", || calls("granted").iter().any(|told| !told.contains("\"isError\":true")));
    assert_eq!(one.called().len() + two.called().len(), 1, "a once is one call");
    // The other one was asked about anew, by one of both replicas or by both.
    eventually("one approval is open", || pending(&one).len() == 1);
    run(&one, &["deny", &pending(&one)[0]]);
    eventually("both refuse it", || calls("granted").iter().all(|told| told.contains("\"reason\":\"denied\"")));
    assert_eq!(one.called().len() + two.called().len(), 1);
}
