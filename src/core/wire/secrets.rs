//! Secrets that keys are made of: the one that seals, and earlier ones, whose values still open.

use std::fmt;

/// One secret that seals, and those that only open.
#[derive(Clone)]
pub struct Secrets {
    pub current: [u8; 32],
    pub earlier: Vec<[u8; 32]>,
}

impl Secrets {
    /// One that has no predecessors.
    pub const fn new(current: [u8; 32]) -> Self {
        Self { current, earlier: Vec::new() }
    }

    /// All of them, the current one first.
    pub fn all(&self) -> impl Iterator<Item = &[u8; 32]> {
        std::iter::once(&self.current).chain(&self.earlier)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", 1 + self.earlier.len())
    }
}
