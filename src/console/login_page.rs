//! The pages of logins at upstreams, as values for their templates. None of them needs a sign-in.

use askama::Template;

use crate::gateway::logins::WantedScope;

/// The page behind the link of a login.
#[derive(Debug, Template)]
#[template(path = "login.html", config = "src/console/askama.toml")]
pub(crate) struct LoginPage {
    pub(crate) id: String,
    pub(crate) upstream: String,
    pub(crate) issuer: String,
    /// Host of the login page, if it is not the issuer's.
    pub(crate) page_host: Option<String>,
    pub(crate) scopes: Vec<WantedScope>,
    pub(crate) warning: Option<String>,
}

/// The way to the authorization server, for the browser that goes on with a login, and the way back for one that cannot be sent here.
#[derive(Debug, Template)]
#[template(path = "login_address.html", config = "src/console/askama.toml")]
pub(crate) struct LoginAddress {
    pub(crate) upstream: String,
    pub(crate) issuer: String,
    /// Host of the login page, if it is not the issuer's.
    pub(crate) page_host: Option<String>,
    pub(crate) scopes: Vec<WantedScope>,
    pub(crate) address: String,
    /// Where the browser is sent after the login, and whether that is this console.
    pub(crate) redirect: String,
    pub(crate) comes_here: bool,
    pub(crate) warning: Option<String>,
}

/// The end of a login.
#[derive(Debug, Template)]
#[template(path = "login_done.html", config = "src/console/askama.toml")]
pub(crate) struct LoginDone {
    pub(crate) upstream: String,
    pub(crate) text: String,
}

/// An answer that belongs to no login of this browser; another address can be pasted.
#[derive(Debug, Template)]
#[template(path = "login_refused.html", config = "src/console/askama.toml")]
pub(crate) struct LoginRefused {
    pub(crate) text: &'static str,
}
