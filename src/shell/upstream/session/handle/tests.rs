use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::base::budget::ByteBudget;
use crate::base::slots::SlotPool;
use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::config::Limits;
use crate::policy::Caller;
use crate::store::audit::AuditLog;
use crate::store::pins::{LaunchGate, PinRegistry};
use crate::telemetry::metrics::Metrics;
use crate::upstream::actor;
use crate::upstream::login::parts::LoginServices;
use crate::upstream::net::client::HttpClient;
use crate::upstream::process::mark::OwnerMarks;
use crate::upstream::spawner::IntakeLimits;

/// Creates an upstream with these lines of configuration, which several callers share.
fn handle(lines: &str) -> Arc<UpstreamHandle> {
    let text = format!("[upstreams.x]\nurl = \"http://127.0.0.1:9/mcp\"\n{lines}\n");
    let nothing = std::io::ErrorKind::NotFound;
    let (config, _) = crate::config::parse(&text, "test", &|_| None, &|_| Err(nothing.into())).unwrap();
    let spec = config.upstreams.into_iter().next().unwrap();
    let budget = ByteBudget::new(1 << 20);
    budget.set_shared(true);
    let spawner = Spawner {
        stop: CancellationToken::new(),
        tasks: TaskGroup::default(),
        http: HttpClient::new(),
        intake: IntakeLimits::new(budget, &Limits::default()),
        logins: LoginServices::new(None, AuditLog::none()),
        many_callers: true,
        times: StopTimes::DAEMON,
        marks: OwnerMarks::claim(None),
        gate: Arc::new(LaunchGate::new(PinRegistry::memory(), &spec, None)),
        starts: SlotPool::new(1),
        lifeline: None,
        prior: Default::default(),
        membership: Default::default(),
    };
    Arc::new(UpstreamHandle::new(spec, Metrics::new().unwrap().upstream("x"), spawner, actor::open))
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_slot_as_long_as_another_caller_s_call_with_progress_may_take() {
    let lines =
        "max-in-flight = 1\nqueue-timeout = \"1s\"\nstart-wait = \"1s\"\ncall-timeout = \"3s\"\ncall-max = \"10m\"";
    let handle = handle(lines);
    let [a, b] = [CallerNumber::LOCAL, CallerNumber::of(&Caller::named("handle-b"))];
    let held = handle.free_slot(&a);
    let begun = Instant::now();
    // A call that reports progress may take longer than `call-timeout`.
    let end = async {
        sleep(Duration::from_secs(300)).await;
        drop(held);
    };
    let (slot, ()) = tokio::join!(handle.slot(&b), end);
    assert!(slot.is_ok() && begun.elapsed() < Duration::from_secs(301), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert!(handle.slot(&b).await.is_err(), "behind its own caller's call");
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    let begun = Instant::now();
    assert!(handle.slot(&a).await.is_err(), "a call takes no longer than `call-max`");
    assert_eq!(begun.elapsed(), Duration::from_secs(600));
}
