//! The pins that one reading of an upstream's lists changed, for a single record.

use crate::policy::pin::PinState;
use crate::wire::digest::Digest;
use crate::wire::json::raw::RawJson;

/// Most changes of one reading that have a record each.
pub const MAX_SINGLE_CHANGES: usize = 20;

/// One changed pin.
#[derive(Clone, Copy, Debug)]
pub struct ListChange<'a> {
    /// The kind of the item, in one word.
    pub kind: &'static str,
    /// The item's name or URI at its upstream.
    pub name: &'a str,
    /// True if the item had no pin before.
    pub is_added: bool,
    pub state: PinState,
    pub approved: Option<Digest>,
    pub waiting: Option<Digest>,
}

/// Counts of the pins that one reading changed, and a digest over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChanges {
    /// Number of items that were never seen before.
    pub added: u64,
    /// Number of items that were seen before with another definition.
    pub changed: u64,
    /// Number of added and changed items that clients do not see.
    pub withheld: u64,
    /// Number of items that the previous reading had and this one lacks. Their pins stay.
    pub removed: u64,
    /// SHA-256 over one line for each changed pin, see [`Self::new`].
    pub digest: Digest,
}

impl ListChanges {
    /// The result word of the record.
    pub const RESULT: &'static str = "relisted";

    /// Counts changes and digests them: one line `["kind","name","state","approved","waiting"]` for
    /// each, sorted by kind and name, with digests in hexadecimal digits or empty.
    pub fn new(mut changes: Vec<ListChange<'_>>, removed: u64) -> Self {
        changes.sort_unstable_by_key(|change| (change.kind, change.name));
        let count = |is_counted: &dyn Fn(&ListChange<'_>) -> bool| {
            changes.iter().filter(|change| is_counted(change)).count() as u64
        };
        let hex = |digest: Option<Digest>| digest.map(|digest| digest.hex()).unwrap_or_default();
        let mut text = String::new();
        for change in &changes {
            let (state, name) = (change.state.into_str(), RawJson::string(change.name));
            let (approved, waiting) = (hex(change.approved), hex(change.waiting));
            text.push_str(&format!(r#"["{}",{},"{state}","{approved}","{waiting}"]"#, change.kind, name.text()));
            text.push('\n');
        }
        Self {
            added: count(&|change| change.is_added),
            changed: count(&|change| !change.is_added),
            withheld: count(&|change| change.state != PinState::Pinned),
            removed,
            digest: Digest::of(text.as_bytes()),
        }
    }

    /// Returns the number of changed pins.
    pub const fn count(&self) -> u64 {
        self.added + self.changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, is_added: bool, state: PinState) -> ListChange<'_> {
        let (approved, waiting) = (Some(Digest::of(b"old")), Some(Digest::of(name.as_bytes())));
        ListChange { kind: "tool", name, is_added, state, approved, waiting }
    }

    #[test]
    fn changes_are_counted_and_their_digest_is_of_the_documented_lines() {
        let (a, b) = (change("b\"", false, PinState::Changed), change("a", true, PinState::Pinned));
        let all = ListChanges::new(vec![a, b], 7);
        assert_eq!((all.added, all.changed, all.withheld, all.removed, all.count()), (1, 1, 1, 7, 2));
        let (old, x, y) = (Digest::of(b"old").hex(), Digest::of(b"a").hex(), Digest::of(b"b\"").hex());
        let lines = format!(
            "[\"tool\",\"a\",\"pinned\",\"{old}\",\"{x}\"]\n[\"tool\",\"b\\\"\",\"changed\",\"{old}\",\"{y}\"]\n"
        );
        assert_eq!(all.digest, Digest::of(lines.as_bytes()));
        assert_eq!(ListChanges::new(vec![b, a], 7), all, "the order of the steps means nothing");
        let other = ListChange { waiting: None, ..a };
        assert_ne!(ListChanges::new(vec![other, b], 7).digest, all.digest);
    }
}
