//! Runs logins of the operator at upstreams, from the first address to the outcome.
//!
//! A login is bound to the browser or command that began it. A login by page is reached by a link
//! that opens once, or begun on the console: the browser that presses the button gets a cookie, and
//! the call-back is taken from that browser only, as its redirect or as the address that its person
//! pastes. A login by command is ended by the address that is pasted to the command, and by no
//! call-back. Each login has a state that is used once, and ends after ten minutes. Only the
//! operator begins one: on the command line, or signed in to the console.
//!
//! No program is started with an address. The address is shown in ASCII; a host in another script
//! has a warning beside it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use parking_lot::{Mutex, MutexGuard};
use subtle::ConstantTimeEq as _;
use tokio::sync::{Mutex as Turn, mpsc, watch};
use url::Url;

use crate::base::clock;
use crate::gateway::supervisor::SupervisorOrder;
use crate::login::authorize::LoginCallback;
use crate::login::error::OAuthError;
use crate::login::flow::{LoginAction, LoginFlow};
use crate::policy::Digest;
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::login::tokens::TokenKeeper;
use crate::upstream::session::handle::UpstreamHandle;

/// Longest time of a login.
pub const LIFE: Duration = Duration::from_secs(600);
/// How long a login waits for the first answer of an upstream that is starting.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Most logins at once; the oldest gives way.
const MOST: usize = 64;

/// Who brings the authorization server's answer to a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginChannel {
    /// The browser that opened its link.
    Page,
    /// The command that began it.
    Paste,
}

/// A login that was begun, with what a person has to see before agreeing.
#[derive(Clone, Debug)]
pub struct LoginOffer {
    /// Id of the login; its holder may open the page.
    pub id: String,
    pub upstream: String,
    pub issuer: String,
    /// Host of the login page, if it is not the issuer's.
    pub page_host: Option<String>,
    /// Scopes that the login asks for.
    pub scopes: Vec<WantedScope>,
    /// Warning about a host that may not be what it looks like.
    pub warning: Option<String>,
    /// URL of the authorization server's page.
    pub address: String,
    /// URL to which the authorization server sends the browser back.
    pub redirect: String,
    /// True if that URL is this console's call-back.
    pub comes_here: bool,
}

/// A scope that a login asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedScope {
    pub name: String,
    /// True if there is a login already and it lacks this scope.
    pub is_more: bool,
}

/// The result of a login that succeeded.
#[derive(Clone, Debug)]
pub struct FinishedLogin {
    pub upstream: String,
    pub issuer: String,
    pub account: Option<String>,
}

/// The reason why a call-back is refused.
#[derive(Clone, Debug)]
pub enum CallbackError {
    /// The call-back belongs to no login, or to another browser's. No login has ended.
    Unknown,
    /// The login has ended, for this reason.
    Failed(String),
}

type LoginOutcome = Result<FinishedLogin, String>;

/// The logins under way, and the outcomes of recent ones.
#[derive(Debug)]
pub struct PendingLogins {
    table: Mutex<Vec<Arc<LoginInProgress>>>,
    over: Mutex<Vec<EndedLogin>>,
    /// URL of the console's call-back.
    callback: Arc<OnceLock<String>>,
    orders: mpsc::Sender<SupervisorOrder>,
}

/// A login under way.
#[derive(Debug)]
struct LoginInProgress {
    begun: LoginOffer,
    way: LoginChannel,
    /// Digest of the state that the call-back has to bring.
    state: Digest,
    until: Instant,
    keeper: Arc<TokenKeeper>,
    flow: Turn<LoginFlow>,
    /// Digest of the cookie of the browser that opened the page.
    cookie: Mutex<Option<Digest>>,
    outcome: watch::Sender<Option<LoginOutcome>>,
}

/// A login whose state is used up, kept for its outcome. The command that began it may ask late: a
/// browser with a session at the authorization server may come back before the command has asked.
#[derive(Debug)]
struct EndedLogin {
    id: Digest,
    until: Instant,
    outcome: watch::Receiver<Option<LoginOutcome>>,
}

impl PendingLogins {
    pub fn new(callback: Arc<OnceLock<String>>, orders: mpsc::Sender<SupervisorOrder>) -> Self {
        Self { table: Mutex::default(), over: Mutex::default(), callback, orders }
    }

