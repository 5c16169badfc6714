//! Ends the access of clients whose credential is gone, and says how many sessions a client may
//! have.

use crate::config::Config;
use crate::gateway::service::Service;
use crate::listener::callers::credentials::CallerAccess;
use crate::serve::sessions::{ClientSessions, SessionLimits};

/// Withdraws the access of these callers. That ends their calls, streams and sessions, their open
/// approvals, and the grants of those sessions.
pub(super) fn end_access(service: &Service, sessions: &ClientSessions, gone: &[CallerAccess]) {
    if gone.is_empty() {
        return;
    }
    gone.iter().for_each(|caller| caller.access.withdraw());
    sessions.end_withdrawn();
    for CallerAccess { caller, .. } in gone {
        tracing::info!(%caller, "the caller's credential is not valid any more; its sessions, streams and calls end");
        service.approvals.caller_left(caller);
    }
}

/// Returns the limits of client sessions; a caller has a limit only if there can be several.
pub(super) fn session_limits(config: &Config) -> SessionLimits {
    let limits = &config.server.limits;
    SessionLimits {
        sessions: limits.sessions,
        per_caller: config.has_many_callers().then_some(limits.sessions_per_caller),
        idle: limits.session_idle,
        max: limits.session_max,
    }
}
