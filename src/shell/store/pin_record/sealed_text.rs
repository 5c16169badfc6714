//! The stored form of a pin's text: the text of a launch that may hold a secret is sealed.

use std::sync::Arc;

use super::{PinKey, PinKind, is_private};
use crate::policy::Digest;
use crate::store::seal::Seals;

/// The error of a text that must be sealed while there is no key.
#[derive(Debug)]
pub(in crate::store) struct MissingSealKey;

/// Returns the names of the place that a launch's text is sealed for: the same for the approved and
/// the waiting column, so that a text may move between them.
pub(in crate::store) fn launch_place<'a>(upstream: &'a str, digest: &'a str) -> [&'a str; 3] {
    ["pins", upstream, digest]
}

/// Returns a text in its stored form: sealed if it is the text of a launch that may hold a secret,
/// else as it is.
///
/// # Errors
/// The text must be sealed and there is no key.
pub(in crate::store) fn seal_text(
    seals: &Seals,
    key: &PinKey,
    text: Option<&Arc<str>>,
    digest: Option<Digest>,
) -> Result<Option<String>, MissingSealKey> {
    let Some((text, digest)) = text.zip(digest) else { return Ok(None) };
    if key.kind != PinKind::Launch || !is_private(text) {
        return Ok(Some(text.to_string()));
    }
    seals.seal(&launch_place(key.upstream.as_str(), &digest.hex()), text).map(Some).ok_or(MissingSealKey)
}

/// Returns a text from its stored form; `None` if there is none or its key is missing.
pub(in crate::store) fn open_text(
    seals: &Seals,
    key: &PinKey,
    text: Option<String>,
    digest: Option<Digest>,
) -> Option<Arc<str>> {
    let (text, digest) = text.zip(digest)?;
    if key.kind != PinKind::Launch {
        return Some(Arc::from(text));
    }
    seals.opened(&launch_place(key.upstream.as_str(), &digest.hex()), text).map(Arc::from)
}
