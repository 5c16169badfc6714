//! Logins at upstreams: the pages between the operator and an authorization server, and its
//! call-back.
//!
//! A login is begun on an upstream's page by the signed-in operator, or by a one-time link, which
//! needs no sign-in because only the operator gets it. Either way a cookie of its own binds the
//! login to this browser. The cookie is `SameSite=Lax`, since the browser returns from another
//! site, and is limited to the path of the call-back. The call-back is the one GET that changes
//! something: its state and the cookie replace the form's CSRF token, and both work once. An
//! address that a person pastes, because the browser could not be sent back here, is treated alike:
//! its form posts to the path of the call-back, so that the cookie is sent along.

use std::sync::Arc;

use http::header::{COOKIE, HeaderValue, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::action;
use super::form::FormFields;
use super::login_page::{LoginAddress, LoginDone, LoginPage, LoginRefused};
use super::reply;
use super::session::{ActionNotice, SignedInVisitor};
use super::site::ConsoleSite;
use super::text::visible;
use crate::gateway::logins::{LIFE, LoginOffer};
use crate::listener::body::ReplyBody;
use crate::login::authorize::LoginCallback;
use crate::operator::logins::{FinishedLoginView, OpenedLogin};
use crate::operator::request::{EndLoginParams, IdParams, Request};
use crate::operator::views::OperatorView;
use crate::operator::{OperatorRefusal, Person};

pub(super) const CALLBACK: &str = "/oauth/callback";
/// Prefix of the names of login cookies. Several logins may be under way in one browser.
const NAME: &str = "headend-login-";
const GONE: &str = "This login has ended, was opened in another browser, or is older than ten minutes. Begin another one: on the page \
                    of its upstream, or with headend login.";
const OTHER: &str = "This address does not belong to a login that was begun in this browser, or it was used already. Copy the whole \
                     address from the browser that has just logged in. Logins end after ten minutes; one that was begun with --paste \
                     takes the address at that command alone.";

/// Shows the page behind a login's link. After the link was opened, only the signed-in operator
/// sees its page. Changes nothing.
pub(super) fn show(console: &ConsoleSite, id: &str, is_operator: bool) -> Response<ReplyBody> {
    if let Some(begun) = console.desk().login(id) {
        let (upstream, issuer) = (visible(&begun.upstream), visible(&begun.issuer));
        let LoginOffer { page_host, scopes, warning, .. } = begun;
        let page = LoginPage { id: id.to_owned(), upstream, issuer, page_host, scopes, warning };
        return reply::page(StatusCode::OK, &page);
    }
    match console.desk().opened_login(id).filter(|_| is_operator) {
        Some(begun) => reply::page(StatusCode::OK, &address(begun)),
        None => reply::wrong(StatusCode::NOT_FOUND, "Not found", GONE),
    }
}

/// Opens a login, for the button on its page: binds it to this browser and shows the address of the
/// authorization server.
pub(super) async fn enter(console: &ConsoleSite, id: &str, visitor: Option<&SignedInVisitor>) -> Response<ReplyBody> {
    let request = Request::OpenLogin(IdParams { id: id.to_owned() });
    match console.operator.perform(&request, &Person::of_console(&name_of(visitor))).await {
        Ok(OperatorView::LoginOpened(opened)) => {
            let OpenedLogin { begun, cookie } = *opened;
            set_login_cookie(reply::page(StatusCode::OK, &address(begun)), id, &cookie)
        }
        Ok(_) | Err(OperatorRefusal::Stranger) => reply::wrong(StatusCode::NOT_FOUND, "Not found", GONE),
        Err(refusal) => reply::wrong(StatusCode::SERVICE_UNAVAILABLE, "Not done", &action::sentence(&refusal)),
    }
}

/// Begins a login, for the button on an upstream's page: binds it to this browser and redirects to
/// the login's page.
///
/// # Errors
/// The notice for the upstream's page.
pub(super) async fn begin(
    console: &ConsoleSite,
    upstream: &str,
    visitor: &SignedInVisitor,
) -> Result<Response<ReplyBody>, ActionNotice> {
    let (id, cookie) = action::log_in(console, upstream, visitor).await?;
    Ok(set_login_cookie(reply::see(&format!("/login/{id}")), &id, &cookie))
}

/// Makes the page with the authorization server's address.
fn address(begun: LoginOffer) -> LoginAddress {
    LoginAddress {
        upstream: visible(&begun.upstream),
        issuer: visible(&begun.issuer),
        address: begun.address,
        redirect: visible(&begun.redirect),
        comes_here: begun.comes_here,
        page_host: begun.page_host,
        scopes: begun.scopes,
        warning: begun.warning,
    }
}

/// Adds the cookie of a login to a response.
fn set_login_cookie(mut response: Response<ReplyBody>, id: &str, cookie: &str) -> Response<ReplyBody> {
    // Ids and cookies consist of letters, digits, `-` and `_`.
    let name: String = id.chars().take(8).collect();
    let text = format!("{NAME}{name}={cookie}; HttpOnly; SameSite=Lax; Path={CALLBACK}; Max-Age={}", LIFE.as_secs());
    if let Ok(text) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(SET_COOKIE, text);
    }
    response
}

