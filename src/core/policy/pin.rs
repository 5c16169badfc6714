//! Pins: which text of a definition, and which launch of a server, clients may meet. A pure state machine; `now`, texts and
//! disks are its users' matter.
//!
//! | state | event | state after it |
//! |---|---|---|
//! | unseen | seen, upstream trusted or standard, no doubt | pinned (digest) |
//! | unseen | seen, upstream untrusted, or a doubt | quarantined (digest) |
//! | quarantined | seen with any digest | quarantined (that digest) |
//! | pinned | seen with the pinned digest | pinned |
//! | pinned, changed | seen with another digest | changed (the pin stays, the other waits) |
//! | pinned, changed | the same, `on-change = "accept"`, no doubt | pinned (new digest) |
//! | changed, rejected | seen with the pinned digest | pinned (what waited is forgotten) |
//! | quarantined, changed, rejected | approved with the digest that waits | pinned (that digest) |
//! | quarantined, changed | rejected with the digest that waits | rejected (that digest; an older pin stays) |
//! | pinned | rejected with the pinned digest | rejected (that digest) |
//! | rejected | seen with the rejected digest | rejected |
//! | rejected | seen with another digest | quarantined, or changed where there is a pin |
//! | any | approved or rejected with another digest | as before: what was shown is not what waits |
//! | any | gone from the list | as before, so that removing and adding launders nothing |
//!
//! Only in the state *pinned*, and only with the pinned digest, does a client see the item.
//!
//! Launches use the same machine. They are first seen in the words of the configuration, which the operator wrote, so the first
//! is pinned whatever the trust; other words in the configuration are [`Pin::named`]; the same words that lead to another
//! program are a change like any other, and nothing accepts it silently.
//!
//! `store::pins` keeps the pins, in memory and in the table `pins`. `gateway::supervisor::pinned` applies them in one
//! place, between the lists of upstreams and the merge. Everything that clients see is made after it, so lists, calls,
//! completions, profiles and the catalog of an earlier run need no checks of their own; a template does not reach a
//! resource that waits either. Every start of an upstream passes a gate (`store::pins::launch`). When a pin ends, the
//! grants for its digest end and the open approvals about it close.
//!
//! Definitions are pinned after cleaning (`mcp::item::hygiene`) and repair (`mcp::item::repair`), so a change of nothing but hidden
//! characters in a title is none. Order that means nothing (`mcp::item::order`) is not in the digest; clients get the order of the
//! pinned text. `store::pins::forms` knows older digests by their texts. A launch is the words of the configuration and the place in `PATH` that they lead to. Symbolic links
//! are not followed, since package managers move their targets, and the program's content is not read.

use crate::policy::{Digest, Trust};

/// What happens when a definition changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum OnChange {
    /// It waits for approval.
    #[default]
    Quarantine,
    /// It is pinned anew.
    Accept,
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, serde::Serialize, serde::Deserialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    Pinned,
    /// Never approved.
    Quarantined,
    /// An older text was approved.
    Changed,
    Rejected,
}

/// The pin of one definition or launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    approved: Option<Digest>,
    waiting: Option<Digest>,
    rejected: bool,
}

/// Why an approval or rejection did not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    #[error("nothing waits for approval under that name")]
    NothingWaits,
    #[error("it changed again after it was shown; see `headend pins diff` again")]
    ChangedSince,
}

impl Pin {
    /// A definition that was never seen before.
    pub fn first(digest: Digest, trust: Trust, doubtful: bool) -> Self {
        if trust == Trust::Untrusted || doubtful { Self::waiting_for(None, digest) } else { Self::at(digest) }
    }

    /// A pin on this digest.
    pub const fn at(digest: Digest) -> Self {
        Self { approved: Some(digest), waiting: None, rejected: false }
    }

    const fn waiting_for(approved: Option<Digest>, digest: Digest) -> Self {
        Self { approved, waiting: Some(digest), rejected: false }
    }

    /// Reads what was kept; `None` for what no state looks like.
    pub const fn restore(approved: Option<Digest>, waiting: Option<Digest>, rejected: bool) -> Option<Self> {
        if (approved.is_none() || rejected) && waiting.is_none() {
            return None;
        }
        Some(Self { approved, waiting, rejected })
    }

    /// The upstream shows the item with this digest.
    pub fn see(self, digest: Digest, on_change: OnChange, doubtful: bool) -> Self {
        if self.approved == Some(digest) {
            return Self::at(digest);
        }
        if self.rejected {
            return if self.waiting == Some(digest) { self } else { Self::waiting_for(self.approved, digest) };
        }
        match (self.approved, on_change) {
            (Some(_), OnChange::Accept) if !doubtful => Self::at(digest),
            (approved, _) => Self::waiting_for(approved, digest),
        }
    }

    /// The operator's own configuration names something else. Only an untrusted upstream's waits even then.
    pub fn named(self, digest: Digest, trust: Trust) -> Self {
        if trust == Trust::Untrusted { self.see(digest, OnChange::Quarantine, false) } else { Self::at(digest) }
    }

    /// The operator approves the shown text.
    ///
    /// # Errors
    /// [`Undecided`]; the pin is as before.
    pub fn approve(self, shown: Digest) -> Result<Self, Undecided> {
        match self.waiting {
            None => Err(Undecided::NothingWaits),
            Some(waiting) if waiting == shown => Ok(Self::at(waiting)),
            Some(_) => Err(Undecided::ChangedSince),
        }
    }

    /// The operator rejects the shown text, which may be the pinned one.
    ///
    /// # Errors
    /// [`Undecided`]; the pin is as before.
    pub fn reject(self, shown: Digest) -> Result<Self, Undecided> {
        match (self.waiting, self.approved) {
            (Some(waiting), approved) if waiting == shown => {
                Ok(Self { approved, waiting: Some(waiting), rejected: true })
            }
            (None, Some(approved)) if approved == shown => {
                Ok(Self { approved: None, waiting: Some(approved), rejected: true })
            }
            _ => Err(Undecided::ChangedSince),
        }
    }

    /// Whether clients may see a text of this digest.
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
