//! Tool annotations: the hints of a definition, the ones that policy uses, and the ones that
//! clients see.

use crate::wire::json::raw::{RawJson, RawObject};

/// The `_meta` key that holds the upstream's own annotations if clients see other hints.
const CLAIMED: &str = "headend/claimed-annotations";

const ANNOTATIONS: &str = "annotations";
const NAMES: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// The promising value of each hint, in the order of [`NAMES`].
const HARMLESS: [bool; 4] = [true, false, true, false];

/// The effective hints of a tool, for policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Annotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
    /// True if the upstream or the operator states that the tool is destructive; without any hint
    /// it is only assumed to be. The evidence for a destructive tool is demanded in the first case
    /// only.
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

/// The hints that one side states: the server in a definition, or the operator in the
/// configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Hints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl Hints {
    /// Reads the hints of a definition. A value that is not a boolean states nothing.
    pub fn of(definition: &RawObject) -> Self {
        let stated = definition.object(ANNOTATIONS).unwrap_or_default();
        let hint = |name| stated.get(name).and_then(|raw| raw.parse::<bool>().ok());
        let [read_only, destructive, idempotent, open_world] = NAMES.map(hint);
        Self { read_only, destructive, idempotent, open_world }
    }

    pub const fn is_empty(&self) -> bool {
        self.read_only.is_none() && self.destructive.is_none() && self.idempotent.is_none() && self.open_world.is_none()
    }

    /// Returns the hints in the order of their protocol names: read-only, destructive, idempotent,
    /// open-world.
    pub const fn values(&self) -> [Option<bool>; 4] {
        [self.read_only, self.destructive, self.idempotent, self.open_world]
    }

    /// Describes the hints in words for a person.
    fn words(&self) -> Vec<&'static str> {
        let mut words = Vec::new();
        match (self.read_only, self.destructive) {
            (Some(true), _) => words.push("only reads"),
            (Some(false), Some(false)) => words.push("changes things, deletes nothing"),
            (Some(false), None) => words.push("changes things"),
            (Some(false), Some(true)) => {}
            (None, Some(false)) => words.push("deletes nothing"),
            (None, _) => {}
        }
        if self.destructive == Some(true) {
            words.push("may delete or overwrite");
        }
        match self.open_world {
            Some(true) => words.push("may reach outside"),
            Some(false) => words.push("on this machine"),
            None => {}
        }
        words
    }

    /// Describes all hints in words for a person.
    fn all_words(&self) -> Vec<&'static str> {
        self.words().into_iter().chain(self.repetition()).collect()
    }

    /// Describes the effect of a repeated call in words for a person.
    fn repetition(&self) -> Option<&'static str> {
        let is_moot = self.read_only == Some(true);
        self.idempotent
            .filter(|_| !is_moot)
            .map(|is| if is { "the same call again changes no more" } else { "each call changes more" })
    }

    /// Reads the hints of a definition as readers do that ignore the case of keys. If several keys
    /// match, the more promising value counts.
    pub fn in_any_case(definition: &RawObject) -> Self {
        let mut hints = Self::of(definition);
        let spellings =
            |object: &RawObject, name: &str| [vec![name.to_owned()], other_spellings(object, name)].concat();
        for stated in spellings(definition, ANNOTATIONS).iter().filter_map(|key| definition.object(key)) {
            for ((name, hint), harmless) in NAMES.into_iter().zip(hints.each()).zip(HARMLESS) {
                let says = |key: &String| stated.get(key).and_then(|raw| raw.parse::<bool>().ok());
                if spellings(&stated, name).iter().any(|key| says(key) == Some(harmless)) {
                    *hint = Some(harmless);
                }
            }
        }
        hints
    }

    /// Reads the hints of a definition that all readers understand equally, whether they ignore the
    /// case of keys or not.
    pub fn unmistakable(definition: &RawObject) -> Self {
        let mut hints = Self::of(definition);
        if !other_spellings(definition, ANNOTATIONS).is_empty() {
            return Self::default();
        }
        let stated = definition.object(ANNOTATIONS).unwrap_or_default();
        for (name, hint) in NAMES.into_iter().zip(hints.each()) {
            if !other_spellings(&stated, name).is_empty() {
                *hint = None;
            }
        }
        hints
    }

    /// Returns references to the hints, in the order of [`Self::values`].
    fn each(&mut self) -> [&mut Option<bool>; 4] {
        [&mut self.read_only, &mut self.destructive, &mut self.idempotent, &mut self.open_world]
    }

    /// Reports whether these hints promise something that `before`, for the same tool, did not, or
    /// take back its warning.
    pub fn loosen(&self, before: &Self) -> bool {
        let pairs = self.values().into_iter().zip(before.values()).zip(HARMLESS);
        let promises = |((now, before), harmless)| now == Some(harmless) && before != Some(harmless);
        pairs.into_iter().any(promises) || (before.destructive == Some(true) && self.destructive != Some(true))
    }
}