/// Finishes a login when the browser returns to the call-back.
pub(super) async fn finish_from_callback(
    console: &Arc<ConsoleSite>,
    head: &Parts,
    visitor: Option<&SignedInVisitor>,
) -> Response<ReplyBody> {
    end(console, head, visitor, LoginCallback::of_query(head.uri.query().unwrap_or_default())).await
}

/// Finishes a login with the pasted address of a browser that could not return here.
pub(super) async fn finish_from_paste(
    console: &Arc<ConsoleSite>,
    head: &Parts,
    visitor: Option<&SignedInVisitor>,
    form: &FormFields,
) -> Response<ReplyBody> {
    let callback = LoginCallback::of_pasted(form.field("address").unwrap_or_default());
    end(console, head, visitor, callback).await
}

/// Finishes a login with the call-back and the browser's login cookies, even if the browser
/// disconnects.
async fn end(
    console: &Arc<ConsoleSite>,
    head: &Parts,
    visitor: Option<&SignedInVisitor>,
    callback: LoginCallback,
) -> Response<ReplyBody> {
    let cookies = cookies(&head.headers).into_iter().map(str::to_owned).collect();
    let request = Request::EndLogin(EndLoginParams { callback, cookies });
    let (own, by) = (Arc::clone(console), Person::of_console(&name_of(visitor)));
    console.act(async move { outcome(own.operator.perform(&request, &by).await) }).await
}

/// Returns the browser's name for the audit log: that of its session if it is signed in. An
/// unsigned browser is accepted because the cookie of the login proves that it opened the login.
fn name_of(visitor: Option<&SignedInVisitor>) -> String {
    visitor.map_or_else(|| "console".to_owned(), SignedInVisitor::name)
}

/// Makes the page that shows how a login ended.
fn outcome(ended: Result<OperatorView, OperatorRefusal>) -> Response<ReplyBody> {
    match ended {
        Ok(OperatorView::LoggedIn(FinishedLoginView { upstream, issuer, account, .. })) => {
            let account = account.map(|account| format!(" as {}", visible(&account))).unwrap_or_default();
            let (upstream, issuer) = (visible(&upstream), visible(&issuer));
            let text =
                format!("headend is logged in to {upstream} at {issuer}{account}. Calls that waited for it go on.");
            reply::page(StatusCode::OK, &LoginDone { upstream, text })
        }
        Ok(_) | Err(OperatorRefusal::Stranger) => reply::page(StatusCode::BAD_REQUEST, &LoginRefused { text: OTHER }),
        Err(refusal) => {
            let text = format!(
                "The login has failed: {refusal}. Begin another one: on the page of its upstream, or with headend login."
            );
            reply::wrong(StatusCode::BAD_REQUEST, "Not logged in", &text)
        }
    }
}

/// Returns the values of all login cookies. Programs on other ports of this address may have set
/// cookies with such names, so all of them are tried.
fn cookies(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| name.starts_with(NAME)).map(|(_, value)| value).collect()
}
