//! Notifications to the service manager: readiness, reload, stop. Source: `sd_notify(3)`.

use std::time::Duration;

use sd_notify::NotifyState;

/// The daemon is ready.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon applies a new configuration; [`ready`] ends this.
pub(crate) fn reloading() {
    // Without the time, `Type=notify-reload` would ignore the message.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The daemon shuts down, within that time. A `drain-timeout` longer than the unit's `TimeoutStopSec` allows is announced in time.
pub(crate) fn stopping(within: Duration) {
    let within = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(within)]);
}

fn tell(state: &[NotifyState<'_>]) {
    // Without a service manager `notify` does nothing; if it fails, the daemon runs on.
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(error = %error, "service manager not notified");
    }
}
