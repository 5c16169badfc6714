//! Notifications to the service manager: readiness, reload, stop. Source: `sd_notify(3)`.

use sd_notify::NotifyState;

/// The daemon serves.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A new configuration is being read; [`ready`] ends this.
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
    // Without a service manager this does nothing; with a deaf one there is nothing to be done.
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(error = %error, "service manager not notified");
    }
}
