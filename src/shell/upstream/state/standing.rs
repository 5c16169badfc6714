//! The verdict of a server behind a URL on the gateway's credentials.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::catalog::name::UpstreamName;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::telemetry::upstream_state::UpstreamState;

/// The verdict of the server's last answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum CredentialStanding {
    /// The server accepts the credentials and processes messages.
    #[default]
    Admitted,
    /// The server requires a login, and the gateway has none.
    NeedsLogin,
    /// The gateway's login is no longer valid.
    LoginExpired,
    /// The server refuses the credential of the configuration, or wants one without saying how to
    /// get it.
    Refused,
}

impl CredentialStanding {
    /// Returns the resulting state of the upstream; `None` if the connection decides it.
    pub const fn state(self) -> Option<UpstreamState> {
        match self {
            Self::Admitted => None,
            Self::NeedsLogin => Some(UpstreamState::NeedsLogin),
            Self::LoginExpired => Some(UpstreamState::LoginExpired),
            Self::Refused => Some(UpstreamState::Refused),
        }
    }

    /// Returns whether a login would help.
    pub fn awaits_login(self) -> bool {
        self.state().is_some_and(UpstreamState::wants_login)
    }
}

/// Creates the failure of a call whose upstream waits for a login.
pub(crate) fn needs_login(upstream: &UpstreamName) -> CallFailure {
    let detail = format!(
        "The server `{upstream}` wants a login, which only the operator of headend can give. The call was not made. \
         Tell the user that a login is needed, and repeat the call afterwards."
    );
    let login = Some(upstream.as_str().into());
    CallFailure { login, ..CallFailure::new(FailureReason::NeedsLogin, ExecutionDoubt::No, detail) }
}

/// A standing that tasks share.
#[derive(Debug, Default)]
pub(crate) struct SharedCredentialStanding {
    standing: AtomicU8,
    changed: Notify,
}

impl SharedCredentialStanding {
    pub(crate) fn get(&self) -> CredentialStanding {
        CredentialStanding::from_repr(self.standing.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Waits for the next change, from this call on.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    /// Sets the standing and returns the previous one.
    pub(crate) fn swap(&self, standing: CredentialStanding) -> CredentialStanding {
        let before = self.standing.swap(standing as u8, Ordering::Relaxed);
        if before != standing as u8 {
            self.changed.notify_waiters();
        }
        CredentialStanding::from_repr(before).unwrap_or_default()
    }
}
