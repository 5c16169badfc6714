//! Reads JSON documents of peers within bounds: one object without repeated keys, whose texts and
//! lists are of a reasonable length.

use bytes::Bytes;

use super::error::{DocumentKind, OAuthError};
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::json::raw::{RawJson, RawObject};

/// Longest text in a document, in bytes. Tokens are the longest of them.
pub const MAX_TEXT: usize = 16 * 1024;
/// Most elements of a list in a document.
pub const MAX_LIST: usize = 256;
const BOUNDS: JsonBounds = JsonBounds { depth: 16, nodes: 10_000 };

/// A document that was read within its bounds.
#[derive(Debug)]
pub struct PeerDocument {
    which: DocumentKind,
    object: RawObject,
}

impl PeerDocument {
    /// Reads bytes that claim to be a document; `None` for bytes that are no JSON object, or one
    /// that breaks the bounds.
    pub fn of(which: DocumentKind, body: &Bytes) -> Option<Self> {
        let frame = Frame::from_client(body.clone(), BOUNDS).ok()?;
        let raw = RawJson::checked(frame.bytes().clone()).ok()?;
        let object = RawObject::parse(&raw).ok()?;
        Some(Self { which, object })
    }

    /// Returns the text of a member; `None` if it is absent or `null`.
    ///
    /// # Errors
    /// If the member is no text, is empty, or is too long.
    pub fn text(&self, name: &'static str) -> Result<Option<String>, OAuthError> {
        let Some(raw) = self.object.get(name).filter(|raw| !is_null(raw)) else { return Ok(None) };
        let text = raw.parse::<String>().map_err(|_| self.wrong(name))?;
        if text.is_empty() || text.len() > MAX_TEXT {
            return Err(self.wrong(name));
        }
        Ok(Some(text))
    }

    /// Returns the text of a member; `None` also if it is empty, which some servers write for no
    /// text.
    ///
    /// # Errors
    /// If the member is no text, or is too long.
    pub fn text_or_empty(&self, name: &'static str) -> Result<Option<String>, OAuthError> {
        let is_empty = self.object.get(name).is_some_and(|raw| **raw.bytes() == *b"\"\"");
        if is_empty { Ok(None) } else { self.text(name) }
    }

    /// Returns the text of a member that must be there.
    ///
    /// # Errors
    /// If the member is absent, and as [`Self::text`].
    pub fn needed(&self, name: &'static str) -> Result<String, OAuthError> {
        self.text(name)?.ok_or_else(|| self.wrong(name))
    }

    /// Returns the texts of a member that is a list; `None` if it is absent or `null`.
    ///
    /// # Errors
    /// If the member is of another type, or too long.
    pub fn texts(&self, name: &'static str) -> Result<Option<Vec<String>>, OAuthError> {
        let Some(raw) = self.object.get(name).filter(|raw| !is_null(raw)) else { return Ok(None) };
        let list = raw.parse::<Vec<String>>().map_err(|_| self.wrong(name))?;
        if list.len() > MAX_LIST || list.iter().any(|text| text.len() > MAX_TEXT) {
            return Err(self.wrong(name));
        }
        Ok(Some(list))
    }

    pub fn is_true(&self, name: &'static str) -> bool {
        self.object.is_true(name)
    }

    /// Returns a number of seconds, which some servers write as a text, with a fraction or with an
    /// exponent. Any other value counts as absent.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "judged before, and cut to whole ones")]
    pub fn seconds(&self, name: &'static str) -> Option<u64> {
        let text = self.object.get(name)?.text().into_owned();
        let seconds = text.trim_matches('"').trim().parse::<f64>().ok()?;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds as u64)
    }

    /// Returns the error for a member of this document.
    pub fn wrong(&self, name: &'static str) -> OAuthError {
        OAuthError::Document(self.which, name)
    }
}

fn is_null(raw: &RawJson) -> bool {
    **raw.bytes() == *b"null"
}

#[cfg(test)]
mod tests;
