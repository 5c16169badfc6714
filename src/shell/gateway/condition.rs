//! Reports what does not work now, for `status`, `/readyz` and the metrics, and whether it stops
//! calls.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::base::local_time::local;
use crate::gateway::service::Service;
use crate::telemetry::metrics::Shortage;
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::session::handle::UpstreamHandle;

/// Most upstreams that a condition names; the rest are counted.
const NAMED: usize = 10;
/// Time after which a restarting upstream counts as not available.
const SLOW_RESTART: Duration = Duration::from_secs(10);

/// Something that does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GatewayFault {
    /// One of [`GatewayFault::REASONS`].
    pub reason: Cow<'static, str>,
    /// A sentence for the operator.
    pub text: String,
    /// True if no call works while it lasts, under any policy.
    pub stops_calls: bool,
}

impl GatewayFault {
    /// All reasons; a closed set, for the metrics.
    pub const REASONS: [&'static str; 6] = [AUDIT, STORE, CONFIGURATION, DESCRIPTORS, PLACES, UPSTREAMS];
}

const AUDIT: &str = "audit-log";
const STORE: &str = "store";
const CONFIGURATION: &str = "configuration";
const DESCRIPTORS: &str = "descriptors";
const PLACES: &str = "connections";
pub const UPSTREAMS: &str = "upstreams";

/// Returns what does not work now; empty if everything works.
pub fn conditions(service: &Service) -> Vec<GatewayFault> {
    let snapshot = service.snapshots.load_full();
    let now = clock::uptime();
    let audit = service.audit.trouble().map(|(why, stops_calls)| {
        let then = if stops_calls { "calls are refused until it does" } else { "calls go on unrecorded" };
        GatewayFault {
            reason: AUDIT.into(),
            text: format!("the audit log takes no records ({why}); {then}"),
            stops_calls,
        }
    });
    let loss = || Some(GatewayFault { reason: AUDIT.into(), text: service.audit.loss()?, stops_calls: false });
    let short = |shortage, reason: &'static str, text: &str| {
        let is_on = service.metrics.is_short_of(shortage, now);
        is_on.then(|| GatewayFault { reason: reason.into(), text: text.to_owned(), stops_calls: false })
    };
    let descriptors =
        "no file descriptor was left for a connection or process; raise the limit (`LimitNOFILE`, `ulimit -n`)";
    let places =
        "connections of clients were refused, since no place was left; see `max-connections` in [server.limits]";
    let store = service.approvals.store_health().and_then(|store| store.trouble()).map(|trouble| {
        let since = local(trouble.since);
        let then = "what it holds stays in force, and first sights, approvals, once-grants and limits are refused";
        let text = format!("the store takes no writes since {since} ({}); {then}", trouble.why);
        GatewayFault { reason: STORE.into(), text, stops_calls: false }
    });
    let configuration = service.refused_reload.load_full().map(|refused| {
        let since = local(refused.since);
        let then = "the one of before stays in force; `headend check` names every problem";
        let text = format!("the configuration was refused at {since} ({}); {then}", refused.why);
        GatewayFault { reason: CONFIGURATION.into(), text, stops_calls: false }
    });
    audit
        .or_else(loss)
        .into_iter()
        .chain(store)
        .chain(configuration)
        .chain(short(Shortage::Descriptors, DESCRIPTORS, descriptors))
        .chain(short(Shortage::Places, PLACES, places))
        .chain(upstreams(&snapshot.handles))
        .collect()
}

/// Whether an upstream is available. A restart that takes long makes it unavailable; a first start
/// does not.
fn is_available(state: UpstreamState, restarts: u64, age: Duration) -> bool {
    let is_slow = state == UpstreamState::Starting && restarts > 0 && age >= SLOW_RESTART;
    state.is_working() && !is_slow
}

/// Returns the condition that names unavailable upstreams, if there are any.
fn upstreams(handles: &[Arc<UpstreamHandle>]) -> Option<GatewayFault> {
    let is_available = |handle: &&Arc<UpstreamHandle>| {
        is_available(handle.health.state(), handle.main.restarts.load(Ordering::Relaxed), handle.health.age())
    };
    let down: Vec<&str> =
        handles.iter().filter(|handle| !is_available(handle)).map(|handle| handle.name.as_str()).collect();
    let stops_calls = down.len() == handles.len();
    let are = if down.len() == 1 { "is" } else { "are" };
    let text = match down.len() {
        0 => return None,
        1..=NAMED => down.join(", "),
        _ => format!(
            "{} and {} more",
            down.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "),
            down.len() - NAMED
        ),
    };
    Some(GatewayFault {
        reason: UPSTREAMS.into(),
        text: format!("{} of {} {are} down: {text}", down.len(), servers(handles.len())),
        stops_calls,
    })
}

/// Returns a number of servers in words.
fn servers(number: usize) -> String {
    format!("{number} server{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_that_hangs_in_a_later_start_is_not_counted_on() {
        let late = Duration::from_secs(10);
        for (state, restarts, age, wanted) in [
            (UpstreamState::Idle, 3, late, true),
            (UpstreamState::Ready, 3, late, true),
            (UpstreamState::Starting, 0, late, true),
            (UpstreamState::Starting, 1, Duration::from_secs(9), true),
            (UpstreamState::Starting, 1, late, false),
            (UpstreamState::Down, 0, Duration::ZERO, false),
            (UpstreamState::NeedsLogin, 0, Duration::ZERO, false),
        ] {
            assert_eq!(is_available(state, restarts, age), wanted, "{state} {restarts} {age:?}");
        }
    }
}
