//! Tool annotations: the hints of a definition, and the effective hints that clients see.

use crate::wire::raw::{RawJson, RawObject};

/// Key of the upstream's own claims when clients see other hints.
const CLAIMED: &str = "headend/claimed-annotations";

const NAMES: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// The effective hints, for policy and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Annotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
    /// The upstream or the operator says that the tool is destructive, as opposed to no hint at all. Only then does the
    /// tool need the evidence of a destructive one.
    pub known_destructive: bool,
}

impl Annotations {
    /// The protocol's defaults for a tool without hints.
    pub const ASSUMED: Self =
        Self { read_only: false, destructive: true, idempotent: false, open_world: true, known_destructive: false };
}

impl Default for Annotations {
    fn default() -> Self {
        Self::ASSUMED
    }
}

/// Hints as stated: by the server in a definition, or by the operator in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl Hints {
    /// The hints of a definition. A value that is not a boolean states nothing.
    pub fn of(definition: &RawObject) -> Self {
        let stated = definition.object("annotations").unwrap_or_default();
        let hint = |name| stated.get(name).and_then(|raw| raw.parse::<bool>().ok());
        let [read_only, destructive, idempotent, open_world] = NAMES.map(hint);
        Self { read_only, destructive, idempotent, open_world }
    }

    pub const fn is_empty(&self) -> bool {
        self.read_only.is_none() && self.destructive.is_none() && self.idempotent.is_none() && self.open_world.is_none()
    }
}

/// Shows clients the effective hints of a tool with annotations, and its server's claims in `_meta`. A definition whose
/// claims equal the effective hints keeps its bytes; a tool without annotations gets none.
pub fn show(definition: &mut RawObject, effective: &Annotations) {
    let Some(claimed) = definition.get("annotations").cloned() else { return };
    let Some(mut shown) = definition.object("annotations") else { return };
    let values = [effective.read_only, effective.destructive, effective.idempotent, effective.open_world];
    let assumed = Annotations::ASSUMED;
    let defaults = [assumed.read_only, assumed.destructive, assumed.idempotent, assumed.open_world];
    let mut differs = false;
    // Some readers ignore the case of keys, and would find the claim under such a key.
    shown.retain(|key| {
        let kept = NAMES.contains(&key) || !NAMES.iter().any(|name| name.eq_ignore_ascii_case(key));
        differs |= !kept;
        kept
    });
    for ((name, value), default) in NAMES.into_iter().zip(values).zip(defaults) {
        // The protocol gives these two no meaning for a read-only tool.
        let is_moot = effective.read_only && matches!(name, "destructiveHint" | "idempotentHint");
        let understood = match shown.get(name) {
            Some(raw) => raw.parse::<bool>().ok(),
            None if is_moot => Some(value),
            None => Some(default),
        };
        if understood != Some(value) {
            shown.set(name, RawJson::boolean(value));
            differs = true;
        }
    }
    if differs {
        let meta = definition.object("_meta");
        let mut meta = meta.unwrap_or_default();
        meta.set(CLAIMED, claimed);
        definition.set("annotations", shown.encode());
        definition.set("_meta", meta.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(definition: &'static str, effective: Annotations) -> String {
        let mut object = RawObject::parse(&RawJson::trusted(definition)).unwrap();
        show(&mut object, &effective);
        object.encode().text().into_owned()
    }

    const READS: Annotations = Annotations { read_only: true, destructive: false, ..Annotations::ASSUMED };

    #[test]
    fn claims_that_come_to_the_same_keep_their_bytes() {
        for (label, text, effective) in [
            ("no annotations", r#"{"name":"a"}"#, READS),
            ("none that count", r#"{"name":"a","annotations":{ "title" : "A"}}"#, Annotations::ASSUMED),
            (
                "the defaults",
                r#"{"annotations":{ "destructiveHint":true, "readOnlyHint" : false }}"#,
                Annotations::ASSUMED,
            ),
            ("read only", r#"{"annotations":{"readOnlyHint":true}}"#, READS),
            ("no object", r#"{"annotations":7}"#, READS),
        ] {
            assert_eq!(shown(text, effective), text, "{label}");
        }
    }

    #[test]
    fn claims_that_differ_are_replaced_and_kept_aside() {
        for (label, text, effective, want) in [
            (
                "a claim that is not believed",
                r#"{"name":"a","annotations":{"title":"A","readOnlyHint":true}}"#,
                Annotations::ASSUMED,
                r#"{"name":"a","annotations":{"title":"A","readOnlyHint":false},"_meta":{"headend/claimed-annotations":{"title":"A","readOnlyHint":true}}}"#,
            ),
            (
                "the operator's word for what is not stated",
                r#"{"annotations":{"title":"A"},"_meta":{"x":1}}"#,
                Annotations { destructive: false, ..Annotations::ASSUMED },
                r#"{"annotations":{"title":"A","destructiveHint":false},"_meta":{"x":1,"headend/claimed-annotations":{"title":"A"}}}"#,
            ),
            (
                "a hint of another type",
                r#"{"annotations":{"readOnlyHint":"yes"}}"#,
                Annotations::ASSUMED,
                r#"{"annotations":{"readOnlyHint":false},"_meta":{"headend/claimed-annotations":{"readOnlyHint":"yes"}}}"#,
            ),
            (
                "a hint in other letters",
                r#"{"annotations":{"ReadOnlyHint":true}}"#,
                Annotations::ASSUMED,
                r#"{"annotations":{},"_meta":{"headend/claimed-annotations":{"ReadOnlyHint":true}}}"#,
            ),
        ] {
            assert_eq!(shown(text, effective), want, "{label}");
        }
    }
}
