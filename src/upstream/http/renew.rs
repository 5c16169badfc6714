//! A session that its server has forgotten: another one is opened, and what was subscribed to in it is subscribed to again.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};

use super::HttpLink;
use crate::base::clock;
use crate::engine::handshake::EraHint;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::upstream::answer::HttpError;
use crate::upstream::http_parts::LinkParts;
use crate::upstream::initialize::{self, Unopened};
use crate::wire::raw::RawJson;

impl HttpLink {
    /// Agrees with the server and, where it is a legacy one, enters the session.
    ///
    /// # Errors
    /// [`Unopened`].
    pub(crate) async fn open(parts: &LinkParts, hint: EraHint) -> Result<Arc<Self>, Unopened> {
        let (agreed, session) = initialize::open(parts, hint).await?;
        let link = Arc::new(Self::new(parts.clone(), agreed));
        if agreed.revision.era() == Era::Legacy {
            link.enter(session).await;
        }
        Ok(link)
    }

    /// Opens a new session after the upstream forgot the old one; at most one caller does it, the others wait.
    pub(super) async fn renew(self: Arc<Self>, lost: HeaderValue) -> Result<(), HttpError> {
        let _turn = self.renewing.lock().await;
        let current = self.session.load_full();
        if current.as_deref() != Some(&lost) {
            return Ok(());
        }
        let opened = initialize::open(&self.parts, EraHint::Legacy).await;
        let (agreed, session) = opened.map_err(|unopened| HttpError::Connect(unopened.why()))?;
        if agreed.revision != self.agreed.revision {
            self.outdated.notify_one();
            return Err(HttpError::Connect("the new session speaks another revision".to_owned()));
        }
        self.logs.forget();
        self.enter(session).await;
        self.renewed.notify_one();
        let remote = &self.parts.remote;
        if let Some(count) = remote.health.lines.renewed.count(clock::uptime()) {
            tracing::info!(upstream.url = %remote.uri, count, "upstream session opened anew");
        }
        let session = self.session.load_full();
        self.parts.tasks.spawn("resubscribe", Arc::clone(&self).resubscribe(session));
        Ok(())
    }

    /// A new session knows none of the old one's subscriptions.
    ///
    /// Where that session is lost as well, the next one's turn begins with the request that opens it: a server that forgets every
    /// session is asked once in each.
    fn resubscribe(self: Arc<Self>, session: Option<Arc<HeaderValue>>) -> BoxFuture<'static, ()> {
        let again = async move {
            let updates = &self.parts.news.updates;
            for uri in updates.uris() {
                if !self.is_in(session.as_deref()) {
                    return;
                }
                let params = RawJson::trusted(format!(r#"{{"uri":{}}}"#, RawJson::string(&uri).text()));
                let asked = self.ask_within(Method::ResourcesSubscribe, Some(&params), false).await;
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
        // A request may open a session, which comes here.
        Box::pin(again)
    }
}
