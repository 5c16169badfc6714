//! Names of upstreams and items, and the mapping from an item's own name to the name that clients
//! see.
//!
//! An item has three names. The *original* name is the upstream's own and the only one sent to it.
//! The *exposed* name is the name that clients see: prefixed, and mapped if language-model APIs
//! would refuse it. The *canonical* name is `<upstream>__<original>`, unshortened and the same in
//! every view; rules, limits, grants, audit and metrics use no other.
//!
//! No code splits a name that a client sent: names are resolved by look-up in the catalog.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use data_encoding::BASE32_NOPAD;
use ring::digest;

use crate::mcp::definition::app::VIEW_SCHEME;

/// Longest exposed name: 64 is what LLM APIs accept, the rest is room for the host's own prefix.
pub const MAX_LENGTH: usize = 48;

/// Smallest length that leaves room for a readable stem before the hash. [`expose`] treats smaller
/// values as this one.
pub const MIN_MAX_LENGTH: usize = 16;

/// Longest original name of a tool or prompt, in characters. Items with longer names are withheld.
pub const MAX_ORIGINAL_LENGTH: usize = 128;

/// Longest upstream name, in bytes.
const MAX_UPSTREAM_LENGTH: usize = 31;

/// Length of `_` and eight base32 characters.
const HASH_SUFFIX_LENGTH: usize = 9;

/// Bytes of SHA-256 that become the eight base32 characters of a mapped name.
const HASH_BYTES: usize = 5;

/// The name of an upstream: `[a-z0-9][a-z0-9-]{0,30}`.
///
/// The name contains neither `_` nor `+`, so the upstream of a canonical name is everything before
/// the first of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamName(Arc<str>);

impl UpstreamName {
    /// Checks a name from the configuration.
    ///
    /// # Errors
    /// [`UpstreamNameError`] says how the text breaks `[a-z0-9][a-z0-9-]{0,30}`.
    pub fn parse(text: &str) -> Result<Self, UpstreamNameError> {
        let first = text.bytes().next().ok_or(UpstreamNameError::Empty)?;
        if let Some(bad) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return Err(UpstreamNameError::BadCharacter { bad });
        }
        if first == b'-' {
            return Err(UpstreamNameError::LeadingHyphen);
        }
        if text.len() > MAX_UPSTREAM_LENGTH {
            return Err(UpstreamNameError::TooLong);
        }
        Ok(Self(Arc::from(text)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name as shared text, without copying it.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for UpstreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for UpstreamName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The reason why a text is no upstream name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamNameError {
    #[error("must not be empty")]
    Empty,
    #[error("must not be longer than 31 characters")]
    TooLong,
    #[error("must not begin with a hyphen")]
    LeadingHyphen,
    #[error("contains {bad:?}; only a-z, 0-9 and - are possible")]
    BadCharacter { bad: char },
}

/// The kind of an item that a server offers by name or URI. The lower-case words are part of the
/// hash of mapped names, so changing a word changes exposed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum ItemKind {
    Tool,
    Prompt,
    Resource,
    Template,
}

/// The reason why an item is withheld because of its name. The text completes "tool `x` of `files`
/// is withheld: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemNameError {
    #[error("its name is empty")]
    Empty,
    #[error("its name is longer than 128 characters")]
    TooLong,
    #[error("its name contains a control character")]
    ControlCharacter,
    #[error("its name contains characters outside ASCII, which can imitate other names")]
    NotAscii,
}

/// Returns the exposed name of a tool or prompt: `<prefix><original>`.
///
/// A name outside `[A-Za-z0-9_-]{1,max_length}` is mapped: other characters become `_`, an overlong
/// name is cut, and `_` with eight base32 characters of SHA-256 over upstream, kind and original
/// follows. The result is the same after every restart and in any start order. With an empty
/// prefix, as in a transparent view, nothing is mapped or cut. `max_length` is in bytes.
///
/// # Errors
/// [`ItemNameError`] for an original that is empty, over 128 characters, not ASCII, or has control
/// characters.
pub fn expose(
    prefix: &str,
    upstream: &UpstreamName,
    kind: ItemKind,
    original: &str,
    max_length: usize,
) -> Result<String, ItemNameError> {
    check_original(original)?;
    let mut name = format!("{prefix}{original}");
    let max_length = max_length.max(MIN_MAX_LENGTH);
    if prefix.is_empty() || (name.len() <= max_length && name.chars().all(is_clean)) {
        return Ok(name);
    }
    // One `_` for each character, so that the result is ASCII and can be cut anywhere.
    name = name.chars().map(|c| if is_clean(c) { c } else { '_' }).collect();
    name.truncate(max_length - HASH_SUFFIX_LENGTH);
    name.push('_');
    name.push_str(&short_hash(upstream, kind, original));
    Ok(name)
}

/// Returns the canonical name of a tool or prompt: `<upstream>__<original>`, never shortened or
/// mapped.
pub fn canonical_name(upstream: &UpstreamName, original: &str) -> String {
    format!("{upstream}__{original}")
}

/// Returns the canonical name of a resource or template: `<upstream>+<uri>`.
pub fn canonical_uri(upstream: &UpstreamName, uri: &str) -> String {
    format!("{upstream}+{uri}")
}

/// Returns the URI under which clients see a view that several upstreams have:
/// `ui://<upstream>+<rest>`. Hosts refuse views of another scheme, so `<upstream>+<uri>` is no
/// exposed URI of a view.
pub fn view_uri(upstream: &UpstreamName, uri: &str) -> String {
    format!("{VIEW_SCHEME}{upstream}+{}", uri.get(VIEW_SCHEME.len()..).unwrap_or_default())
}

/// Reports whether a view's own URI has the form of [`view_uri`], so that it may be the exposed URI
/// of another upstream's view.
pub(crate) fn names_an_upstream(uri: &str) -> bool {
    let authority = uri.get(VIEW_SCHEME.len()..).and_then(|rest| rest.split('/').next());
    authority.is_some_and(|authority| authority.contains('+'))
}

/// Returns the indices, ascending, of all items whose exposed name is also the name of another item
/// in `names`.
///
/// The caller withholds all of these items, so the start order never decides which one wins. Tools
/// and prompts are separate namespaces and need a call each.
pub(crate) fn collisions<'n>(names: impl Iterator<Item = (&'n str, usize)>) -> Vec<usize> {
    let mut by_name: HashMap<&str, Vec<usize>, foldhash::fast::RandomState> = HashMap::default();
    for (name, index) in names {
        by_name.entry(name).or_default().push(index);
    }
    let mut shared: Vec<usize> = by_name.into_values().filter(|items| items.len() > 1).flatten().collect();
    shared.sort_unstable();
    shared
}

