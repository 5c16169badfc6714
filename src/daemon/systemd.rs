//! Notifications to the service manager: readiness, reload, stop. Source: `sd_notify(3)`.

use sd_notify::NotifyState;

/// The daemon is ready.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon reads a new configuration; [`ready`] ends this.
pub(crate) fn reloading() {
    // Without the time, `Type=notify-reload` would ignore the message.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The daemon shuts down.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    // Without a service manager `notify` does nothing; if it fails, the daemon runs on.
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(error = %error, "service manager not notified");
    }
}
