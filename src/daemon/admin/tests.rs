//! The admin socket's methods on a gateway in this process, with a state directory of its own.

use tempfile::TempDir;

use super::*;
use crate::config;
use crate::daemon::gateway::{ConfigSource, Loader, StopTimes};
use crate::policy::Event;
use crate::store::audit::MAIN;
use crate::store::directory::Store;
use crate::store::seal::KeySource;

/// A gateway with one upstream, which has no program to start.
struct Stage {
    gateway: Arc<Gateway>,
    dir: TempDir,
}

impl Stage {
    fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.toml");
        std::fs::write(&path, "[upstreams.fx]\ncommand = [\"/no/such/program\"]\n").unwrap();
        let config::Loading { outcome, files } = config::load(&path);
        let load: Loader = Box::new({
            let path = path.clone();
            move || config::load(&path)
        });
        let warned = parking_lot::Mutex::default();
        let source = ConfigSource { path: Some(path), load, remembers: true, files: files.into(), warned };
        let store = Store::open(dir.path().join("state"), KeySource::default()).unwrap();
        let gateway = Gateway::build(outcome.unwrap().0, source, Some(store), MAIN, StopTimes::DAEMON).unwrap();
        Self { gateway: Arc::new(gateway), dir }
    }
}

#[tokio::test]
async fn a_lost_record_is_a_reason_for_degraded() {
    let stage = Stage::set();
    let service = &stage.gateway.service;
    let reasons = || conditions(service).into_iter().map(|condition| condition.reason).collect::<Vec<_>>();
    let degraded = || status(&stage.gateway).text().contains("found no place in its queue");
    let writer = service.audit.hold().await;
    assert!(!reasons().contains(&"audit-log") && !degraded());
    while service.audit.loss().is_none() {
        drop(service.audit.record(crate::policy::Entry::new(Event::Outcome), false));
    }
    drop(writer);
    let found = conditions(service).into_iter().find(|condition| condition.reason == "audit-log").unwrap();
    assert!(found.text.contains("are lost: 1,") && !found.stops_calls && degraded());
    assert!(service.metrics.render().contains("headend_audit_failures_total 1"));
    service.audit.flush().await;
    assert!(degraded(), "a look some minutes later still finds it");
    drop(stage.dir);
}
