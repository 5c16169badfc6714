//! Protocol revisions and the two eras they fall into.

use std::fmt;

/// A published revision of the Model Context Protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// How two sides of one hop talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Era {
    /// Up to 2025-11-25: `initialize`, sessions, requests of the server.
    Legacy,
    /// From 2026-07-28: stateless, `_meta` on every request.
    Modern,
}

impl Revision {
    /// Newest revision that is opened with `initialize`.
    pub(crate) const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// Newest revision at all.
    pub(crate) const LATEST: Self = Self::V2026_07_28;

    pub(crate) const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    pub(crate) fn era(self) -> Era {
        if self >= Self::V2026_07_28 { Era::Modern } else { Era::Legacy }
    }

    /// What to answer a client that asked for `requested` in `initialize`: that revision if it has such a handshake, else the
    /// newest that has. Source: MCP 2025-11-25, basic/lifecycle, "Version Negotiation".
    pub(crate) fn negotiate(requested: &str) -> Self {
        Self::parse(requested).filter(|r| r.era() == Era::Legacy).unwrap_or(Self::LATEST_LEGACY)
    }

    /// Whether a `MCP-Protocol-Version` header speaks of the modern era; unknown future dates and junk count as modern, so
    /// that their sender gets the modern answer with the list of versions.
    pub(crate) fn header_is_modern(header: &str) -> bool {
        header >= Self::V2026_07_28.as_str()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_never_ends_in_a_revision_without_initialize() {
        for (asked, answered) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("9999-99-99", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            assert_eq!(Revision::negotiate(asked).as_str(), answered, "{asked}");
        }
    }

    #[test]
    fn junk_in_the_version_header_counts_as_modern() {
        assert!(Revision::header_is_modern("v999.0.0"));
        assert!(Revision::header_is_modern("2099-01-01"));
        assert!(!Revision::header_is_modern("2025-11-25"));
        assert!(!Revision::header_is_modern("1900-01-01"));
    }
}
