//! Notifies the service manager of readiness, reload and stop. Source: `sd_notify(3)`.

use std::time::Duration;

use sd_notify::NotifyState;

/// Reports that the daemon is ready, or that a reload has ended.
pub(crate) fn notify_ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports that a reload begins; [`notify_ready`] reports its end.
pub(crate) fn notify_reloading() {
    // `Type=notify-reload` ignores the message without the time.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// Reports that the shutdown begins and takes at most `within`. The service manager then waits as
/// long, even beyond the unit's `TimeoutStopSec`.
pub(crate) fn notify_stopping(within: Duration) {
    let within = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(within)]);
}

/// Reports that this process is the main one of its service from now on.
pub(crate) fn notify_own_process() {
    notify_main_process(std::process::id());
}

/// Reports that another process is the main one of this process's service from now on.
pub(crate) fn notify_main_process(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
}

/// Sends states to the service manager; a failure is only logged.
fn tell(state: &[NotifyState<'_>]) {
    // `notify` does nothing without a service manager. A failure does not stop the daemon.
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(error = %error, "service manager not notified");
    }
}
