//! What does not work at the moment, for `status`, `/readyz` and the metrics, and whether any call does.

use std::sync::Arc;

use crate::base::clock;
use crate::base::local_time::local;
use crate::gateway::service::Service;
use crate::telemetry::metrics::Shortage;
use crate::upstream::handle::Handle;

/// Upstreams that are named; the others are counted.
const NAMED: usize = 10;

/// Something that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// One of [`Condition::REASONS`].
    pub(crate) reason: &'static str,
    /// A sentence for the operator.
    pub(crate) text: String,
    /// No call works while it lasts, whatever the policy allows.
    pub(crate) stops_calls: bool,
}

impl Condition {
    /// A closed set, for the metrics.
    pub(crate) const REASONS: [&'static str; 5] = [AUDIT, STORE, DESCRIPTORS, PLACES, UPSTREAMS];
}

const AUDIT: &str = "audit-log";
const STORE: &str = "store";
const DESCRIPTORS: &str = "descriptors";
const PLACES: &str = "connections";
const UPSTREAMS: &str = "upstreams";

/// What does not work now; empty while everything does.
pub(crate) fn conditions(service: &Service) -> Vec<Condition> {
    let snapshot = service.snapshots.load_full();
    let now = clock::uptime();
    let audit = service.audit.trouble().map(|(why, stops_calls)| {
        let then = if stops_calls { "calls are refused until it does" } else { "calls go on unrecorded" };
        Condition { reason: AUDIT, text: format!("the audit log takes no records ({why}); {then}"), stops_calls }
    });
    let loss = || Some(Condition { reason: AUDIT, text: service.audit.loss()?, stops_calls: false });
    let short = |shortage, reason, text: &str| {
        let is_on = service.metrics.is_short_of(shortage, now);
        is_on.then(|| Condition { reason, text: text.to_owned(), stops_calls: false })
    };
    let descriptors =
        "no file descriptor was left for a connection or process; raise the limit (`LimitNOFILE`, `ulimit -n`)";
    let places =
        "connections of clients were refused, since no place was left; see `max-connections` in [server.limits]";
    let store = service.approvals.store_health().and_then(|store| store.trouble()).map(|trouble| {
        let since = local(trouble.since);
        let then = "what it holds stays in force, and first sights, approvals, once-grants and limits are refused";
        let text = format!("the store takes no writes since {since} ({}); {then}", trouble.why);
        Condition { reason: STORE, text, stops_calls: false }
    });
    audit
        .or_else(loss)
        .into_iter()
        .chain(store)
        .chain(short(Shortage::Descriptors, DESCRIPTORS, descriptors))
        .chain(short(Shortage::Places, PLACES, places))
        .chain(upstreams(&snapshot.handles))
        .collect()
}

/// Upstreams without which calls fail. One that starts, or starts with its first call, may work.
fn upstreams(handles: &[Arc<Handle>]) -> Option<Condition> {
    let works = |handle: &&Arc<Handle>| matches!(handle.health.state(), "idle" | "starting" | "ready");
    let down: Vec<&str> = handles.iter().filter(|handle| !works(handle)).map(|handle| handle.name.as_str()).collect();
    let stops_calls = down.len() == handles.len();
    let text = match down.len() {
        0 => return None,
        1..=NAMED => down.join(", "),
        _ => format!(
            "{} and {} more",
            down.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "),
            down.len() - NAMED
        ),
    };
    Some(Condition { reason: UPSTREAMS, text: format!("not available: {text}; see `headend status`"), stops_calls })
}
