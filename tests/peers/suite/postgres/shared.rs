//! Two replicas that are asked about the same action, as it happens behind a balancer.

use serde_json::json;

use super::server::PostgresServer;
use super::{call, cluster, run};
use crate::consenting::{ApprovalGateway, pending};
use crate::process::eventually;

#[test]
fn the_same_call_on_two_replicas_is_one_approval_whose_answer_reaches_both() {
    let Some(server) = PostgresServer::start("") else { return };
    let one = ApprovalGateway::with("", &cluster(&server, "one", ""));
    // An approval is about a launch too, so both have the same.
    let two = one.beside(&cluster(&server, "two", ""));
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
    assert_eq!(one.called().len(), 1, "a once is one call");
    // One that has lost the grant to the other is asked about when it is made again.
    eventually("one approval is open", || {
        calls("granted");
        pending(&one).len() == 1
    });
    run(&one, &["deny", &pending(&one)[0]]);
    eventually("both refuse it", || calls("granted").iter().all(|told| told.contains("\"reason\":\"denied\"")));
    assert_eq!(one.called().len(), 1);
}
