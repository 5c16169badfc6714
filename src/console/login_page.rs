//! The pages of logins at upstreams, as values for their templates. None of them needs a sign-in.

use askama::Template;

use crate::gateway::logins::WantedScope;

/// The page behind a login's link, before it is opened.
#[derive(Debug, Template)]
#[template(path = "login.html", config = "src/console/askama.toml")]
pub(crate) struct LoginPage {
    pub(crate) id: String,
    pub(crate) upstream: String,
    pub(crate) issuer: String,
    /// Host of the authorization server's login page, if it is not the issuer's.
    pub(crate) page_host: Option<String>,
    pub(crate) scopes: Vec<WantedScope>,
    pub(crate) warning: Option<String>,
}

/// The page with the address of the authorization server, and with a field for the address at which
/// the browser ends if it cannot return here.
#[derive(Debug, Template)]
#[template(path = "login_address.html", config = "src/console/askama.toml")]
pub(crate) struct LoginAddress {
    pub(crate) upstream: String,
    pub(crate) issuer: String,
    /// Host of the authorization server's login page, if it is not the issuer's.
    pub(crate) page_host: Option<String>,
    pub(crate) scopes: Vec<WantedScope>,
    pub(crate) address: String,
    /// Address that the browser is sent to after the login.
    pub(crate) redirect: String,
    /// True if `redirect` leads to this console.
    pub(crate) comes_here: bool,
    pub(crate) warning: Option<String>,
}

/// The page after a successful login.
#[derive(Debug, Template)]
#[template(path = "login_done.html", config = "src/console/askama.toml")]
pub(crate) struct LoginDone {
    pub(crate) upstream: String,
    pub(crate) text: String,
}

/// The page after an answer that belongs to no login of this browser. Another address can be
/// pasted.
#[derive(Debug, Template)]
#[template(path = "login_refused.html", config = "src/console/askama.toml")]
pub(crate) struct LoginRefused {
    pub(crate) text: &'static str,
}
