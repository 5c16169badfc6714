//! Logins at upstreams as the console needs them, apart from their pages: a trait that the gateway implements.

use futures_util::future::BoxFuture;

use crate::gateway::logins::{Begun, Done, NotTaken};
use crate::login::authorize::Callback;

/// The logins of the gateway. An error is a sentence for the operator.
pub(crate) trait LoginDesk {
    /// Begins a login at an upstream for the browser that asks; with the cookie that binds it to that browser.
    fn log_in<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Result<(Begun, String), String>>;
    /// The login behind a link that nobody has opened.
    fn login(&self, id: &str) -> Option<Begun>;
    /// Opens a link, once: its browser gets this cookie.
    fn open_login(&self, id: &str) -> Option<(Begun, String)>;
    /// The login behind a link that was opened, for the operator.
    fn opened_login(&self, id: &str) -> Option<Begun>;
    /// Ends the login that belongs to the call-back, if one of the cookies binds it.
    fn end_login<'a>(&'a self, callback: Callback, cookies: Vec<&'a str>) -> BoxFuture<'a, Result<Done, NotTaken>>;
    /// Ends the login at an upstream, and says what came of it.
    fn log_out<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Result<String, String>>;
}

/// The login at an upstream that takes one of a person.
#[derive(Clone, Debug)]
pub(crate) struct LoginView {
    /// The upstream waits for one.
    pub(crate) is_wanted: bool,
    pub(crate) held: Option<HeldLogin>,
}

/// A login that is in use.
#[derive(Clone, Debug)]
pub(crate) struct HeldLogin {
    pub(crate) issuer: String,
    pub(crate) account: Option<String>,
    /// Seconds until its token ends.
    pub(crate) left: Option<u64>,
}
