//! Secrets from which sealing keys are derived: the current one, and earlier ones whose values
//! still open.

use std::fmt;

/// A secret that seals, and earlier ones that only open.
#[derive(Clone)]
pub struct SealSecrets {
    pub current: [u8; 32],
    pub earlier: Vec<[u8; 32]>,
}

impl SealSecrets {
    /// Creates a set without earlier secrets.
    pub const fn new(current: [u8; 32]) -> Self {
        Self { current, earlier: Vec::new() }
    }

    /// Returns all secrets, the current one first.
    pub fn all(&self) -> impl Iterator<Item = &[u8; 32]> {
        std::iter::once(&self.current).chain(&self.earlier)
    }
}

impl fmt::Debug for SealSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", 1 + self.earlier.len())
    }
}