/// A warning about two upstreams whose prefixes let one imitate names of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixWarning {
    /// The upstream with the longer prefix, or the later one if the prefixes are equal.
    pub upstream: UpstreamName,
    /// Prefix of `upstream`.
    pub prefix: String,
    /// The upstream whose prefix is the start of the other prefix.
    pub other: UpstreamName,
    /// Prefix of `other`; may be empty.
    pub other_prefix: String,
}

impl fmt::Display for PrefixWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream, prefix, other, other_prefix } = self;
        if prefix == other_prefix {
            write!(f, "upstreams `{upstream}` and `{other}` have the same prefix \"{prefix}\"")?;
        } else if other_prefix.is_empty() {
            write!(
                f,
                "upstream `{other}` has no prefix, so it can use names that begin with \"{prefix}\" of `{upstream}`"
            )?;
        } else {
            write!(
                f,
                "prefix \"{prefix}\" of upstream `{upstream}` begins with prefix \"{other_prefix}\" of `{other}`"
            )?;
        }
        f.write_str("; items whose names collide are all withheld")
    }
}

/// Returns a warning for every pair of upstreams of which one prefix is the start of the other,
/// each pair once.
pub fn prefix_warnings(prefixes: &[(UpstreamName, String)]) -> Vec<PrefixWarning> {
    let mut warnings = Vec::new();
    for (position, first) in prefixes.iter().enumerate() {
        for second in prefixes.iter().skip(position + 1) {
            let (long, short) = if second.1.starts_with(&first.1) {
                (second, first)
            } else if first.1.starts_with(&second.1) {
                (first, second)
            } else {
                continue;
            };
            warnings.push(PrefixWarning {
                upstream: long.0.clone(),
                prefix: long.1.clone(),
                other: short.0.clone(),
                other_prefix: short.1.clone(),
            });
        }
    }
    warnings
}

/// Checks that an original name of a tool or prompt can be exposed.
fn check_original(original: &str) -> Result<(), ItemNameError> {
    if original.is_empty() {
        return Err(ItemNameError::Empty);
    }
    if original.chars().nth(MAX_ORIGINAL_LENGTH).is_some() {
        return Err(ItemNameError::TooLong);
    }
    if original.chars().any(char::is_control) {
        return Err(ItemNameError::ControlCharacter);
    }
    if !original.is_ascii() {
        return Err(ItemNameError::NotAscii);
    }
    Ok(())
}

/// Whether LLM APIs accept the character in a tool name.
const fn is_clean(c: char) -> bool {
    matches!(c, 'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-')
}

/// Returns eight lower-case base32 characters of SHA-256(upstream, 0, kind, 0, original).
fn short_hash(upstream: &UpstreamName, kind: ItemKind, original: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in [upstream.as_str(), "\0", kind.into_str(), "\0", original] {
        hash.update(part.as_bytes());
    }
    let sum = hash.finish();
    let head = sum.as_ref().get(..HASH_BYTES).unwrap_or_default();
    BASE32_NOPAD.encode(head).to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
