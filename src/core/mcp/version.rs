//! The protocol's revisions: a table of the features that the code needs, and the two eras.
//!
//! A new revision is a variant, an entry in [`Revision::ALL`] and a row with its differences from
//! the row before. No other code compares revisions: it asks for a feature or for the era.

use std::fmt;

use crate::wire::code;

/// A published revision of the Model Context Protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
    /// An invented revision: every unit test runs with a later one, which earlier ones must not
    /// notice.
    #[cfg(test)]
    Later,
}

/// The manner in which the two sides of a hop communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Era {
    /// Up to 2025-11-25: `initialize`, sessions, requests from the server.
    Legacy,
    /// From 2026-07-28: stateless, `_meta` on every request.
    Modern,
}

/// A row of the table of revisions.
#[derive(Debug)]
pub struct RevisionFeatures {
    text: &'static str,
    era: Era,
    /// Batches: several messages in one array.
    pub batch: bool,
    pub event_ids: EventIds,
    /// True if HTTP requests name the revision in `MCP-Protocol-Version`.
    pub version_header: bool,
    /// The capability `completions`; the method is older.
    pub completions: bool,
    /// `message` in progress notifications.
    pub(crate) progress_message: bool,
    /// `annotations` of tools.
    pub annotations: bool,
    /// Content of type `audio`.
    pub(crate) audio: bool,
    /// Content of type `resource_link`.
    pub(crate) resource_links: bool,
    pub(crate) structured: StructuredContent,
    /// `title` and `_meta` of definitions, `title` of implementations.
    pub titles: bool,
    pub(crate) icons: bool,
    /// True if an elicitation has a `mode`, and the choices of a form have titles and defaults.
    pub(crate) elicitation_modes: bool,
    /// True if a page to open has an `elicitationId`, which error -32042 and
    /// `notifications/elicitation/complete` name.
    pub elicitation_ids: bool,
    /// The text before the other members of a complete result.
    pub result_head: &'static str,
    /// The error code for a resource that does not exist.
    pub resource_not_found: i64,
    /// True if servers publish metadata about the issuer of their tokens. In older revisions they
    /// were their own authorization server.
    pub(crate) resource_metadata: bool,
}

/// The ids of events in a session's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventIds {
    /// No ids: clients of this revision cannot resume.
    None,
    Plain,
    /// Ids, and a first event without data, which older clients would take for a broken message.
    Primed,
}

/// The allowed values of `structuredContent` and `outputSchema`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StructuredContent {
    /// Neither member exists.
    None,
    Object,
    Any,
}

const V2024_11_05: RevisionFeatures = RevisionFeatures {
    text: "2024-11-05",
    era: Era::Legacy,
    batch: false,
    event_ids: EventIds::None,
    version_header: false,
    completions: false,
    progress_message: false,
    annotations: false,
    audio: false,
    resource_links: false,
    structured: StructuredContent::None,
    titles: false,
    icons: false,
    elicitation_modes: false,
    elicitation_ids: false,
    result_head: "",
    resource_not_found: code::RESOURCE_NOT_FOUND,
    resource_metadata: false,
};

const V2025_03_26: RevisionFeatures = RevisionFeatures {
    text: "2025-03-26",
    batch: true,
    event_ids: EventIds::Plain,
    completions: true,
    progress_message: true,
    annotations: true,
    audio: true,
    ..V2024_11_05
};

const V2025_06_18: RevisionFeatures = RevisionFeatures {
    text: "2025-06-18",
    batch: false,
    version_header: true,
    resource_links: true,
    structured: StructuredContent::Object,
    titles: true,
    resource_metadata: true,
    ..V2025_03_26
};

const V2025_11_25: RevisionFeatures = RevisionFeatures {
    text: "2025-11-25",
    event_ids: EventIds::Primed,
    icons: true,
    elicitation_modes: true,
    elicitation_ids: true,
    ..V2025_06_18
};

