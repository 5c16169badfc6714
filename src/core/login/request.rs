//! Requests to other servers as values, and their answers.

use bytes::Bytes;
use url::Url;

use super::document::Read;
use super::error::{Document, NoAnswer, OAuthError};
use super::hidden::Hidden;
use crate::wire::reach::Reach;

/// A request for the shell to send: with `accept: application/json`, without redirects, within
/// bounds of size and time.
#[derive(Clone, Debug)]
pub struct Request {
    pub url: Url,
    /// Addresses that the host may have.
    pub reach: Reach,
    pub content: Content,
    /// Value of `Authorization`, if the client authenticates by it.
    pub authorization: Option<Hidden>,
    /// Value of `MCP-Protocol-Version`, if it is known. Source: MCP 2025-03-26, authorization,
    /// 2.3.1.
    pub revision: Option<&'static str>,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Content {
    /// No body: a GET.
    None,
    /// `application/x-www-form-urlencoded`
    Form(Hidden),
    /// `application/json`
    Json(Bytes),
}

/// The whole answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// True if `content-type` is JSON.
    pub is_json: bool,
    pub body: Bytes,
}

/// An answer, or the reason why there is none.
pub type Answered = Result<Answer, NoAnswer>;

/// The body of a form.
#[derive(Default)]
pub(super) struct Form(Vec<(&'static str, Hidden)>);

impl Request {
    /// Makes the request for a document.
    pub(super) fn get(url: Url, reach: Reach, revision: Option<&'static str>) -> Self {
        Self { url, reach, content: Content::None, authorization: None, revision }
    }
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Reads the document; `None` if the server has none at this address. A page counts as none:
    /// single-page sites answer any path with one.
    ///
    /// # Errors
    /// A redirect, or a failure of the server, after which nothing is known.
    pub(super) fn document(&self, which: Document) -> Result<Option<Read>, OAuthError> {
        match self.status {
            200..300 if self.is_json => Ok(Read::of(which, &self.body)),
            200..300 => Ok(None),
            300..400 => Err(OAuthError::NoAnswer(NoAnswer::Redirect)),
            429 | 500.. => Err(OAuthError::NoAnswer(NoAnswer::Busy)),
            _ => Ok(None),
        }
    }
}

impl Form {
    pub(super) fn add(&mut self, name: &'static str, value: &str) {
        self.0.push((name, Hidden::new(value.to_owned())));
    }

    pub(super) fn encode(&self) -> Hidden {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.0 {
            form.append_pair(name, value.expose());
        }
        Hidden::new(form.finish())
    }
}
