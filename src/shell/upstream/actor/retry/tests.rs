//! Tests of what ends a rest, and when, on a paused clock.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::base::budget::ByteBudget;
use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::config::Limits;
use crate::store::audit::AuditLog;
use crate::store::pins::{LaunchGate, PinRegistry};
use crate::telemetry::metrics::Metrics;
use crate::upstream::actor;
use crate::upstream::login::parts::LoginServices;
use crate::upstream::net::client::HttpClient;
use crate::upstream::process::mark::OwnerMarks;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::spawner::{IntakeLimits, Spawner};

const HOUR: Duration = Duration::from_secs(3600);

fn spec(lines: &str) -> UpstreamSettings {
    let text = format!("[upstreams.x]\n{lines}\n");
    let nothing = std::io::ErrorKind::NotFound;
    let (config, _) = crate::config::parse(&text, "test", &|_| None, &|_| Err(nothing.into())).unwrap();
    config.upstreams.into_iter().next().unwrap()
}

fn context(lines: &str) -> ActorContext {
    let spec = spec(lines);
    let spawner = Spawner {
        stop: CancellationToken::new(),
        tasks: TaskGroup::default(),
        http: HttpClient::new(),
        intake: IntakeLimits::new(ByteBudget::new(1 << 20), &Limits::default()),
        logins: LoginServices::new(None, AuditLog::none()),
        many_callers: false,
        times: StopTimes::DAEMON,
        marks: OwnerMarks::claim(None),
        gate: Arc::new(LaunchGate::new(PinRegistry::memory(), &spec, None)),
        starts: crate::base::slots::SlotPool::new(1),
        lifeline: None,
        prior: Default::default(),
        membership: Default::default(),
    };
    let metrics = Metrics::new().unwrap().upstream("x");
    let handle = Arc::new(UpstreamHandle::new(spec, metrics, spawner.clone(), actor::open));
    let lane = Arc::clone(&handle.main);
    ActorContext { handle, lane, reports: None, spawner, remembered: None, is_known: false, lists_first: false }
}

/// Returns why and after how many seconds a rest of an hour ends if this event happens in its tenth
/// second.
async fn rested(context: &ActorContext, event: impl FnOnce()) -> (RestEnd, u64) {
    let start = tokio::time::Instant::now();
    let event = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        event();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        woken = pause(context, clock::now(), HOUR) => (woken, start.elapsed().as_secs()),
        () = event => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_rest_ends_with_its_time_or_with_an_event() {
    let context = context("url = \"http://127.0.0.1:9/mcp\"");
    assert_eq!(rested(&context, || ()).await, (RestEnd::Due, 3600));
    assert_eq!(rested(&context, || context.lane.wanted.notify_one()).await, (RestEnd::Due, 10), "a call");
    assert_eq!(rested(&context, || context.handle.again.notify_one()).await, (RestEnd::Mended, 10), "a reload");
    assert_eq!(rested(&context, || context.spawner.gate.reviewed.notify_one()).await, (RestEnd::Mended, 10));
    assert_eq!(rested(&context, || context.spawner.stop.cancel()).await, (RestEnd::Stopped, 10));
}

#[tokio::test(start_paused = true)]
async fn starts_that_calls_ask_for_are_two_seconds_apart() {
    let context = context("url = \"http://127.0.0.1:9/mcp\"");
    let began = clock::now();
    let start = tokio::time::Instant::now();
    context.lane.wanted.notify_one();
    assert_eq!(pause(&context, began, HOUR).await, RestEnd::Due);
    let waited = start.elapsed();
    assert!(APART.saturating_sub(waited) < Duration::from_millis(50) && waited < APART * 2, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_file_that_appears_ends_a_rest() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let quoted = |name: &str| format!("{:?}", at(name).display().to_string());
    for (name, lines) in [
        ("server", format!("command = [{}]", quoted("server"))),
        ("main.js", format!("command = [\"/bin/sh\", {}]", quoted("main.js"))),
        ("folder", format!("command = [\"/bin/sh\"]\ncwd = {}", quoted("folder"))),
        ("words", format!("command = [\"words\"]\nenv = {{ PATH = {:?} }}", dir.path().display().to_string())),
    ] {
        let context = context(&lines);
        let appear = || {
            std::fs::write(at(name), "").unwrap();
            std::fs::set_permissions(at(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let (woken, seconds) = rested(&context, appear).await;
        assert!(woken == RestEnd::Mended && (10..=11).contains(&seconds), "{name}: {woken:?} after {seconds} s");
        assert_eq!(rested(&context, || ()).await, (RestEnd::Due, 3600), "{name}: what is there does not appear");
    }
}
