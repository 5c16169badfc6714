//! Logins at upstreams: the pages between the operator and an authorization server, and its call-back.
//!
//! A login is begun on an upstream's page by the operator, or by a one-time link, which is the operator's: no sign-in is asked for. Either
//! binds it to this browser by a cookie of its own: `SameSite=Lax`, since the browser comes back from another site, and for the path of
//! the call-back alone. The call-back is the one GET that changes something; its state and the cookie take the place of the form's
//! token, and both are used once. The same holds for the address that a person pastes, since the browser could not be sent back here:
//! its form goes to the path of the call-back, so the cookie comes with it.

use std::sync::Arc;

use http::header::{COOKIE, HeaderValue, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::form::Form;
use super::login_page::{LoginAddress, LoginDone, LoginPage, LoginRefused};
use super::reply;
use super::session::Notice;
use super::site::Console;
use super::text::{capitalised, visible};
use crate::engine::oauth::authorize::Callback;
use crate::gateway::logins::{Begun, Done, LIFE, NotTaken};
use crate::listener::body::ReplyBody;

pub(super) const CALLBACK: &str = "/oauth/callback";
/// Begin of the names of cookies; several logins may be under way in one browser.
const NAME: &str = "headend-login-";
const GONE: &str = "This login has ended, was opened in another browser, or is older than ten minutes. Begin another one: on the page \
                    of its upstream, or with headend login.";
const OTHER: &str = "This address does not belong to a login that was begun in this browser, or it was used already. Copy the whole \
                     address from the browser that has just logged in. Logins end after ten minutes; one that was begun with --paste \
                     takes the address at that command alone.";

/// The page behind a link; for the operator also after the link was opened. Opening it changes nothing.
pub(super) fn show(console: &Console, id: &str, is_operator: bool) -> Response<ReplyBody> {
    if let Some(begun) = console.desk.login(id) {
        let (upstream, issuer) = (visible(&begun.upstream), visible(&begun.issuer));
        return reply::page(StatusCode::OK, &LoginPage { id: id.to_owned(), upstream, issuer, warning: begun.warning });
    }
    match console.desk.opened_login(id).filter(|_| is_operator) {
        Some(begun) => reply::page(StatusCode::OK, &address(begun)),
        None => reply::wrong(StatusCode::NOT_FOUND, "Not found", GONE),
    }
}

/// Its button: binds the login to this browser and shows the address of the authorization server.
pub(super) fn enter(console: &Console, id: &str) -> Response<ReplyBody> {
    let Some((begun, cookie)) = console.desk.open_login(id) else {
        return reply::wrong(StatusCode::NOT_FOUND, "Not found", GONE);
    };
    bound(reply::page(StatusCode::OK, &address(begun)), id, &cookie)
}

/// The button on an upstream's page: begins a login, binds it to this browser and leads on to the address.
///
/// # Errors
/// The notice for that page.
pub(super) async fn begin(console: &Console, upstream: &str) -> Result<Response<ReplyBody>, Notice> {
    let begun = console.desk.log_in(upstream).await;
    let (begun, cookie) = begun.map_err(|why| Notice { good: false, text: capitalised(&why) })?;
    Ok(bound(reply::see(&format!("/login/{}", begun.id)), &begun.id, &cookie))
}

fn address(begun: Begun) -> LoginAddress {
    LoginAddress {
        upstream: visible(&begun.upstream),
        issuer: visible(&begun.issuer),
        address: begun.address,
        redirect: visible(&begun.redirect),
        comes_here: begun.comes_here,
        warning: begun.warning,
    }
}

/// Sets the cookie of a login.
fn bound(mut response: Response<ReplyBody>, id: &str, cookie: &str) -> Response<ReplyBody> {
    // Letters, digits, `-` and `_` alone, like the id.
    let name: String = id.chars().take(8).collect();
    let text = format!("{NAME}{name}={cookie}; HttpOnly; SameSite=Lax; Path={CALLBACK}; Max-Age={}", LIFE.as_secs());
    if let Ok(text) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(SET_COOKIE, text);
    }
    response
}

/// The browser comes back.
pub(super) async fn ended(console: &Arc<Console>, head: &Parts) -> Response<ReplyBody> {
    end(console, head, Callback::of_query(head.uri.query().unwrap_or_default())).await
}

/// The address at which a browser ended that could not come back.
pub(super) async fn pasted(console: &Arc<Console>, head: &Parts, form: &Form) -> Response<ReplyBody> {
    end(console, head, Callback::of_pasted(form.field("address").unwrap_or_default())).await
}

async fn end(console: &Arc<Console>, head: &Parts, callback: Callback) -> Response<ReplyBody> {
    let (own, headers) = (Arc::clone(console), head.headers.clone());
    console.act(async move { outcome(own.desk.end_login(callback, cookies(&headers)).await) }).await
}

fn outcome(ended: Result<Done, NotTaken>) -> Response<ReplyBody> {
    match ended {
        Ok(done) => {
            let account = done.account.map(|account| format!(" as {}", visible(&account))).unwrap_or_default();
            let (upstream, issuer) = (visible(&done.upstream), visible(&done.issuer));
            let text =
                format!("headend is logged in to {upstream} at {issuer}{account}. Calls that waited for it go on.");
            reply::page(StatusCode::OK, &LoginDone { upstream, text })
        }
        Err(NotTaken::Failed(why)) => {
            let text = format!(
                "The login has failed: {why}. Begin another one: on the page of its upstream, or with headend login."
            );
            reply::wrong(StatusCode::BAD_REQUEST, "Not logged in", &text)
        }
        Err(NotTaken::Unknown) => reply::page(StatusCode::BAD_REQUEST, &LoginRefused { text: OTHER }),
    }
}

/// The values of the cookies of logins. Other programs on this address may have set some of that name; all are tried.
fn cookies(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| name.starts_with(NAME)).map(|(_, value)| value).collect()
}
