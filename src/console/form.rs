//! Reads posted forms and their fields.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use url::form_urlencoded;

use super::reply;
use crate::listener::body::ReplyBody;
use crate::operator::request::{ApprovalDigest, OperatorAnswer};
use crate::policy::Digest;
use crate::wire::coding;

const MAX_BODY: usize = 64 * 1024;
const BODY_TIME: Duration = Duration::from_secs(10);
/// Lifetime of the grant behind the answer "for 1 hour".
const HOUR: Duration = Duration::from_secs(3600);

/// The fields of a posted form, in their order.
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Returns the value of a field; `None` if it is missing or repeated.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// Returns the approvals that the form names, each with the digest of what was shown; `None` if
    /// one is malformed.
    pub(super) fn members(&self) -> Option<Vec<ApprovalDigest>> {
        let values = self.0.iter().filter(|(field, _)| field == "member").map(|(_, value)| value.split_once(':'));
        let member =
            |(id, digest): (&str, &str)| Some(ApprovalDigest { id: id.to_owned(), digest: Digest::from_hex(digest)? });
        values.map(|value| value.and_then(member)).collect()
    }

    /// Returns the digest of what was shown.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.field("digest").and_then(Digest::from_hex)
    }

    /// Returns the operator's answer.
    pub(super) fn answer(&self) -> Option<OperatorAnswer> {
        match self.field("answer")? {
            "hour" => Some(OperatorAnswer::For(HOUR)),
            "below" => self.field("below").map(|base| OperatorAnswer::Below(Arc::from(base))),
            word @ ("deny" | "once" | "session" | "always") => OperatorAnswer::parse(word),
            _ => None,
        }
    }
}

/// Reads the form of a request.
///
/// # Errors
/// The response, if the request is no plain form, is too large or arrives too slowly.
pub(super) async fn form(headers: &HeaderMap, body: Incoming) -> Result<FormFields, Box<Response<ReplyBody>>> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let plain = coding::is_plain_content(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes));
    if !plain || !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let text = "The console accepts only its own forms.";
        return Err(Box::new(reply::wrong(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Refused", text)));
    }
    match tokio::time::timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(FormFields(form_urlencoded::parse(&body.to_bytes()).into_owned().collect())),
        Ok(Err(_)) => Err(Box::new(reply::wrong(StatusCode::PAYLOAD_TOO_LARGE, "Refused", "The form is too large."))),
        Err(_) => Err(Box::new(reply::wrong(StatusCode::REQUEST_TIMEOUT, "Refused", "The form came too slowly."))),
    }
}
