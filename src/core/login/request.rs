//! Requests to other servers as values, and their answers.

use bytes::Bytes;
use url::Url;

use super::document::Read;
use super::error::{Document, NoAnswer, OAuthError};
use super::hidden::Hidden;
use crate::wire::reach::Reach;

/// A request that somebody else sends: `accept: application/json`, no redirects, bounds in size and time.
#[derive(Clone, Debug)]
pub struct Request {
    pub url: Url,
    /// Which addresses its host may have.
    pub reach: Reach,
    pub content: Content,
    /// The whole value of `Authorization`, if the client says so who it is.
    pub authorization: Option<Hidden>,
    /// Value of `MCP-Protocol-Version`, where it is known. Source: MCP 2025-03-26, authorization, 2.3.1.
    pub revision: Option<&'static str>,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Content {
    /// None: a GET.
    None,
    /// `application/x-www-form-urlencoded`
    Form(Hidden),
    /// `application/json`
    Json(Bytes),
}

/// The answer to a request, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// `content-type` is JSON.
    pub is_json: bool,
    pub body: Bytes,
}

/// An answer, or why there is none.
pub type Answered = Result<Answer, NoAnswer>;

/// A form's body.
#[derive(Default)]
pub(super) struct Form(Vec<(&'static str, Hidden)>);

impl Request {
    /// A document to read.
    pub(super) fn get(url: Url, reach: Reach, revision: Option<&'static str>) -> Self {
        Self { url, reach, content: Content::None, authorization: None, revision }
    }
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The document, unless the server has none at this place: single-page sites answer any path with a page.
    ///
    /// # Errors
    /// A failure of the server, after which nothing is known.
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
