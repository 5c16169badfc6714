//! What a tool is held to do: its upstream's hints, which are claims, under what the operator says.

/// The hints that policy and clients go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Annotations {
    pub(crate) read_only: bool,
    pub(crate) destructive: bool,
    pub(crate) idempotent: bool,
    pub(crate) open_world: bool,
    /// Its upstream or the operator says that it is destructive, rather than nobody saying anything. Only then does it need
    /// the evidence of a destructive tool.
    pub(crate) known_destructive: bool,
}

impl Default for Annotations {
    /// What the protocol assumes of a tool without hints.
    fn default() -> Self {
        Self { read_only: false, destructive: true, idempotent: false, open_world: true, known_destructive: false }
    }
}