const V2026_07_28: RevisionFeatures = RevisionFeatures {
    text: "2026-07-28",
    era: Era::Modern,
    event_ids: EventIds::None,
    structured: StructuredContent::Any,
    elicitation_ids: false,
    result_head: r#""resultType":"complete","#,
    resource_not_found: code::INVALID_PARAMS,
    ..V2025_11_25
};

#[cfg(test)]
const LATER: RevisionFeatures = RevisionFeatures { text: "2099-12-31", ..V2026_07_28 };

impl Revision {
    pub const ALL: &[Self] = &[
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
        #[cfg(test)]
        Self::Later,
    ];

    pub fn features(self) -> &'static RevisionFeatures {
        match self {
            Self::V2024_11_05 => &V2024_11_05,
            Self::V2025_03_26 => &V2025_03_26,
            Self::V2025_06_18 => &V2025_06_18,
            Self::V2025_11_25 => &V2025_11_25,
            Self::V2026_07_28 => &V2026_07_28,
            #[cfg(test)]
            Self::Later => &LATER,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.features().text
    }

    pub fn era(self) -> Era {
        self.features().era
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|revision| revision.as_str() == text)
    }

    /// Returns the revisions of an era, oldest first.
    pub fn of(era: Era) -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |revision| revision.era() == era)
    }

    /// Returns the revision that headend asks for first; the response names the others that the
    /// server speaks. For the modern era it is the oldest, so that its servers get an unchanged
    /// request when more revisions follow.
    pub fn preferred(era: Era) -> Self {
        match era {
            Era::Legacy => Self::V2025_11_25,
            Era::Modern => Self::V2026_07_28,
        }
    }

    /// Returns the revision for the response to `initialize` with `requested`: that revision if it
    /// has such a handshake, else the newest that has. Source: MCP 2025-11-25, basic/lifecycle,
    /// "Version Negotiation".
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested).filter(|r| r.era() == Era::Legacy).unwrap_or(Self::preferred(Era::Legacy))
    }

    /// Reports whether a `MCP-Protocol-Version` header means the modern era. Unknown future dates
    /// and junk count as modern, so that their sender gets the modern error with the list of
    /// versions.
    pub(crate) fn header_is_modern(header: &str) -> bool {
        Self::of(Era::Modern).next().is_some_and(|oldest| header >= oldest.as_str())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
            (LATER.text, "2025-11-25"),
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
        assert!(Revision::header_is_modern("2026-07-28"));
        assert!(!Revision::header_is_modern("2025-11-25"));
        assert!(!Revision::header_is_modern("1900-01-01"));
    }

    #[test]
    fn a_later_revision_moves_no_other() {
        assert!(Revision::ALL.is_sorted_by_key(|revision| (revision.era() == Era::Modern, revision.as_str())));
        assert!(Revision::ALL.is_sorted());
        assert_eq!(Revision::preferred(Era::Legacy).as_str(), "2025-11-25");
        assert_eq!(Revision::preferred(Era::Modern).as_str(), "2026-07-28");
        assert_eq!(Revision::of(Era::Modern).next(), Some(Revision::V2026_07_28));
        assert_eq!(Revision::of(Era::Legacy).next_back(), Some(Revision::V2025_11_25));
    }

    #[test]
    fn what_one_revision_has_alone_its_successors_do_not_inherit() {
        let having = |feature: fn(&RevisionFeatures) -> bool| -> Vec<&str> {
            Revision::ALL.iter().map(|r| r.features()).filter(|row| feature(row)).map(|row| row.text).collect()
        };
        assert_eq!(having(|row| row.batch), ["2025-03-26"]);
        assert_eq!(having(|row| row.elicitation_ids), ["2025-11-25"]);
        assert_eq!(having(|row| row.event_ids == EventIds::Plain), ["2025-03-26", "2025-06-18"]);
        assert_eq!(having(|row| row.event_ids == EventIds::Primed), ["2025-11-25"]);
        assert_eq!(having(|row| row.structured == StructuredContent::Object), ["2025-06-18", "2025-11-25"]);
    }
}
