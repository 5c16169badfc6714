//! Renewal of a session that its server has forgotten: a new one is opened, once for all requests
//! that notice the loss, and its subscriptions are made again.
//!
//! If the main session was forgotten, the server was probably restarted, so sessions of clients are
//! checked before their next use. If a session of a client was forgotten, the main session is
//! checked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};

use super::{HttpLink, SessionRenewal};
use crate::base::clock;
use crate::engine::handshake::EraHint;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::upstream::http::initialize::{self, HandshakeFailure};
use crate::upstream::http::parts::LinkParts;
use crate::upstream::shared::SharedWork;
use crate::upstream::state::http_error::HttpError;
use crate::wire::json::raw::RawJson;

/// How long a server may take to say whether it knows a session.
const LOOK_TIME: Duration = Duration::from_secs(5);

impl HttpLink {
    /// Performs the handshake and, with a legacy server, enters the session.
    ///
    /// # Errors
    /// [`HandshakeFailure`].
    pub async fn open(parts: &LinkParts, hint: EraHint) -> Result<Arc<Self>, HandshakeFailure> {
        let (agreed, session) = initialize::open(parts, hint).await?;
        let link = Arc::new(Self::new(parts.clone(), agreed));
        if agreed.revision.era() == Era::Legacy {
            link.enter(session).await;
        }
        Ok(link)
    }

    /// Returns the server's instructions in the latest handshake of the main session.
    pub fn instructions(&self) -> Option<Arc<str>> {
        self.parts.remote.instructions.load_full().as_deref().cloned()
    }

    /// Opens a new session after the server forgot the session of this number. At most one
    /// handshake is under way, and all requests wait for it.
    pub(super) fn renew(self: &Arc<Self>, lost: u64) -> SharedWork {
        self.renewing.join((&self.parts.tasks, &self.parts.stop), || {
            let link = Arc::clone(self);
            Box::pin(async move {
                let opened = tokio::time::timeout(link.parts.start_limit, link.open_anew(lost)).await;
                let why = "no answer to the handshake of a new session in time";
                opened.unwrap_or_else(|_| Err(HttpError::Connect(why.to_owned())))
            })
        })
    }

    /// Performs a handshake for a new session in place of the one with this number, and enters it.
    async fn open_anew(self: &Arc<Self>, lost: u64) -> Result<(), HttpError> {
        // Another request may have renewed the session while this one waited.
        if self.number() != lost {
            return Ok(());
        }
        let opened = initialize::open(&self.parts, EraHint::Legacy).await;
        let (agreed, session) = opened.map_err(|unopened| HttpError::Connect(unopened.why()))?;
        if agreed.revision != self.agreed.revision {
            self.outdated.notify_one();
            return Err(HttpError::Connect("the new session speaks another revision".to_owned()));
        }
        if agreed.offers != self.agreed.offers {
            // Calls continue in this session; the link and the lists are those of another server,
            // and are replaced.
            self.outdated.notify_one();
        }
        self.logs.forget();
        self.enter(session).await;
        let remote = &self.parts.remote;
        if self.parts.is_main {
            remote.health.main_renewed();
        } else {
            remote.health.look();
        }
        self.looked.store(remote.health.renewals(), Ordering::Relaxed);
        self.renewed.notify_one();
        if let Some(count) = remote.health.lines.renewed.count(clock::uptime()) {
            tracing::info!(upstream.url = %remote.shown, count, "upstream session opened anew");
        }
        let session = self.session.load_full();
        self.parts.tasks.spawn("resubscribe", Arc::clone(self).resubscribe(session));
        Ok(())
    }

    /// Starts to check whether the server knows this session, if an answer blamed it, or if it is a
    /// client's and the main session was forgotten since the last check.
    pub(super) fn look(self: &Arc<Self>) -> Option<SharedWork> {
        let is_suspect = self.is_suspect.load(Ordering::Relaxed);
        let renewals = self.parts.remote.health.renewals();
        let is_older = !self.parts.is_main && self.looked.load(Ordering::Relaxed) != renewals;
        ((is_suspect || is_older) && self.session.load().is_some()).then(|| self.probe())
    }

    /// Asks the server whether it knows the session, and opens a new one if it does not. At most
    /// one such question is under way.
    pub(super) fn probe(self: &Arc<Self>) -> SharedWork {
        self.looking.join((&self.parts.tasks, &self.parts.stop), || {
            let link = Arc::clone(self);
            let renewals = self.parts.remote.health.renewals();
            Box::pin(async move {
                link.probed.store(clock::millis(clock::uptime()).max(1), Ordering::Relaxed);
                let number = link.number();
                let params = RawJson::EMPTY_OBJECT;
                let asked = link.ask_within(Method::Ping, Some(&params), SessionRenewal::Look);
                let asked = tokio::time::timeout(LOOK_TIME, asked).await;
                link.looked.store(renewals, Ordering::Relaxed);
                let renewed = match asked {
                    Ok(Err(HttpError::Status(StatusCode::NOT_FOUND))) => link.renew(number).await,
                    Ok(_) | Err(_) => Ok(()),
                };
                link.is_suspect.store(false, Ordering::Relaxed);
                renewed
            })
        })
    }

    /// Subscribes again in a new session, which knows none of the old subscriptions.
    ///
    /// If that session is lost as well, the request that opens the next one starts this again, so a
    /// server that forgets every session is asked once in each.
    fn resubscribe(self: Arc<Self>, session: Option<Arc<HeaderValue>>) -> BoxFuture<'static, ()> {
        let again = async move {
            let updates = &self.parts.news.updates;
            for uri in updates.uris() {
                if !self.is_in(session.as_deref()) {
                    return;
                }
                let params = RawJson::trusted(format!(r#"{{"uri":{}}}"#, RawJson::string(&uri).text()));
                let asked = self.ask_within(Method::ResourcesSubscribe, Some(&params), SessionRenewal::Never).await;
                if matches!(asked, Err(HttpError::Status(StatusCode::NOT_FOUND))) {
                    return;
                }
                let lines = &self.parts.remote.health.lines;
                if let Some(count) = asked.is_err().then(|| lines.subscriptions.count(clock::uptime())).flatten() {
                    tracing::warn!(upstream.name = %self.parts.upstream, count, "a resource subscription was lost in the new session");
                }
                updates.updated(&uri);
            }
        };
        // Boxed: a request may open a session, which leads here again.
        Box::pin(again)
    }
}
