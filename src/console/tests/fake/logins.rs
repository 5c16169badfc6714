//! One login that nobody has opened, one that was opened, and upstreams that want and have one.

use futures_util::future::BoxFuture;

use super::FakeDesk;
use crate::console::login_desk::{HeldLogin, LoginDesk, LoginView};
use crate::gateway::logins::{Begun, Done, NotTaken, WantedScope};
use crate::login::authorize::Callback;

/// The ids of both logins; the value of the cookie and the state of the opened one.
pub(in crate::console::tests) const NEW: &str = "Nm3yxXKpWq1uVb0sEfJ2gA";
pub(in crate::console::tests) const OPENED: &str = "k2VbZt0sEfJ2gANm3yxXKp";
pub(in crate::console::tests) const COOKIE: &str = "the-cookie-of-the-login";
const STATE: &str = "the-state";

pub(super) fn view(upstream: &str) -> Option<LoginView> {
    let held = HeldLogin {
        issuer: "https://login.example.com".to_owned(),
        account: Some("alice@example.com".to_owned()),
        left: Some(3240),
    };
    match upstream {
        "docs" => Some(LoginView { is_wanted: true, held: None }),
        "wiki" => Some(LoginView { is_wanted: false, held: Some(held) }),
        _ => None,
    }
}

/// The opened login's page is on another host than its issuer.
fn issuer(id: &str) -> String {
    let host = if id == OPENED { "sso.example.com" } else { "login.xn--exmple-cua.com" };
    format!("https://{host}/realms/a-long-name-of-a-realm")
}

fn begun(id: &str) -> Begun {
    let redirect = "http://127.0.0.1:8628/oauth/callback".to_owned();
    Begun {
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

impl LoginDesk for FakeDesk {
    fn log_in<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Result<(Begun, String), String>> {
        Box::pin(async move {
            if upstream != "docs" {
                return Err(format!("`{upstream}` takes no login."));
            }
            self.did(format!("log in {upstream}"));
            Ok((begun(OPENED), COOKIE.to_owned()))
        })
    }

    fn login(&self, id: &str) -> Option<Begun> {
        (id == NEW).then(|| begun(id))
    }

    fn open_login(&self, id: &str) -> Option<(Begun, String)> {
        (id == NEW).then(|| (begun(id), COOKIE.to_owned()))
    }

    fn opened_login(&self, id: &str) -> Option<Begun> {
        (id == OPENED).then(|| begun(id))
    }

    fn end_login<'a>(&'a self, callback: Callback, cookies: Vec<&'a str>) -> BoxFuture<'a, Result<Done, NotTaken>> {
        let is_own = callback.state.is_some_and(|state| state.expose() == STATE) && cookies.contains(&COOKIE);
        Box::pin(async move {
            if !is_own {
                return Err(NotTaken::Unknown);
            }
            let account = Some(super::HOSTILE.to_owned());
            Ok(Done { upstream: "docs".to_owned(), issuer: "https://login.example.com".to_owned(), account })
        })
    }

    fn log_out<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            self.did(format!("log out {upstream}"));
            Ok("Logged out.".to_owned())
        })
    }
}