    /// Sets the console's call-back URL once the console listens.
    pub fn open(&self, base: &str) {
        self.callback.get_or_init(|| format!("{base}/oauth/callback"));
    }

    /// Locks the table and drops the logins whose time is over.
    fn table(&self) -> MutexGuard<'_, Vec<Arc<LoginInProgress>>> {
        let mut table = self.table.lock();
        let now = clock::now();
        table.retain(|pending| pending.until > now);
        table
    }

    fn of(&self, id: &str) -> Option<Arc<LoginInProgress>> {
        let id = Digest::of(id.as_bytes());
        self.table().iter().find(|pending| is_same(&pending.id(), &id)).cloned()
    }

    /// Moves a login to those that are over, since its state is used up.
    fn used_up(&self, pending: &Arc<LoginInProgress>) {
        let mut over = self.over.lock();
        over.retain(|other| other.until > clock::now());
        if over.len() >= MOST {
            over.remove(0);
        }
        over.push(EndedLogin { id: pending.id(), until: pending.until, outcome: pending.outcome.subscribe() });
        drop(over);
        self.table().retain(|other| !Arc::ptr_eq(other, pending));
    }

    /// Begins a login at an upstream, up to the URL at which its person agrees.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn begin(&self, handle: &UpstreamHandle, way: LoginChannel) -> Result<LoginOffer, String> {
        let keeper = handle.keeper.clone().ok_or_else(|| {
            format!("`{}` takes no login: it is a local program, or its credential stands in `headers`", handle.name)
        })?;
        if way == LoginChannel::Page && self.callback.get().is_none() {
            return Err(format!(
                "the console is off, so no browser can come back here; use `headend login {} --paste`",
                handle.name
            ));
        }
        // The upstream's start brings the server's challenge, which says what the login has to
        // cover.
        if handle.health.state() == UpstreamState::Starting {
            handle.main.started(FIRST_ANSWER).await;
        }
        let flow = keeper.begin().await?;
        let LoginAction::Open(authorization) = flow.next() else { return Err(OAuthError::OutOfTurn.to_string()) };
        let redirect = authorization.url.query_pairs().find(|(name, _)| name == "redirect_uri");
        let redirect = redirect.map(|(_, url)| url.into_owned()).unwrap_or_default();
        let issuer = flow.server().map(|server| server.issuer.clone()).unwrap_or_default();
        let before = keeper.scopes_before(&issuer).await;
        let begun = LoginOffer {
            id: BASE64URL_NOPAD.encode(&clock::random::<16>()),
            upstream: handle.name.to_string(),
            page_host: other_host(&issuer, &authorization.url),
            scopes: wanted(flow.scopes(), before.as_deref()),
            warning: warning(&authorization.url),
            issuer: ascii(&issuer),
            address: authorization.url.to_string(),
            comes_here: self.callback.get().is_some_and(|own| *own == redirect),
            redirect,
        };
        let pending = LoginInProgress {
            begun: begun.clone(),
            way,
            state: Digest::of(authorization.state.expose().as_bytes()),
            until: clock::now() + LIFE,
            keeper,
            flow: Turn::new(flow),
            cookie: Mutex::default(),
            outcome: watch::Sender::new(None),
        };
        let mut table = self.table();
        if table.len() >= MOST {
            table.remove(0);
        }
        table.push(Arc::new(pending));
        Ok(begun)
    }

    /// Returns the login behind a link that was not opened yet. Changes nothing.
    pub fn shown(&self, id: &str) -> Option<LoginOffer> {
        let pending =
            self.of(id).filter(|pending| pending.way == LoginChannel::Page && pending.cookie.lock().is_none());
        pending.map(|pending| pending.begun.clone())
    }

    /// Opens a link, once: binds the login to a new cookie and returns both.
    pub fn enter(&self, id: &str) -> Option<(LoginOffer, String)> {
        let pending = self.of(id).filter(|pending| pending.way == LoginChannel::Page)?;
        let cookie = BASE64URL_NOPAD.encode(&clock::random::<32>());
        let mut bound = pending.cookie.lock();
        if bound.is_some() {
            return None;
        }
        *bound = Some(Digest::of(cookie.as_bytes()));
        drop(bound);
        Some((pending.begun.clone(), cookie))
    }

    /// Returns the login behind a link that was opened, for the operator. Changes nothing.
    pub fn opened(&self, id: &str) -> Option<LoginOffer> {
        let pending =
            self.of(id).filter(|pending| pending.way == LoginChannel::Page && pending.cookie.lock().is_some());
        pending.map(|pending| pending.begun.clone())
    }

    /// Finishes the login of a browser that came back with these cookies, or whose person pasted
    /// the address at which it ended.
    ///
    /// # Errors
    /// [`CallbackError`].
    pub async fn returned(&self, callback: &LoginCallback, cookies: &[&str]) -> Result<FinishedLogin, CallbackError> {
        let state =
            callback.state.as_ref().map(|state| Digest::of(state.expose().as_bytes())).ok_or(CallbackError::Unknown)?;
        let pending = self.table().iter().find(|pending| is_same(&pending.state, &state)).cloned();
        let pending = pending.filter(|pending| pending.way == LoginChannel::Page).ok_or(CallbackError::Unknown)?;
        let bound = *pending.cookie.lock();
        let is_bound = |cookie: &&str| bound.is_some_and(|bound| is_same(&bound, &Digest::of(cookie.as_bytes())));
        if !cookies.iter().any(is_bound) {
            return Err(CallbackError::Unknown);
        }
        self.finish(&pending, callback).await
    }

    /// Finishes the login of a command, with the address at which the browser ended.
    ///
    /// # Errors
    /// [`CallbackError`].
    pub async fn pasted(&self, id: &str, address: &str) -> Result<FinishedLogin, CallbackError> {
        let pending = self.of(id).filter(|pending| pending.way == LoginChannel::Paste).ok_or(CallbackError::Unknown)?;
        self.finish(&pending, &LoginCallback::of_pasted(address)).await
    }

    /// Waits for the outcome of a login.
    ///
    /// # Errors
    /// The reason of its failure, or that its time is over.
    pub async fn ended(&self, id: &str) -> LoginOutcome {
        let gone = || "the login was not ended within ten minutes".to_owned();
        let waiting = self.of(id).map(|pending| (pending.until, pending.outcome.subscribe()));
        let (until, mut outcome) = waiting.or_else(|| self.over(id)).ok_or_else(gone)?;
        let ended = tokio::time::timeout_at(until.into(), outcome.wait_for(Option::is_some)).await;
        ended.ok().and_then(Result::ok).and_then(|outcome| outcome.clone()).unwrap_or_else(|| Err(gone()))
    }

    /// Returns the end and the outcome of a login whose state is used up.
    fn over(&self, id: &str) -> Option<(Instant, watch::Receiver<Option<LoginOutcome>>)> {
        let id = Digest::of(id.as_bytes());
        let over = self.over.lock();
        over.iter().find(|over| is_same(&over.id, &id)).map(|over| (over.until, over.outcome.clone()))
    }

    /// Checks the call-back, exchanges its code for tokens and stores them, then restarts the
    /// upstream. A call-back of another login leaves this one as it is.
    async fn finish(
        &self,
        pending: &Arc<LoginInProgress>,
        callback: &LoginCallback,
    ) -> Result<FinishedLogin, CallbackError> {
        let mut flow = pending.flow.lock().await;
        match flow.returned(callback, clock::since_1970().as_secs()) {
            // The call-back is another login's.
            Err(OAuthError::State | OAuthError::OutOfTurn) => return Err(CallbackError::Unknown),
            Err(error) => {
                self.used_up(pending);
                return Err(pending.failed(error.to_string()));
            }
            Ok(()) => self.used_up(pending),
        }
        match pending.keeper.finish(&mut flow).await {
            Ok((login, lists_anew)) => {
                let done = FinishedLogin {
                    upstream: pending.begun.upstream.clone(),
                    issuer: ascii(&login.server.issuer),
                    account: login.account.map(|account| account.shown),
                };
                self.renewed(&done.upstream, lists_anew).await;
                pending.outcome.send_replace(Some(Ok(done.clone())));
                Ok(done)
            }
            Err(why) => Err(pending.failed(why)),
        }
    }

    /// Restarts an upstream whose login has changed, and waits until its new lists are in force.
    async fn renewed(&self, upstream: &str, lists_anew: bool) {
        let order = |reply| SupervisorOrder::Login { name: upstream.to_owned(), lists_anew, reply };
        // The order fails only when the gateway shuts down.
        drop(SupervisorOrder::ask(&self.orders, order).await);
    }

    /// Ends the login at an upstream and restarts it. Returns whether there was a login.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn log_out(&self, handle: &UpstreamHandle) -> Result<bool, String> {
        let Some(keeper) = &handle.keeper else { return Ok(false) };
        let was_there = keeper.log_out().await?;
        if was_there {
            self.renewed(handle.name.as_str(), false).await;
        }
        Ok(was_there)
    }
}

