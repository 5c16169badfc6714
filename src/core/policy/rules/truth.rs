//! Three-valued truth, for texts that servers may understand differently.

/// Whether a matcher or a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(in crate::policy) enum Truth {
    No,
    /// It may match or not, depending on how the server understands the text.
    Unknown,
    Yes,
}

impl Truth {
    /// Returns the opposite. Unknown stays unknown.
    pub(in crate::policy) const fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
            Self::Yes => Self::No,
        }
    }

    /// Returns the weaker of the two: yes only if both are.
    pub(in crate::policy) fn and(self, other: Self) -> Self {
        self.min(other)
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::Yes } else { Self::No }
    }
}
