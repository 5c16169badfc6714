//! Pins: the approved text of each definition and the approved launch of each server. A pure state
//! machine; time, texts and disks are its users' matter.
//!
//! | state | event | state after it |
//! |---|---|---|
//! | unseen | seen, upstream trusted or standard, no doubt | pinned (digest) |
//! | unseen | seen, upstream untrusted, or a doubt | quarantined (digest) |
//! | quarantined | seen with any digest | quarantined (that digest) |
//! | pinned | seen with the pinned digest | pinned |
//! | pinned, changed | seen with another digest | changed (pin stays, the other waits) |
//! | pinned, changed | the same, `on-change = "accept"`, no doubt | pinned (new digest) |
//! | changed, rejected | seen with the pinned digest | pinned (waiting one forgotten) |
//! | quarantined, changed, rejected | approved with the waiting digest | pinned (that digest) |
//! | quarantined, changed | rejected with the waiting digest | rejected (pin stays, if any) |
//! | pinned | rejected with the pinned digest | rejected (that digest) |
//! | rejected | seen with the rejected digest | rejected |
//! | rejected | seen with another digest | quarantined, or changed if pinned |
//! | any | approved or rejected with another digest | as before |
//! | any | gone from the list | as before |
//!
//! Another digest on approval or rejection means that the shown text is not the waiting one. A pin
//! outlives its item, so removing and adding an item does not clear it.
//!
//! A client sees the item only in the state *pinned*, and only with the pinned digest.
//!
//! Launches use the same machine. The words of a launch come from the configuration, which the
//! operator wrote, so the first one is pinned for any trust, and other words in the configuration
//! are [`Pin::named`]. The same words that lead to another program are a change like any other, and
//! nothing accepts it silently.
//!
//! Definitions are pinned after cleaning (`mcp::item::hygiene`) and repair (`mcp::item::repair`),
//! so a change of nothing but hidden characters in a title is none. Order that means nothing
//! (`mcp::item::order`) is not in the digest; clients get the order of the pinned text.
//! `store::pin_record::forms` knows older digests by their texts. A launch is the words of the
//! configuration and the place in `PATH` that they lead to. Symbolic links are not followed, since
//! package managers move their targets, and the program's content is not read.

use crate::policy::facts::annotations::UpstreamTrust;
use crate::wire::digest::Digest;

/// The reaction to a changed definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum ChangePolicy {
    /// The new definition waits for approval.
    #[default]
    Quarantine,
    /// The new definition is pinned.
    Accept,
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, serde::Serialize, serde::Deserialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    Pinned,
    /// A text waits, and no text is approved.
    Quarantined,
    /// A text waits, and an older one is approved.
    Changed,
    /// The waiting text was rejected.
    Rejected,
}

/// The pin of one definition or launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    approved: Option<Digest>,
    waiting: Option<Digest>,
    rejected: bool,
}

/// The reason why an approval or rejection did not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinDecisionError {
    #[error("nothing waits for approval under that name")]
    NothingWaits,
    #[error("it changed again after it was shown; see `headend pins diff` again")]
    ChangedSince,
}

impl Pin {
    /// Returns the pin of a definition that was never seen before.
    pub fn first(digest: Digest, trust: UpstreamTrust, doubtful: bool) -> Self {
        if trust == UpstreamTrust::Untrusted || doubtful { Self::waiting_for(None, digest) } else { Self::at(digest) }
    }

    /// Returns a pin that approves this digest.
    pub const fn at(digest: Digest) -> Self {
        Self { approved: Some(digest), waiting: None, rejected: false }
    }

    /// Returns a pin whose `digest` waits for approval.
    const fn waiting_for(approved: Option<Digest>, digest: Digest) -> Self {
        Self { approved, waiting: Some(digest), rejected: false }
    }

    /// Restores a stored pin; `None` if it has no valid state.
    pub const fn restore(approved: Option<Digest>, waiting: Option<Digest>, rejected: bool) -> Option<Self> {
        if (approved.is_none() || rejected) && waiting.is_none() {
            return None;
        }
        Some(Self { approved, waiting, rejected })
    }

    /// Returns the pin after the upstream showed the item with this digest.
    pub fn see(self, digest: Digest, on_change: ChangePolicy, doubtful: bool) -> Self {
        if self.approved == Some(digest) {
            return Self::at(digest);
        }
        if self.rejected {
            return if self.waiting == Some(digest) { self } else { Self::waiting_for(self.approved, digest) };
        }
        match (self.approved, on_change) {
            (Some(_), ChangePolicy::Accept) if !doubtful => Self::at(digest),
            (approved, _) => Self::waiting_for(approved, digest),
        }
    }

    /// Returns the pin after the operator's configuration named another launch. For an untrusted
    /// upstream even that waits for approval.
    pub fn named(self, digest: Digest, trust: UpstreamTrust) -> Self {
        if trust == UpstreamTrust::Untrusted {
            self.see(digest, ChangePolicy::Quarantine, false)
        } else {
            Self::at(digest)
        }
    }

    /// Returns the pin after the operator approved the shown text.
    ///
    /// # Errors
    /// [`PinDecisionError`]; the pin is as before.
    pub fn approve(self, shown: Digest) -> Result<Self, PinDecisionError> {
        match self.waiting {
            None => Err(PinDecisionError::NothingWaits),
            Some(waiting) if waiting == shown => Ok(Self::at(waiting)),
            Some(_) => Err(PinDecisionError::ChangedSince),
        }
    }

    /// Returns the pin after the operator rejected the shown text, which may be the pinned one.
    ///
    /// # Errors
    /// [`PinDecisionError`]; the pin is as before.
    pub fn reject(self, shown: Digest) -> Result<Self, PinDecisionError> {
        match (self.waiting, self.approved) {
            (Some(waiting), approved) if waiting == shown => {
                Ok(Self { approved, waiting: Some(waiting), rejected: true })
            }
            (None, Some(approved)) if approved == shown => {
                Ok(Self { approved: None, waiting: Some(approved), rejected: true })
            }
            _ => Err(PinDecisionError::ChangedSince),
        }
    }

    /// Whether clients may see a text with this digest.
    pub fn shows(&self, digest: Digest) -> bool {
        self.waiting.is_none() && self.approved == Some(digest)
    }

    pub const fn state(&self) -> PinState {
        match (self.approved, self.waiting) {
            (_, None) => PinState::Pinned,
            (_, Some(_)) if self.rejected => PinState::Rejected,
            (Some(_), Some(_)) => PinState::Changed,
            (None, Some(_)) => PinState::Quarantined,
        }
    }

    pub const fn approved(&self) -> Option<Digest> {
        self.approved
    }

    pub const fn waiting(&self) -> Option<Digest> {
        self.waiting
    }
}

#[cfg(test)]
mod tests;
