//! Begins, finishes and ends logins at the upstreams of a running gateway.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::{EndLoginParams, LoginParams, PasteParams};
use super::{OperatorRefusal, Person, upstreams};
use crate::base::clock;
use crate::gateway::logins::{
    CallbackError, FinishedLogin, LIFE, LoginChannel, LoginOffer, PendingLogins, WantedScope,
};
use crate::gateway::service::Service;
use crate::policy::ApprovalEvidence;
use crate::telemetry::upstream_state::UpstreamState;

/// Longest wait for the upstream to connect after its login.
const PATIENCE: Duration = Duration::from_secs(20);

/// A login that was begun and waits for a browser.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct BegunLoginView {
    pub(crate) id: String,
    pub(crate) upstream: String,
    pub(crate) issuer: String,
    /// The address to open: the console's page for this login, or the authorization server's own
    /// address if the console is off or the result is pasted.
    pub(crate) link: String,
    /// Host of the authorization server's login page, if it is not the issuer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page_host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scopes: Option<String>,
    /// Requested scopes that the present login does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) more_scopes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
    /// Lifetime of the login in seconds.
    pub(crate) seconds: u64,
    /// Cookie that binds the login to the browser that began it; set for the console alone.
    #[serde(skip)]
    pub(crate) cookie: Option<String>,
}

/// A login whose link a browser has opened, and the cookie that binds it to that browser.
#[derive(Clone, Debug)]
pub(crate) struct OpenedLogin {
    pub(crate) begun: LoginOffer,
    pub(crate) cookie: String,
}

/// A login that succeeded, and the state of its upstream afterwards.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct FinishedLoginView {
    pub(crate) upstream: String,
    pub(crate) issuer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    /// State of the upstream after the wait for its connection; `None` if nothing waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<UpstreamState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
}

/// Result of a logout.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct LogoutView {
    pub(crate) name: String,
    pub(crate) was_there: bool,
}

/// Begins a login at the upstream that `params` names. A login from the console is bound to the
/// browser that asks, at once.
pub(super) async fn begin(
    service: &Service,
    logins: &PendingLogins,
    params: &LoginParams,
    by: &Person,
) -> Result<BegunLoginView, OperatorRefusal> {
    let handle = upstreams::find(service, &params.name)?;
    let way = if params.paste { LoginChannel::Paste } else { LoginChannel::Page };
    let begun = logins.begin(&handle, way).await.map_err(OperatorRefusal::Refused)?;
    tracing::info!(upstream.name = %handle.name, by = by.name, "login begun by the operator");
    let cookie = if by.evidence == ApprovalEvidence::Page {
        let (_, cookie) = logins
            .enter(&begun.id)
            .ok_or_else(|| OperatorRefusal::refused("too many logins are under way; try again"))?;
        Some(cookie)
    } else {
        None
    };
    let link = match (way, service.console.get()) {
        (LoginChannel::Page, Some(base)) => format!("{base}/login/{}", begun.id),
        (LoginChannel::Page | LoginChannel::Paste, _) => begun.address,
    };
    let names = |is_shown: fn(&WantedScope) -> bool| {
        let names: Vec<_> = begun.scopes.iter().filter(|scope| is_shown(scope)).map(|scope| &*scope.name).collect();
        (!names.is_empty()).then(|| names.join(" "))
    };
    Ok(BegunLoginView {
        scopes: names(|_| true),
        more_scopes: names(|scope| scope.is_more),
        id: begun.id,
        upstream: begun.upstream,
        issuer: begun.issuer,
        link,
        page_host: begun.page_host,
        warning: begun.warning,
        seconds: LIFE.as_secs(),
        cookie,
    })
}

/// Binds a login to the browser that opens its link. Each link can be opened once.
pub(super) fn open(logins: &PendingLogins, id: &str) -> Result<OpenedLogin, OperatorRefusal> {
    let (begun, cookie) = logins.enter(id).ok_or(OperatorRefusal::Stranger)?;
    Ok(OpenedLogin { begun, cookie })
}

/// Waits until a login ends, then until its upstream has connected. Fails when the daemon shuts
/// down.
pub(super) async fn wait(
    service: &Service,
    logins: &PendingLogins,
    id: &str,
) -> Result<FinishedLoginView, OperatorRefusal> {
    let ended = service.draining.run_until_cancelled(logins.ended(id)).await;
    let stopped = || OperatorRefusal::refused("headend is stopping, and the login ends with it; begin another one");
    let done = ended.ok_or_else(stopped)?.map_err(OperatorRefusal::Refused)?;
    Ok(await_upstream(service, done).await)
}

/// Finishes a login with the pasted address at which its browser ended, then waits until its
/// upstream has connected.
pub(super) async fn paste(
    service: &Service,
    logins: &PendingLogins,
    params: &PasteParams,
) -> Result<FinishedLoginView, OperatorRefusal> {
    let done = logins.pasted(&params.id, &params.address).await.map_err(|error| {
        OperatorRefusal::Refused(match error {
            CallbackError::Unknown => {
                "this address does not belong to the login that was begun here; copy the whole address from the browser"
                    .to_owned()
            }
            CallbackError::Failed(why) => why,
        })
    })?;
    Ok(await_upstream(service, done).await)
}

/// Finishes the login that belongs to a call-back, if one of the cookies binds it to this browser.
/// Does not wait for the upstream.
pub(super) async fn end(logins: &PendingLogins, params: &EndLoginParams) -> Result<FinishedLoginView, OperatorRefusal> {
    let cookies: Vec<&str> = params.cookies.iter().map(String::as_str).collect();
    match logins.returned(&params.callback, &cookies).await {
        Ok(done) => Ok(FinishedLoginView::from(done)),
        Err(CallbackError::Failed(why)) => Err(OperatorRefusal::Refused(why)),
        Err(CallbackError::Unknown) => Err(OperatorRefusal::Stranger),
    }
}

/// Ends the login at an upstream, and restarts the upstream if there was a login.
pub(super) async fn log_out(
    service: &Service,
    logins: &PendingLogins,
    name: &str,
    by: &Person,
) -> Result<LogoutView, OperatorRefusal> {
    let handle = upstreams::find(service, name)?;
    let was_there = logins.log_out(&handle).await.map_err(OperatorRefusal::Refused)?;
    tracing::info!(upstream.name = %handle.name, by = by.name, was_there, "logged out by the operator");
    Ok(LogoutView { name: handle.name.as_str().to_owned(), was_there })
}

impl From<FinishedLogin> for FinishedLoginView {
    fn from(FinishedLogin { upstream, issuer, account }: FinishedLogin) -> Self {
        Self { upstream, issuer, account, state: None, last_error: None }
    }
}

/// Waits until the upstream has connected and read its lists, or for [`PATIENCE`], and returns the
/// login with the upstream's state.
async fn await_upstream(service: &Service, done: FinishedLogin) -> FinishedLoginView {
    let mut view = FinishedLoginView::from(done);
    if let Ok(handle) = upstreams::find(service, &view.upstream) {
        let until = clock::now() + PATIENCE;
        handle.main.started(PATIENCE).await;
        // The start signals its end a moment before it sets the state, and the lists are read after
        // that.
        let is_whole = || handle.main.listed.load(Ordering::Relaxed);
        let goes_on = |state| state == UpstreamState::Starting || (state == UpstreamState::Ready && !is_whole());
        while goes_on(handle.health.state()) && clock::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        view.state = Some(handle.health.state());
        view.last_error = handle.health.last_error().map(|error| error.to_string());
    }
    view
}