impl From<Annotations> for Hints {
    fn from(annotations: Annotations) -> Self {
        let Annotations { read_only, destructive, idempotent, open_world, .. } = annotations;
        Self {
            read_only: Some(read_only),
            destructive: Some(destructive),
            idempotent: Some(idempotent),
            open_world: Some(open_world),
        }
    }
}

/// The source of a server's hint, for a person.
const SERVER: &str = "the server says so";
/// The source of an operator's hint, for a person.
const OPERATOR: &str = "your configuration says so";
/// The description of a server without hints.
const SERVER_SILENT: &str = "the server says nothing";

/// Joins the words of hints with their source; `None` if there are no words.
fn stated(words: &[&str], source: &str) -> Option<String> {
    (!words.is_empty()).then(|| format!("{} ({source})", words.join(", ")))
}

/// The hints on a tool as the server and the operator state them. Neither is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedHints {
    /// The hints in the definition.
    pub server: Hints,
    /// The hints in the configuration.
    pub operator: Hints,
}

impl StatedHints {
    /// Describes the server's hints as claims, for a person, without the effect of a repeated call.
    pub fn by_server(&self) -> String {
        stated(&self.server.words(), SERVER).unwrap_or_else(|| SERVER_SILENT.to_owned())
    }

    /// Describes the operator's hints, without the effect of a repeated call; `None` if there are
    /// none.
    pub fn by_operator(&self) -> Option<String> {
        stated(&self.operator.words(), OPERATOR)
    }

    /// Describes all of the server's hints as claims, for a person.
    pub fn all_by_server(&self) -> String {
        stated(&self.server.all_words(), SERVER).unwrap_or_else(|| SERVER_SILENT.to_owned())
    }

    /// Describes all of the operator's hints; `None` if there are none.
    pub fn all_by_operator(&self) -> Option<String> {
        stated(&self.operator.all_words(), OPERATOR)
    }

    /// Describes the effect of a repeated call and who states it; `None` if it is not stated.
    pub fn repetition(&self) -> Option<String> {
        let operator = self.operator.repetition().and_then(|words| stated(&[words], OPERATOR));
        let server = self.server.repetition().and_then(|words| stated(&[words], SERVER));
        let both: Vec<String> = operator.into_iter().chain(server).collect();
        (!both.is_empty()).then(|| both.join("; "))
    }
}

