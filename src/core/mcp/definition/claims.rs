//! Claims: the hints that a server states in the pinned definition of a tool, for rules that rely
//! on them.

use crate::mcp::definition::annotations::Hints;
use crate::mcp::definition::item::Definition;

/// The trust that the pin of a tool gives it. The default is for a tool without a pin: new and
/// doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinStatus {
    /// True if the tool appeared after the first inventory of its upstream's launch, and no
    /// operator has confirmed it.
    pub is_new: bool,
    /// True if the pinned definition was in doubt when it was first seen.
    pub is_doubtful: bool,
}

impl PinStatus {
    /// A tool that is neither new nor in doubt.
    pub const KNOWN: Self = Self { is_new: false, is_doubtful: false };
}

impl Default for PinStatus {
    fn default() -> Self {
        Self { is_new: true, is_doubtful: true }
    }
}

/// The claims of a tool's pinned definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    pub hints: Hints,
    /// True if an allow rule may rely on the hints.
    pub may_open: bool,
}

impl Claims {
    /// Reads the claims of a definition. `is_heard`: the claims of this upstream may open something
    /// at all.
    pub fn of(definition: &Definition, standing: PinStatus, is_heard: bool) -> Self {
        let hints = Hints::unmistakable(&definition.raw);
        let is_sound = definition.repairs.is_empty()
            && definition.fault.is_none()
            && !definition.hides
            && !definition.bad_headers
            && !standing.is_doubtful;
        // A tool that claims only to read and also to delete contradicts itself.
        let is_at_odds = hints.read_only == Some(true) && hints.destructive == Some(true);
        Self { hints, may_open: is_heard && is_sound && !is_at_odds && !standing.is_new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::method::ItemList;
    use crate::wire::json::raw::RawJson;

    #[test]
    fn only_a_sound_known_and_consistent_definition_may_open_anything() {
        let new = PinStatus { is_new: true, ..PinStatus::KNOWN };
        let doubtful = PinStatus { is_doubtful: true, ..PinStatus::KNOWN };
        let reads = r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
        for (label, text, standing, is_heard, may_open) in [
            ("sound and known", reads, PinStatus::KNOWN, true, true),
            ("an untrusted upstream", reads, PinStatus::KNOWN, false, false),
            ("new", reads, new, true, false),
            ("in doubt", reads, doubtful, true, false),
            ("without a pin", reads, PinStatus::default(), true, false),
            ("repaired", r#"{"name":"a","annotations":{"readOnlyHint":true}}"#, PinStatus::KNOWN, true, false),
            (
                "faulty",
                r#"{"name":"a","inputSchema":7,"annotations":{"readOnlyHint":true}}"#,
                PinStatus::KNOWN,
                true,
                false,
            ),
            (
                "hidden text",
                r#"{"name":"a\u200b","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#,
                PinStatus::KNOWN,
                true,
                false,
            ),
            (
                "at odds with itself",
                r#"{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":true}}"#,
                PinStatus::KNOWN,
                true,
                false,
            ),
        ] {
            let definition = Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap();
            assert_eq!(Claims::of(&definition, standing, is_heard).may_open, may_open, "{label}");
        }
    }
}
