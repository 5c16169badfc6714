//! Tests of an upstream whose program one replica runs at a time.

use super::*;
use crate::stage::harness::status_of;

/// Starts three replicas with `fx` placed on one of them. The program speaks `era`.
fn placed(scheme: &str, era: &str) -> TestCluster {
    TestCluster::start_with(scheme, "", |setup, log| {
        setup.fake("fx", &Fake::stdio(era).logging(log)).toml("placement = \"one\"")
    })
}

/// Returns the replica that runs `fx` as each replica names it. They agree.
fn owner(cluster: &TestCluster) -> usize {
    let named: Vec<_> = cluster.replicas.iter().map(|replica| status_of(replica, "fx")["replica"].clone()).collect();
    assert!(named.iter().all(|name| *name == named[0]), "{named:?}");
    named[0].as_str().unwrap().strip_prefix('r').unwrap().parse().unwrap()
}

/// Calls `fx__echo` with a text at a replica.
fn echo(cluster: &TestCluster, replica: usize, text: &str) {
    let mut client = cluster.client(replica, ClientEra::Modern, json!({}));
    let echoed = client.call("fx__echo", json!({"text": text}));
    assert_eq!(echoed.text(), text, "{}", echoed.raw);
}

#[test]
fn one_program_serves_all_replicas_in_each_era() {
    for (scheme, era) in [("https", "legacy"), ("http", "modern")] {
        let cluster = placed(scheme, era);
        assert_eq!(cluster.replicas[0].programs("fx"), 1, "{era}");
        for replica in 0..3 {
            echo(&cluster, replica, &format!("at {replica}"));
        }
        let owner = owner(&cluster);
        assert_eq!(cluster.logs[owner].lines_with(&["\"tools/call\"", "\"text\":\"at "]).len(), 3, "{era}");
        assert_eq!(cluster.calls("at "), 3, "{era}");
    }
}

#[test]
fn progress_and_changed_lists_reach_every_replica_in_each_era() {
    for era in ["legacy", "modern"] {
        let cluster = placed("http", era);
        let other = (owner(&cluster) + 1) % 3;
        let mut client = cluster.client(other, ClientEra::Modern, json!({}));
        let params = json!({"name": "fx__progress", "arguments": {"steps": 3, "delay_ms": 300}, "_meta": {"progressToken": "p"}});
        let mut call = client.open("tools/call", params);
        let mut steps = Vec::new();
        while let Some(message) = call.next() {
            if message["method"] == "notifications/progress" {
                assert_eq!(message["params"]["progressToken"], "p", "{era}");
                steps.push(message["params"]["progress"].clone());
            }
        }
        assert_eq!(steps, [1, 2, 3], "{era}");
        assert_eq!(client.call("fx__mutate", json!({})).text(), "grown", "{era}");
        for replica in &cluster.replicas {
            replica.wait_for_tools(&["fx__grown_0"]);
        }
    }
}

#[test]
fn a_call_at_another_replica_is_cancelled_at_the_program() {
    let cluster = placed("http", "legacy");
    let other = (owner(&cluster) + 1) % 3;
    let mut client = cluster.client(other, ClientEra::LEGACY, json!({}));
    let params = json!({"name": "fx__sleep", "arguments": {"ms": 3_600_000, "n": 4711}});
    let call = client.open_as(&json!("gone"), "tools/call", params);
    pass(Duration::from_secs(2));
    client.notify("notifications/cancelled", json!({"requestId": "gone"}));
    pass(Duration::from_secs(2));
    let log = &cluster.logs[owner(&cluster)];
    assert_eq!(log.lines_with(&["notifications/cancelled"]).len(), 1);
    echo(&cluster, other, "on");
    drop(call);
}

#[test]
fn the_next_owner_of_a_killed_one_waits_for_the_lease_and_no_call_is_made_twice() {
    let mut cluster = placed("https", "legacy");
    let first = owner(&cluster);
    let other = (first + 1) % 3;
    let mut client = cluster.client(other, ClientEra::Modern, json!({}));
    let mut call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 3_600_000, "n": 4711}}));
    pass(Duration::from_secs(2));
    assert_eq!(cluster.calls("4711"), 1);
    let begun = crate::stage::now();
    cluster.kill(first);
    assert_eq!(refusal(&call.response()["result"]), lost());
    echo(&cluster, other, "taken over");
    let waited = (crate::stage::now() - begun).as_secs();
    assert!((10..=22).contains(&waited), "{waited} s");
    assert_eq!(cluster.logs[first].lines_with(&["taken over"]).len(), 0);
    assert_eq!(cluster.replicas[other].programs("fx"), 1);
    assert_eq!(cluster.calls("4711"), 1, "never sent again");
}

#[test]
fn an_owner_that_ends_in_order_gives_the_program_to_another_at_once() {
    let mut cluster = placed("http", "legacy");
    let first = owner(&cluster);
    let other = (first + 1) % 3;
    cluster.replicas[first].stop();
    let begun = crate::stage::now();
    echo(&cluster, other, "given");
    let waited = (crate::stage::now() - begun).as_secs();
    assert!(waited <= 6, "{waited} s");
    assert_eq!(cluster.replicas[other].programs("fx"), 1);
}

#[test]
fn while_the_store_is_away_the_program_ends_with_its_lease() {
    let cluster = placed("http", "legacy");
    pass(Duration::from_secs(20));
    assert_eq!(cluster.replicas[0].programs("fx"), 1, "the lease is renewed");
    cluster.directory.set_away(true);
    pass(Duration::from_secs(8));
    echo(&cluster, 0, "within the lease");
    pass(Duration::from_secs(12));
    assert_eq!(cluster.replicas[0].programs("fx"), 0);
    cluster.directory.set_away(false);
    for replica in 0..3 {
        echo(&cluster, replica, "again");
    }
    assert_eq!(cluster.replicas[0].programs("fx"), 1);
}
