//! Three-valued truth: readers may understand the same text differently.

/// Whether a matcher matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(in crate::policy) enum Truth {
    No,
    /// The same text may mean things that the matchers tell apart.
    Unknown,
    Yes,
}

impl Truth {
    pub(in crate::policy) const fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
            Self::Yes => Self::No,
        }
    }

    /// Whether both are so.
    pub(in crate::policy) fn and(self, other: Self) -> Self {
        self.min(other)
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::Yes } else { Self::No }
    }
}
