//! The answer to a client's request, and the refusals that are made from the request alone.

use bytes::Bytes;

use crate::engine::route::RouteError;
use crate::mcp::meta::MetaError;
use crate::mcp::version::Era;
use crate::wire::code;
use crate::wire::foreign;
use crate::wire::json::raw::RawJson;
use crate::wire::message::error_object;

/// The complete answer to a client's request: a result or an error object.
#[derive(Clone, Debug)]
pub struct RequestAnswer {
    pub outcome: Result<RawJson, RawJson>,
    /// HTTP status, for errors that do not get the transport's default.
    pub status: Option<u16>,
    /// All scopes that the request needs, with spaces between, if the credential lacks one.
    pub scopes: Option<Box<str>>,
}

impl RequestAnswer {
    /// Makes the answer with a result.
    pub fn ok(result: RawJson) -> Self {
        Self { outcome: Ok(result), status: None, scopes: None }
    }

    /// Makes the answer with an error.
    pub fn error(code: i64, message: &str, data: Option<&RawJson>) -> Self {
        Self::failed(error_object(code, message, data))
    }

    /// Makes the answer with this error object.
    pub fn failed(error: RawJson) -> Self {
        Self { outcome: Err(error), status: None, scopes: None }
    }

    /// Returns the bytes of the result or of the error object.
    pub fn bytes(&self) -> &Bytes {
        let (Ok(raw) | Err(raw)) = &self.outcome;
        raw.bytes()
    }

    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

/// Returns the error for a method that this era does not define or this release does not serve. In
/// the modern era its HTTP status is 404.
pub fn method_not_found(method: &str, era: Era) -> RequestAnswer {
    let answer = RequestAnswer::error(
        code::METHOD_NOT_FOUND,
        &format!("Method not found: {}", foreign::short(method, 64)),
        None,
    );
    if era == Era::Modern { answer.with_status(404) } else { answer }
}

/// Returns the error for parameters that cannot be read. If `params` or `_meta` is no object, its
/// HTTP status is 400.
pub fn invalid_params(error: &RouteError) -> RequestAnswer {
    let answer = RequestAnswer::error(code::INVALID_PARAMS, &error.to_string(), None);
    let malformed = matches!(error, RouteError::Params | RouteError::Meta(MetaError::NotAnObject));
    if malformed { answer.with_status(400) } else { answer }
}
