//! JSON documents of peers, read with bounds: one object, no key twice, texts and lists of a reasonable length.

use bytes::Bytes;

use super::error::{Document, OAuthError};
use crate::wire::frame::{Bounds, Frame};
use crate::wire::raw::{RawJson, RawObject};

/// Bytes of a text in a document. Tokens are the longest of them.
pub const MAX_TEXT: usize = 16 * 1024;
/// Elements of a list in a document.
pub const MAX_LIST: usize = 256;
const BOUNDS: Bounds = Bounds { depth: 16, nodes: 10_000 };

/// One document.
#[derive(Debug)]
pub struct Read {
    which: Document,
    object: RawObject,
}

impl Read {
    /// Reads bytes that claim to be a document; `None` for bytes that are no JSON object, or one that breaks the bounds.
    pub fn of(which: Document, body: &Bytes) -> Option<Self> {
        let frame = Frame::from_client(body.clone(), BOUNDS).ok()?;
        let raw = RawJson::checked(frame.bytes().clone()).ok()?;
        let object = RawObject::parse(&raw).ok()?;
        Some(Self { which, object })
    }

    /// A text, if there is one. Another type counts as absent only where nothing depends on it.
    ///
    /// # Errors
    /// When it is no text, is empty, or is too long.
    pub fn text(&self, name: &'static str) -> Result<Option<String>, OAuthError> {
        let Some(raw) = self.object.get(name).filter(|raw| !is_null(raw)) else { return Ok(None) };
        let text = raw.parse::<String>().map_err(|_| self.wrong(name))?;
        if text.is_empty() || text.len() > MAX_TEXT {
            return Err(self.wrong(name));
        }
        Ok(Some(text))
    }

    /// A text that some servers leave empty where they have none.
    ///
    /// # Errors
    /// When it is no text or is too long.
    pub fn text_or_empty(&self, name: &'static str) -> Result<Option<String>, OAuthError> {
        let is_empty = self.object.get(name).is_some_and(|raw| **raw.bytes() == *b"\"\"");
        if is_empty { Ok(None) } else { self.text(name) }
    }

    /// A text that has to be there.
    ///
    /// # Errors
    /// When it is not, and those of [`Self::text`].
    pub fn needed(&self, name: &'static str) -> Result<String, OAuthError> {
        self.text(name)?.ok_or_else(|| self.wrong(name))
    }

    /// A list of texts.
    ///
    /// # Errors
    /// When it is another type or too long.
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

    /// A count of seconds; some servers write it as a text, with a fraction or with an exponent.
    /// Anything else counts as absent.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "judged before, and cut to whole ones")]
    pub fn seconds(&self, name: &'static str) -> Option<u64> {
        let text = self.object.get(name)?.text().into_owned();
        let seconds = text.trim_matches('"').trim().parse::<f64>().ok()?;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds as u64)
    }

    /// The error for a member of this document.
    pub fn wrong(&self, name: &'static str) -> OAuthError {
        OAuthError::Document(self.which, name)
    }
}

fn is_null(raw: &RawJson) -> bool {
    **raw.bytes() == *b"null"
}

#[cfg(test)]
mod tests;
