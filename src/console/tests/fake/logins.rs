//! Invented logins: one that no browser has opened, one that was opened, and upstreams that want or
//! have a login.
#![expect(clippy::wildcard_enum_match_arm, reason = "a form makes some requests alone")]

use super::FakeBackend;
use crate::gateway::logins::{LoginOffer, WantedScope};
use crate::operator::OperatorRefusal;
use crate::operator::logins::{BegunLoginView, FinishedLoginView, LogoutView, OpenedLogin};
use crate::operator::request::{EndLoginParams, IdParams, LoginParams, NameParams, Request};
use crate::operator::upstreams::LoginInUse;
use crate::operator::views::OperatorView;

/// Ids of the two logins, and the cookie and state of the opened one.
pub(in crate::console::tests) const NEW: &str = "Nm3yxXKpWq1uVb0sEfJ2gA";
pub(in crate::console::tests) const OPENED: &str = "k2VbZt0sEfJ2gANm3yxXKp";
pub(in crate::console::tests) const COOKIE: &str = "the-cookie-of-the-login";
const STATE: &str = "the-state";

/// Returns the login of the upstream `wiki`.
pub(super) fn held() -> LoginInUse {
    LoginInUse {
        issuer: "https://login.example.com".to_owned(),
        account: Some("alice@example.com".to_owned()),
        token_seconds: Some(3240),
        refreshing: false,
    }
}

/// Returns the issuer of a login. The login page of the opened one is on another host.
fn issuer(id: &str) -> String {
    let host = if id == OPENED { "sso.example.com" } else { "login.xn--exmple-cua.com" };
    format!("https://{host}/realms/a-long-name-of-a-realm")
}

pub(super) fn begun(id: &str) -> LoginOffer {
    let redirect = "http://127.0.0.1:8628/oauth/callback".to_owned();
    LoginOffer {
        id: id.to_owned(),
        upstream: "docs".to_owned(),
        issuer: issuer(id),
        page_host: (id == OPENED).then(|| "login.xn--exmple-cua.com".to_owned()),
        scopes: [("read", false), ("write", true)]
            .map(|(name, is_more)| WantedScope { name: name.to_owned(), is_more })
            .to_vec(),
        warning: Some("`login.xn--exmple-cua.com` stands for a name in another script, which may look like one that you know; compare it with care".to_owned()),
        address: format!("https://login.xn--exmple-cua.com/authorize?response_type=code&client_id=0b6f&redirect_uri=http%3A%2F%2F127.0.0.1%3A8628%2Foauth%2Fcallback&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256&state={STATE}"),
        redirect,
        comes_here: id == NEW,
    }
}

impl FakeBackend {
    pub(super) fn log_in_or_out(&self, request: &Request) -> Result<OperatorView, OperatorRefusal> {
        match request {
            Request::BeginLogin(LoginParams { name, .. }) if name == "docs" => {
                self.did(format!("log in {name}"));
                let LoginOffer { id, upstream, issuer, address, .. } = begun(OPENED);
                Ok(OperatorView::LoginBegun(Box::new(BegunLoginView {
                    id,
                    upstream,
                    issuer,
                    link: address,
                    page_host: None,
                    scopes: None,
                    more_scopes: None,
                    warning: None,
                    seconds: 600,
                    cookie: Some(COOKIE.to_owned()),
                })))
            }
            Request::BeginLogin(LoginParams { name, .. }) => {
                Err(OperatorRefusal::Refused(format!("`{name}` takes no login")))
            }
            Request::OpenLogin(IdParams { id }) if id == NEW => {
                Ok(OperatorView::LoginOpened(Box::new(OpenedLogin { begun: begun(id), cookie: COOKIE.to_owned() })))
            }
            Request::EndLogin(EndLoginParams { callback, cookies }) => {
                let is_of_state = callback.state.as_ref().is_some_and(|state| state.expose() == STATE);
                if !is_of_state || !cookies.iter().any(|cookie| cookie == COOKIE) {
                    return Err(OperatorRefusal::Stranger);
                }
                Ok(OperatorView::LoggedIn(FinishedLoginView {
                    upstream: "docs".to_owned(),
                    issuer: "https://login.example.com".to_owned(),
                    account: Some(super::HOSTILE.to_owned()),
                    state: None,
                    last_error: None,
                }))
            }
            Request::LogOut(NameParams { name }) => {
                self.did(format!("log out {name}"));
                Ok(OperatorView::LoggedOut(LogoutView { name: name.clone(), was_there: true }))
            }
            _ => Err(OperatorRefusal::Stranger),
        }
    }
}
