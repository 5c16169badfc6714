//! The kinds of input that a client offers in its capabilities, and the clients that an item is
//! for.

use crate::mcp::extension::APPS;
use crate::mcp::meta::Meta;
use crate::mcp::nulls;
use crate::wire::json::raw::{RawJson, RawObject};

/// The client capabilities about input; no others are passed to an upstream.
const ABOUT_INPUT: [&str; 3] = ["elicitation", "sampling", "roots"];

impl Meta {
    /// Returns the capabilities about input of a modern request, as an object to declare upstream.
    /// `None` if there are none.
    pub fn input_capabilities(&self) -> Option<RawJson> {
        self.client_capabilities().and_then(retain_input_capabilities)
    }

    /// Returns the kinds of input that the client of a modern request offers, and its settings of
    /// Apps if it declares them.
    pub fn client_offer(&self) -> (InputKinds, Option<RawJson>) {
        let declared = self.client_capabilities().filter(|raw| raw.bytes().as_ref() != b"{}");
        let Some(declared) = declared.and_then(|raw| RawObject::parse(raw).ok()) else { return Default::default() };
        (InputKinds::read(&declared), APPS.settings_in(&declared))
    }
}

/// Returns the part of a client's capabilities that is about input, without `null` members; `None`
/// if there is none.
pub fn retain_input_capabilities(capabilities: &RawJson) -> Option<RawJson> {
    if capabilities.bytes().as_ref() == b"{}" {
        return None;
    }
    let mut declared = RawObject::parse(capabilities).ok()?;
    declared.retain(|name| ABOUT_INPUT.contains(&name));
    nulls::drop_nulls(&mut declared, &ABOUT_INPUT);
    for name in ABOUT_INPUT {
        if let Some(mut parts) = declared.object(name)
            && nulls::drop_nulls(&mut parts, &["form", "url", "tools", "context", "listChanged"])
        {
            declared.set(name, parts.encode());
        }
    }
    (!declared.is_empty()).then(|| declared.encode())
}

/// Returns the capabilities except these; `None` if none are left.
pub fn remove_capabilities(capabilities: &RawJson, names: &[&str]) -> Option<RawJson> {
    let mut declared = RawObject::parse(capabilities).ok()?;
    declared.retain(|name| !names.contains(&name));
    (!declared.is_empty()).then(|| declared.encode())
}

/// The kinds of input that a client offers for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InputKinds {
    pub form: bool,
    pub url: bool,
    pub sampling: bool,
    /// Sampling with tools.
    pub sampling_tools: bool,
    pub roots: bool,
}

impl InputKinds {
    /// Reads the kinds that capabilities offer. An empty `elicitation` means forms.
    pub fn of(capabilities: Option<&RawJson>) -> Self {
        capabilities.and_then(|raw| RawObject::parse(raw).ok()).map(|raw| Self::read(&raw)).unwrap_or_default()
    }

    fn read(declared: &RawObject) -> Self {
        let has = |name: &str| declared.get(name).is_some_and(RawJson::is_object);
        let modes = declared.object("elicitation");
        let is_mode = |modes: &RawObject, name: &str| modes.get(name).is_some_and(|mode| !mode.is_null());
        let mode = |name: &str| modes.as_ref().is_some_and(|modes| is_mode(modes, name));
        let elicits = modes.is_some();
        let sampling = declared.object("sampling");
        Self {
            form: elicits && (mode("form") || !mode("url")),
            url: mode("url"),
            sampling: sampling.is_some(),
            sampling_tools: sampling.is_some_and(|sampling| sampling.get("tools").is_some_and(RawJson::is_object)),
            roots: has("roots"),
        }
    }

    /// Number of kinds.
    pub const BITS: u8 = 5;

    /// Returns one bit for each kind. Sealed values hold these bits, so their order must not
    /// change.
    pub fn bits(self) -> u8 {
        let all = [self.form, self.url, self.sampling, self.sampling_tools, self.roots];
        all.into_iter().rev().fold(0, |bits, has| (bits << 1) | u8::from(has))
    }

    /// Returns the kinds that at least one of both has.
    pub fn and(self, other: Self) -> Self {
        Self {
            form: self.form || other.form,
            url: self.url || other.url,
            sampling: self.sampling || other.sampling,
            sampling_tools: self.sampling_tools || other.sampling_tools,
            roots: self.roots || other.roots,
        }
    }

    /// Reports whether the client offers any kind.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Writes these kinds as the capabilities of a legacy client.
    pub fn capabilities(self) -> RawJson {
        let elicitation = match (self.form, self.url) {
            (true, true) => Some(r#""elicitation":{"form":{},"url":{}}"#),
            // Revisions before 2025-11-25 have no modes; the empty object means forms in all of
            // them.
            (true, false) => Some(r#""elicitation":{}"#),
            (false, true) => Some(r#""elicitation":{"url":{}}"#),
            (false, false) => None,
        };
        let sampling = self.sampling.then_some(if self.sampling_tools {
            r#""sampling":{"tools":{}}"#
        } else {
            r#""sampling":{}"#
        });
        let roots = self.roots.then_some(r#""roots":{}"#);
        let members: Vec<&str> = [elicitation, sampling, roots].into_iter().flatten().collect();
        RawJson::trusted(format!("{{{}}}", members.join(",")))
    }
}

/// The clients that an item is for: servers hide items from clients that do not offer the input
/// that the items need.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Audience(
    /// One bit for each set of kinds; its index is [`InputKinds::bits`] of the set.
    u32,
);

impl Audience {
    pub const ALL: Self = Self(u32::MAX);
    const NONE: Self = Self(0);

    /// Returns the clients that offer at least these kinds.
    pub fn with(needed: InputKinds) -> Self {
        let needed = u32::from(needed.bits());
        (0..u32::BITS)
            .filter(|offered| offered & needed == needed)
            .fold(Self::NONE, |all, offered| Self(all.0 | 1 << offered))
    }

    /// Returns the clients that offer forms, pages or sampling: any kind of question except roots.
    pub fn askable() -> Self {
        let none = InputKinds::default();
        let kinds = [
            InputKinds { form: true, ..none },
            InputKinds { url: true, ..none },
            InputKinds { sampling: true, ..none },
        ];
        kinds.into_iter().fold(Self::NONE, |all, kinds| all.or(Self::with(kinds)))
    }

    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Reports whether clients that offer exactly these kinds belong to it.
    pub fn has(self, offered: InputKinds) -> bool {
        self.0 >> offered.bits() & 1 == 1
    }

    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Returns one bit for each set of kinds. Inventories on disk hold these bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    pub const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl Default for Audience {
    fn default() -> Self {
        Self::ALL
    }
}

impl std::fmt::Debug for Audience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Audience({:#010x})", self.0)
    }
}