/// Sets the hints that clients see on a tool, and keeps the server's own annotations in `_meta` if
/// they differ. A hint that is `None` in `shown` stays as the server wrote it. A definition that
/// already says the same keeps its bytes.
pub fn set_shown_hints(definition: &mut RawObject, shown: &Hints) {
    // Readers that ignore the case of keys would find the claim under such a key.
    if !shown.is_empty() && !other_spellings(definition, ANNOTATIONS).is_empty() {
        definition.retain(|key| key == ANNOTATIONS || !is_in_any_case(key, ANNOTATIONS));
    }
    let claimed = definition.get(ANNOTATIONS).cloned();
    let stated = if claimed.is_some() { definition.object(ANNOTATIONS) } else { Some(RawObject::default()) };
    let Some(mut stated) = stated else { return };
    let assumed = Hints::from(Annotations::ASSUMED).values();
    let mut differs = false;
    stated.retain(|key| {
        let is_same = |(name, value): (&str, Option<bool>)| value.is_some() && name != key && is_in_any_case(key, name);
        let kept = !NAMES.into_iter().zip(shown.values()).any(is_same);
        differs |= !kept;
        kept
    });
    for ((name, value), assumed) in NAMES.into_iter().zip(shown.values()).zip(assumed) {
        // The protocol gives these two no meaning for a read-only tool.
        let is_moot = shown.read_only == Some(true) && matches!(name, "destructiveHint" | "idempotentHint");
        let understood = match stated.get(name) {
            Some(raw) => raw.parse::<bool>().ok(),
            None if is_moot => value,
            None => assumed,
        };
        if let Some(value) = value.filter(|value| understood != Some(*value)) {
            stated.set(name, RawJson::boolean(value));
            differs = true;
        }
    }
    if differs {
        definition.set(ANNOTATIONS, stated.encode());
        if let Some(claimed) = claimed {
            let mut meta = definition.object("_meta").unwrap_or_default();
            meta.set(CLAIMED, claimed);
            definition.set("_meta", meta.encode());
        }
    }
}

/// Reports whether a key equals this name for readers that ignore case, including readers that fold
/// two non-ASCII letters. Source: `foldName` of Go's encoding/json.
fn is_in_any_case(key: &str, name: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(name.chars().map(fold))
}