impl LoginInProgress {
    fn id(&self) -> Digest {
        Digest::of(self.begun.id.as_bytes())
    }

    /// Sets the login's outcome to a failure.
    fn failed(&self, why: String) -> CallbackError {
        self.outcome.send_replace(Some(Err(why.clone())));
        CallbackError::Failed(why)
    }
}

fn is_same(one: &Digest, other: &Digest) -> bool {
    one.bytes().ct_eq(other.bytes()).into()
}

/// Returns an issuer with its host in ASCII, for display.
fn ascii(issuer: &str) -> String {
    if issuer.is_ascii() {
        return issuer.to_owned();
    }
    Url::parse(issuer).map_or_else(|_| issuer.escape_default().to_string(), |url| url.to_string())
}

/// Returns the requested scopes, with a mark at those that the earlier login lacks.
fn wanted(scopes: &[String], before: Option<&[String]>) -> Vec<WantedScope> {
    let is_more = |scope: &String| before.is_some_and(|before| !before.contains(scope));
    scopes.iter().map(|scope| WantedScope { name: scope.clone(), is_more: is_more(scope) }).collect()
}

/// Returns the host of a login page, with its port if that is unusual; `None` if it is the
/// issuer's.
fn other_host(issuer: &str, page: &Url) -> Option<String> {
    let host = |url: &Url| {
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        url.host_str().map(|host| format!("{host}{port}"))
    };
    let of_issuer = Url::parse(issuer).ok().and_then(|url| host(&url));
    host(page).filter(|of_page| of_issuer.as_ref() != Some(of_page))
}

