//! States of upstreams, under the words that status, console and metrics use for them.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// State of an upstream.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamState {
    /// Lazy and not running: its first call starts it.
    #[default]
    Idle,
    Starting,
    Ready,
    /// The server requires a login, and there is none.
    NeedsLogin,
    /// The login ended or was revoked.
    LoginExpired,
    /// The server refuses the credential of the configuration.
    Refused,
    /// The last start failed for a reason that the operator has to fix.
    Misconfigured,
    Down,
    /// Ended on purpose: the upstream was removed, or headend is ending.
    Stopped,
    /// Switched off by the configuration or the operator. This state has no metrics.
    Disabled,
}

impl UpstreamState {
    /// Returns whether calls of the upstream may succeed: it is ready, is starting, or starts with
    /// its first call.
    pub const fn is_working(self) -> bool {
        matches!(self, Self::Idle | Self::Starting | Self::Ready)
    }

    /// Returns whether the upstream should work and does not. An upstream that was ended on purpose
    /// has not failed.
    pub const fn has_failed(self) -> bool {
        !self.is_working() && !matches!(self, Self::Stopped | Self::Disabled)
    }

    /// Returns whether a login would end the state.
    pub const fn wants_login(self) -> bool {
        matches!(self, Self::NeedsLogin | Self::LoginExpired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_works_or_has_failed_or_was_ended_on_purpose() {
        let table: Vec<(&str, bool, bool)> = UpstreamState::VARIANTS
            .iter()
            .map(|state| (state.into_str(), state.is_working(), state.has_failed()))
            .collect();
        assert_eq!(
            table,
            [
                ("idle", true, false),
                ("starting", true, false),
                ("ready", true, false),
                ("needs-login", false, true),
                ("login-expired", false, true),
                ("refused", false, true),
                ("misconfigured", false, true),
                ("down", false, true),
                ("stopped", false, false),
                ("disabled", false, false),
            ]
        );
    }

    #[test]
    fn a_state_is_read_from_its_word() {
        for state in UpstreamState::VARIANTS {
            assert_eq!(state.into_str().parse(), Ok(*state));
        }
        assert!("resting".parse::<UpstreamState>().is_err());
    }
}
