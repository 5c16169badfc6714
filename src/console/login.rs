//! Logins at upstreams: the page behind a one-time link, and the call-back of authorization servers.
//!
//! The link is the operator's, so no sign-in is asked for. Its button binds the login to this browser by a cookie of its own:
//! `SameSite=Lax`, since the browser comes back from another site, and for the path of the call-back alone. The call-back is the one
//! GET that changes something; its state and the cookie take the place of the form's token, and both are used once.

use http::header::{COOKIE, HeaderValue, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::page::{LoginAddress, LoginPage};
use super::reply;
use super::site::Console;
use super::text::visible;
use crate::gateway::logins::{LIFE, NotTaken};
use crate::listener::body::ReplyBody;

pub(super) const CALLBACK: &str = "/oauth/callback";
/// Begin of the names of cookies; several logins may be under way in one browser.
const NAME: &str = "headend-login-";
const GONE: &str = "This link was opened already, or is too old. Run headend login again for another one.";

/// The page behind a link. Opening it changes nothing.
pub(super) fn show(console: &Console, id: &str) -> Response<ReplyBody> {
    let begun = console.logins.as_ref().and_then(|logins| logins.shown(id));
    let Some(begun) = begun else { return reply::wrong(StatusCode::NOT_FOUND, "Not found", GONE) };
    let (upstream, issuer) = (visible(&begun.upstream), visible(&begun.issuer));
    reply::page(StatusCode::OK, &LoginPage { id: id.to_owned(), upstream, issuer, warning: begun.warning })
}

/// Its button: binds the login to this browser and shows the address of the authorization server.
pub(super) fn enter(console: &Console, id: &str) -> Response<ReplyBody> {
    let entered = console.logins.as_ref().and_then(|logins| logins.enter(id));
    let Some((begun, cookie)) = entered else { return reply::wrong(StatusCode::NOT_FOUND, "Not found", GONE) };
    let (upstream, issuer) = (visible(&begun.upstream), visible(&begun.issuer));
    let page = LoginAddress { upstream, issuer, address: begun.address, warning: begun.warning };
    let mut response = reply::page(StatusCode::OK, &page);
    // Letters, digits, `-` and `_` alone, like the id.
    let name: String = id.chars().take(8).collect();
    let text = format!("{NAME}{name}={cookie}; HttpOnly; SameSite=Lax; Path={CALLBACK}; Max-Age={}", LIFE.as_secs());
    if let Ok(text) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(SET_COOKIE, text);
    }
    response
}

/// The browser comes back.
pub(super) async fn ended(console: &Console, head: &Parts) -> Response<ReplyBody> {
    let Some(logins) = &console.logins else { return reply::not_found() };
    let cookies = cookies(&head.headers);
    match logins.returned(head.uri.query().unwrap_or_default(), &cookies).await {
        Ok(done) => {
            let account = done.account.map(|account| format!(" as {}", visible(&account))).unwrap_or_default();
            let (upstream, issuer) = (visible(&done.upstream), visible(&done.issuer));
            let text = format!("headend is logged in to {upstream} at {issuer}{account}. You can close this page.");
            reply::wrong(StatusCode::OK, "Logged in", &text)
        }
        Err(NotTaken::Failed(why)) => {
            let text = format!("The login has failed: {why}. Run headend login again.");
            reply::wrong(StatusCode::BAD_REQUEST, "Not logged in", &text)
        }
        Err(NotTaken::Unknown) => {
            let text = "No login of this browser waits for this answer: it was begun elsewhere, was answered already, or is older than \
                        ten minutes. Run headend login again; where it was begun with --paste, give this page's address to that command.";
            reply::wrong(StatusCode::BAD_REQUEST, "Not taken", text)
        }
    }
}

/// The values of the cookies of logins. Other programs on this address may have set some of that name; all are tried.
fn cookies(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| name.starts_with(NAME)).map(|(_, value)| value).collect()
}
