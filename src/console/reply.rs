//! Builds the console's responses, which all carry the same security headers.

use askama::Template;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER, SET_COOKIE};
use http::{HeaderValue, Response, StatusCode};

use super::page::PlainTextPage;
use crate::listener::body::ReplyBody;
use crate::listener::reply::with_status;

/// Name of the session's cookie. The prefix `__Host-` needs TLS, which a loopback listener lacks.
pub(crate) const COOKIE: &str = "headend-console";

/// Content security policy: no content from other origins, none inline, and no frame around a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Headers of every response.
///
/// The referrer stays on this origin. It is not switched off, since browsers would then send
/// `Origin: null` with forms, which a foreign page can send too.
const HEADERS: [(&str, &str); 8] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Adds the headers of every response, replacing others of the same names.
pub(crate) fn finish(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// Renders a page. If that fails, logs an error and responds with status 500.
pub(crate) fn page(status: StatusCode, page: &impl Template) -> Response<ReplyBody> {
    match page.render() {
        Ok(text) => with(status, "text/html; charset=utf-8", text.into()),
        Err(error) => {
            tracing::error!(error = %error, "page not rendered");
            with(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", "the page cannot be shown\n".into())
        }
    }
}

/// Responds with a file embedded in the program, or with an image drawn for the request.
pub(crate) fn file(kind: &'static str, text: impl Into<Bytes>) -> Response<ReplyBody> {
    with(StatusCode::OK, kind, text.into())
}

/// Responds with a page that describes an error.
pub(crate) fn wrong(status: StatusCode, title: &str, text: &str) -> Response<ReplyBody> {
    page(status, &PlainTextPage { title: title.to_owned(), text: text.to_owned() })
}

pub(crate) fn not_found() -> Response<ReplyBody> {
    wrong(StatusCode::NOT_FOUND, "Not found", "There is no such page in the console.")
}

pub(crate) fn forbidden(text: &str) -> Response<ReplyBody> {
    wrong(StatusCode::FORBIDDEN, "Refused", text)
}

/// Refuses a method; `allow` lists the methods that the address takes.
pub(crate) fn method_not_allowed(allow: &'static str) -> Response<ReplyBody> {
    let text = "This address does not take such a request.";
    let mut response = wrong(StatusCode::METHOD_NOT_ALLOWED, "Not possible", text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Adds the time after which the browser may retry, in seconds.
pub(crate) fn retry_later(mut response: Response<ReplyBody>, seconds: u64) -> Response<ReplyBody> {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Refuses a request because a limit is reached: status 503, with a retry after ten seconds.
pub(crate) fn busy(text: &str) -> Response<ReplyBody> {
    retry_later(wrong(StatusCode::SERVICE_UNAVAILABLE, "Not now", text), 10)
}

/// Redirects to another page of the console, which the browser loads with GET.
pub(crate) fn see(path: &str) -> Response<ReplyBody> {
    let mut response = with(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Bytes::new());
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Sets the session's cookie, or removes it if `value` is `None`.
pub(crate) fn with_cookie(mut response: Response<ReplyBody>, value: Option<&str>) -> Response<ReplyBody> {
    let text = match value {
        Some(value) => format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/"),
        None => format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"),
    };
    if let Ok(text) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(SET_COOKIE, text);
    }
    response
}

fn with(status: StatusCode, kind: &'static str, body: Bytes) -> Response<ReplyBody> {
    let mut response = with_status(status, ReplyBody::whole(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
