//! Requests to other servers as values, and their answers.

use bytes::Bytes;
use url::Url;

use super::document::PeerDocument;
use super::error::{AnswerFailure, DocumentKind, OAuthError};
use super::hidden::SecretText;
use crate::wire::reach::Reach;

/// A request for the shell to send: with `accept: application/json`, without redirects, within
/// bounds of size and time.
#[derive(Clone, Debug)]
pub struct OAuthRequest {
    pub url: Url,
    /// Addresses that the host may have.
    pub reach: Reach,
    pub content: RequestContent,
    /// Value of `Authorization`, if the client authenticates by it.
    pub authorization: Option<SecretText>,
    /// Value of `MCP-Protocol-Version`, if it is known. Source: MCP 2025-03-26, authorization,
    /// 2.3.1.
    pub revision: Option<&'static str>,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum RequestContent {
    /// No body: a GET.
    None,
    /// `application/x-www-form-urlencoded`
    Form(SecretText),
    /// `application/json`
    Json(Bytes),
}

/// The answer to a request: its status, whether its type is JSON, and its whole body.
#[derive(Clone, Debug)]
pub struct OAuthAnswer {
    pub status: u16,
    /// True if `content-type` is JSON.
    pub is_json: bool,
    pub body: Bytes,
}

/// An answer, or the reason why there is none.
pub type OAuthAnswerResult = Result<OAuthAnswer, AnswerFailure>;

/// The body of a form.
#[derive(Default)]
pub(super) struct FormBody(Vec<(&'static str, SecretText)>);

impl OAuthRequest {
    /// Makes the request for a document.
    pub(super) fn get(url: Url, reach: Reach, revision: Option<&'static str>) -> Self {
        Self { url, reach, content: RequestContent::None, authorization: None, revision }
    }
}

impl OAuthAnswer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Reads the JSON document in the answer; `None` if the server has none at this address. A
    /// successful answer of another type counts as none: single-page sites answer any path with a
    /// page.
    ///
    /// # Errors
    /// [`OAuthError::NoAnswer`] for a redirect or a failure of the server: it is unknown whether
    /// there is a document.
    pub(super) fn document(&self, which: DocumentKind) -> Result<Option<PeerDocument>, OAuthError> {
        match self.status {
            200..300 if self.is_json => Ok(PeerDocument::of(which, &self.body)),
            200..300 => Ok(None),
            300..400 => Err(OAuthError::NoAnswer(AnswerFailure::Redirect)),
            429 | 500.. => Err(OAuthError::NoAnswer(AnswerFailure::Busy)),
            _ => Ok(None),
        }
    }
}

impl FormBody {
    pub(super) fn add(&mut self, name: &'static str, value: &str) {
        self.0.push((name, SecretText::new(value.to_owned())));
    }

    pub(super) fn encode(&self) -> SecretText {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.0 {
            form.append_pair(name, value.expose());
        }
        SecretText::new(form.finish())
    }
}
