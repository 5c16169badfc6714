//! Tests of calls that find their upstream down.

use std::time::Instant;

use futures_util::FutureExt as _;

use super::*;
use crate::telemetry::metrics::Metrics;

fn spec() -> UpstreamSettings {
    let nothing = std::io::ErrorKind::NotFound;
    let text = "[upstreams.x]\ncommand = [\"/bin/true\"]\n";
    let (config, _) = crate::config::parse(text, "test", &|_| None, &|_| Err(nothing.into())).unwrap();
    config.upstreams.into_iter().next().unwrap()
}

fn lane() -> Lane {
    let name = UpstreamName::parse("x").unwrap();
    let health = UpstreamHealth::new(name.clone(), Metrics::new().unwrap().upstream("x"), false);
    Lane::main(name, DeclaredCapabilities::default(), Arc::default(), Arc::new(health))
}

/// Starts a rest after another failed start.
fn rests(lane: &Lane, until: Instant) {
    lane.begin();
    lane.restarts.fetch_add(1, Ordering::Relaxed);
    lane.set_state(LinkState::Down { until });
}

#[tokio::test(start_paused = true)]
async fn a_call_wakes_an_upstream_that_rests_and_waits_for_one_start() {
    let (lane, spec, later) = (lane(), spec(), clock::now() + Duration::from_secs(3600));
    rests(&lane, later);
    let actor = async {
        lane.wanted.notified().await;
        rests(&lane, later);
        std::future::pending::<()>().await;
    };
    let refused = tokio::select! {
        refused = lane.link(&spec) => refused.unwrap_err(),
        () = actor => unreachable!(),
    };
    assert_eq!((refused.reason, refused.executed), (FailureReason::UpstreamDown, ExecutionDoubt::No));
    assert_eq!(refused.retry_after, Some(Duration::from_secs(5)), "another call ends the next rest");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_began_before_the_call_is_not_the_one_it_waits_for() {
    let (lane, spec, later) = (lane(), spec(), clock::now() + Duration::from_secs(3600));
    rests(&lane, later);
    // A life that ends looks like a start.
    lane.set_state(LinkState::Starting);
    let actor = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        lane.set_state(LinkState::Down { until: later });
        lane.wanted.notified().await;
    };
    tokio::select! {
        refused = lane.link(&spec) => panic!("{refused:?}"),
        () = actor => {}
    }
}

#[tokio::test]
async fn an_upstream_that_begins_to_start_is_not_taken_for_one_at_rest_again() {
    // Repeated many times, because the critical moment is short.
    for _ in 0..5_000 {
        let lane = lane();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                lane.begin();
            });
            both.wait();
            let ended = lane.started(Duration::from_secs(60)).now_or_never();
            assert_eq!(ended, None, "nothing has come of the start");
        });
    }
}