/// Returns the keys of an object that equal this name except for the case.
fn other_spellings(object: &RawObject, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    object.clone().retain(|key| {
        found.extend((key != name && is_in_any_case(key, name)).then(|| key.to_owned()));
        true
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(definition: &'static str, hints: impl Into<Hints>) -> String {
        let mut object = RawObject::parse(&RawJson::trusted(definition)).unwrap();
        set_shown_hints(&mut object, &hints.into());
        object.encode().text().into_owned()
    }

    const READS: Annotations = Annotations { read_only: true, destructive: false, ..Annotations::ASSUMED };

    #[test]
    fn claims_that_come_to_the_same_keep_their_bytes() {
        for (label, text, effective) in [
            ("no annotations", r#"{"name":"a"}"#, Annotations::ASSUMED),
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
            (
                "hints under a key in other letters",
                r#"{"name":"a","Annotations":{"readOnlyHint":true},"annotation\u017f":{"readOnlyHint":true}}"#,
                Annotations::ASSUMED,
                r#"{"name":"a"}"#,
            ),
        ] {
            assert_eq!(shown(text, effective), want, "{label}");
        }
    }

    #[test]
    fn hints_that_nobody_stated_beside_the_server_keep_their_bytes() {
        let text = r#"{"name":"a","annotations":{ "readOnlyHint":true , "ReadOnlyHint":false,"title":"A"}}"#;
        assert_eq!(shown(text, Hints::default()), text);
        let twice = r#"{"name":"a","Annotations":{"readOnlyHint":true}}"#;
        assert_eq!(shown(twice, Hints::default()), twice);
        let open = Hints { open_world: Some(false), ..Hints::default() };
        let with = r#"{"name":"a","annotations":{"readOnlyHint":true,"openWorldHint":false},"_meta":{"headend/claimed-annotations":{"readOnlyHint":true}}}"#;
        assert_eq!(shown(r#"{"name":"a","annotations":{"readOnlyHint":true}}"#, open), with);
        let added = r#"{"name":"a","annotations":{"openWorldHint":false}}"#;
        assert_eq!(shown(r#"{"name":"a"}"#, open), added, "the operator's word needs none of the server's");
    }

    #[test]
    fn claims_are_told_as_claims() {
        let hints =
            |read_only, destructive, idempotent, open_world| Hints { read_only, destructive, idempotent, open_world };
        let (yes, no) = (Some(true), Some(false));
        for (server, want) in [
            (hints(None, None, None, None), "the server says nothing"),
            (hints(yes, None, None, None), "only reads (the server says so)"),
            (hints(yes, no, yes, yes), "only reads, may reach outside (the server says so)"),
            (hints(None, yes, None, None), "may delete or overwrite (the server says so)"),
            (
                hints(no, yes, no, yes),
                "may delete or overwrite, may reach outside, each call changes more (the server says so)",
            ),
            (hints(no, no, None, None), "changes things, deletes nothing (the server says so)"),
            (hints(None, None, None, yes), "may reach outside (the server says so)"),
            (hints(None, None, yes, None), "the same call again changes no more (the server says so)"),
            // Repetition means nothing if nothing changes.
            (hints(yes, None, no, None), "only reads (the server says so)"),
        ] {
            assert_eq!(StatedHints { server, ..StatedHints::default() }.all_by_server(), want);
        }
        let operator = hints(yes, None, None, no);
        let said = StatedHints { operator, ..StatedHints::default() };
        assert_eq!(said.by_operator().as_deref(), Some("only reads, on this machine (your configuration says so)"));
        let server = hints(no, yes, yes, no);
        let said = StatedHints { server, ..StatedHints::default() };
        assert_eq!(said.by_server(), "may delete or overwrite, on this machine (the server says so)");
        let rest = "the same call again changes no more (the server says so)";
        assert_eq!(said.repetition().as_deref(), Some(rest));
        assert_eq!(StatedHints::default().by_operator(), None);
    }

    #[test]
    fn a_promise_that_was_not_there_loosens() {
        let nothing = Hints::default();
        let reads = Hints { read_only: Some(true), ..nothing };
        let destroys = Hints { destructive: Some(true), ..nothing };
        let spares = Hints { destructive: Some(false), ..nothing };
        let inside = Hints { open_world: Some(false), ..nothing };
        let repeats = Hints { idempotent: Some(true), ..nothing };
        for (now, before, loosens) in [
            (nothing, reads, false),
            (reads, nothing, true),
            (reads, reads, false),
            (destroys, nothing, false),
            (nothing, destroys, true),
            (reads, Hints { read_only: Some(true), ..destroys }, true),
            (spares, destroys, true),
            (spares, nothing, true),
            (inside, nothing, true),
            (repeats, nothing, true),
            (inside, Hints { read_only: Some(true), ..inside }, false),
        ] {
            assert_eq!(now.loosen(&before), loosens, "{now:?} after {before:?}");
        }
    }

    #[test]
    fn a_hint_that_is_spelt_twice_says_nothing_for_certain() {
        let of = |annotations: &str| {
            let text = RawJson::trusted(format!(r#"{{"annotations":{annotations}}}"#));
            Hints::unmistakable(&RawObject::parse(&text).unwrap())
        };
        let both = of(r#"{"readOnlyHint":true,"ReadOnlyHint":false,"openWorldHint":false}"#);
        assert_eq!((both.read_only, both.open_world), (None, Some(false)));
        assert_eq!(of(r#"{"ReadOnlyHint":true,"destructiveHint":"no","readonlyhint":1}"#), Hints::default());
        assert_eq!(of(r#"{"readOnlyHint":true}"#).read_only, Some(true));
        assert_eq!((of("7"), of("{}")), (Hints::default(), Hints::default()));
        assert_eq!(of(r#"{"readOnlyHint":true},"AnnotationS":{}"#), Hints::default());
        assert_eq!(of(r#"{"de\u017ftructiveHint":true,"destructiveHint":false}"#), Hints::default());
    }

    #[test]
    fn a_promise_in_other_letters_is_one() {
        let of = |annotations: &str| {
            let text = RawJson::trusted(format!(r#"{{"annotations":{annotations}}}"#));
            Hints::in_any_case(&RawObject::parse(&text).unwrap())
        };
        assert_eq!(of(r#"{"ReadOnlyHint":true}"#).read_only, Some(true));
        assert_eq!(of(r#"{"readOnlyHint":false,"READONLYHINT":true}"#).read_only, Some(true));
        assert_eq!(of(r#"{"readOnlyHint":true,"READONLYHINT":false}"#).read_only, Some(true));
        assert_eq!(of(r#"{"DestructiveHint":true}"#).destructive, None, "a warning in other letters warns nobody");
        assert_eq!(of("{}"), Hints::default());
        assert_eq!(
            of(r#"{},"ANNOTATIONS":{"ReadOnlyHint":true}"#).read_only,
            Some(true),
            "under a key in other letters"
        );
    }
}
