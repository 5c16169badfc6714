//! How strong the evidence is that a person agreed.

/// Who vouches for a consent. Ordered: what suffices for a lower level suffices from a higher one too.
///
/// Level 0, a rule of the configuration, needs no consent and is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Evidence {
    /// L1: the client says that its user agreed, which may be the agent itself.
    Client,
    /// L2: a person who signed in to the console.
    Page,
    /// L3: the operator, on the admin socket or with access to the state directory.
    Operator,
}

impl Evidence {
    /// As the configuration and the audit log write it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "L1",
            Self::Page => "L2",
            Self::Operator => "L3",
        }
    }

    /// Reads what [`Self::as_str`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Client, Self::Page, Self::Operator].into_iter().find(|level| level.as_str() == text)
    }
}