/// Returns a warning for a host written in another script, since it may look like a familiar name.
fn warning(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let is_mixed = host.split('.').any(|label| label.starts_with("xn--"));
    is_mixed.then(|| {
        format!(
            "`{host}` stands for a name in another script, which may look like one that you know; compare it with care"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_in_another_script_is_shown_in_ascii_with_a_warning() {
        for (address, warned) in [("https://login.example/a", false), ("https://login.ex\u{430}mple/a", true)] {
            let url = Url::parse(address).unwrap();
            assert_eq!(warning(&url).is_some(), warned, "{address}");
            assert!(ascii(address).is_ascii(), "{address}");
        }
        assert_eq!(ascii("https://as.example"), "https://as.example", "an issuer is a text and not parsed");
    }

    #[test]
    fn the_host_of_the_page_is_told_from_the_issuers() {
        let other = |issuer: &str, page: &str| other_host(issuer, &Url::parse(page).unwrap());
        assert_eq!(other("https://as.example/realm", "https://as.example:443/authorize?a=b"), None);
        assert_eq!(other("https://as.example", "https://pages.example/a").as_deref(), Some("pages.example"));
        assert_eq!(other("https://as.example", "https://as.example:8443/a").as_deref(), Some("as.example:8443"));
        assert_eq!(other("no URL", "https://as.example/a").as_deref(), Some("as.example"));
    }

    #[test]
    fn scopes_that_the_login_of_before_lacks_are_marked() {
        let scopes = ["read", "write"].map(str::to_owned);
        let marked = |before: Option<&[&str]>| {
            let before = before.map(|all| all.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>());
            wanted(&scopes, before.as_deref()).iter().map(|scope| scope.is_more).collect::<Vec<_>>()
        };
        assert_eq!(marked(None), [false, false], "the first login has nothing before it");
        assert_eq!(marked(Some(&["read", "other"])), [false, true]);
        assert_eq!(marked(Some(&[])), [true, true]);
    }
}
