//! The evidence for an answer: who vouches that a person agreed.

use strum::{EnumString, IntoStaticStr, VariantArray};

/// The level of evidence for a yes. Ordered: a higher level suffices wherever a lower one does.
///
/// Level 0, a rule of the configuration, needs no approval and is not here.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, IntoStaticStr, VariantArray, serde::Serialize,
)]
#[strum(const_into_str)]
#[serde(into = "&'static str")]
pub enum ApprovalEvidence {
    /// L1: the client says that its user agreed. The agent itself may have said so.
    #[strum(serialize = "L1")]
    Client,
    /// L2: a person who signed in to the console.
    #[strum(serialize = "L2")]
    Page,
    /// L3: the operator, on the admin socket or with access to the state directory.
    #[strum(serialize = "L3")]
    Operator,
}
