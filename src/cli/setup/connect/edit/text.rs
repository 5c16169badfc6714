//! The texts of entries, as the editors of all formats take and give them.

/// An entry of a list as it stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::cli::setup::connect) struct EntryText {
    pub(in crate::cli::setup::connect) text: String,
    /// The comment behind it in its line.
    pub(in crate::cli::setup::connect) tail: String,
}

/// A new entry: its members in order.
#[derive(Clone, Debug)]
pub(in crate::cli::setup::connect) struct EntryMembers(
    pub(in crate::cli::setup::connect) Vec<(&'static str, serde_json::Value)>,
);

impl serde::Serialize for EntryMembers {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Returns the line end of a text.
pub(super) fn end_of_line(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}
