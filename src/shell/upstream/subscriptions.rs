//! Resource subscriptions at upstreams.
//!
//! A legacy server gets one request for each URI. A modern server has one stream for all of them:
//! when the URIs change, the new stream is acknowledged before the old one is closed. After a lane
//! was opened anew, missed updates are unknown, so all resources count as updated.
//!
//! `resources/subscribe` and `subscriptions/listen` of clients both use the table of a lane, which
//! subscribes once for each URI. A client's subscription ends with its session or stream; the
//! subscription at the server ends with the last client's.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::engine::call::{CallOutcome, OutgoingCall};
use crate::engine::connection::unasked::updated_uri;
use crate::engine::event::CallEvent;
use crate::engine::pace::stream_pace::{SHORTEST, StreamPace};
use crate::mcp::extension::APPS;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::policy::Permit;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::LaneUse;
use crate::upstream::session::link::UpstreamLink;
use crate::upstream::session::sent::SentCall;
use crate::upstream::updates::{ResourceSubscriptions, UpdateStream, WatchEntry};
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::{RawJson, RawObject};

/// Longest wait for a server's answer to a subscription or its end. After it a new watch fails with
/// [`WatchFailure::Silent`].
const CONFIRM: Duration = Duration::from_secs(5);
/// The reason why headend cannot subscribe to a resource at its server.
#[derive(Debug)]
pub enum WatchFailure {
    /// The server does not send updates for this resource.
    NotOffered,
    /// The server's own error.
    Refused(RawJson),
    /// The server did not answer in time, or the request failed.
    Silent,
}

/// One client's watch of a resource. Dropping it ends the watch; the last one of a resource also
/// unsubscribes at the server, in the background.
#[derive(Debug)]
pub struct ResourceWatch {
    handle: Arc<UpstreamHandle>,
    lane: LaneUse,
    tasks: TaskGroup,
    original: String,
    id: u64,
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        if let Some(permit) = self.lane.news.updates.forget(&self.original, self.id) {
            let (handle, lane, original) = (Arc::clone(&self.handle), self.lane.clone(), self.original.clone());
            let tasks = self.tasks.clone();
            self.tasks.spawn("unsubscribe", async move {
                lane.news.updates.end(&handle, &lane, original, &permit, tasks).await
            });
        }
    }
}

/// The resource of a subscription, with the permit to watch it.
pub struct WatchTarget {
    /// The server's URI. `exposed` is the one that the client knows.
    pub original: String,
    pub exposed: String,
    pub permit: Permit,
}

impl ResourceSubscriptions {
    /// Starts to watch a resource, and subscribes at the server if this is the first watch.
    ///
    /// # Errors
    /// [`WatchFailure`].
    pub async fn watch(
        handle: &Arc<UpstreamHandle>,
        lane: &LaneUse,
        link: &UpstreamLink,
        target: WatchTarget,
        watcher: &Arc<UpdateStream>,
        tasks: &TaskGroup,
    ) -> Result<ResourceWatch, WatchFailure> {
        if !link.agreed().offers.subscriptions {
            return Err(WatchFailure::NotOffered);
        }
        let WatchTarget { original, exposed, permit } = target;
        let permit = Arc::new(permit);
        let updates = &lane.news.updates;
        let mut upstream = updates.upstream.lock().await;
        let (id, first) = updates.enter(&original, exposed, watcher, Arc::clone(&permit));
        // From here on, dropping this value ends the watch.
        let (handle, lane) = (Arc::clone(handle), lane.clone());
        let watching = ResourceWatch { handle, lane, tasks: tasks.clone(), original, id };
        if first {
            match link.agreed().revision.era() {
                Era::Legacy => {
                    let outcome = ask(&watching.handle, link, &permit, Method::ResourcesSubscribe, &watching.original);
                    match tokio::time::timeout(CONFIRM, outcome).await {
                        Ok(CallOutcome::Result { .. }) => {}
                        Ok(CallOutcome::Error { raw }) => return Err(WatchFailure::Refused(raw)),
                        Ok(CallOutcome::Failed(_)) | Err(_) => return Err(WatchFailure::Silent),
                    }
                }
                Era::Modern => {
                    let ResourceWatch { handle, lane, tasks, original, .. } = &watching;
                    let honoured = updates.listen(handle, lane, link, &permit, &mut upstream, tasks).await?;
                    if !honoured.contains(original) {
                        return Err(WatchFailure::NotOffered);
                    }
                }
            }
        }
        drop(upstream);
        Ok(watching)
    }

    /// Unsubscribes from a resource at the server, unless a client watches it again.
    async fn end(
        &self,
        handle: &Arc<UpstreamHandle>,
        lane: &LaneUse,
        original: String,
        permit: &Arc<Permit>,
        tasks: TaskGroup,
    ) {
        let mut upstream = self.upstream.lock().await;
        // Another client may have subscribed meanwhile.
        if self.watched.lock().contains_key(&original) {
            return;
        }
        // Also if the server is down: a stream that waits for it would keep the lane forever.
        if self.watched.lock().is_empty()
            && let Some(stream) = upstream.take()
        {
            stream.cancel();
            return;
        }
        let Some(link) = lane.open_link() else { return };
        if link.is_shared() && link.agreed().revision.era() == Era::Legacy {
            // Another replica may watch it: see `upstream::line::share`.
        } else if link.agreed().revision.era() == Era::Legacy {
            let outcome = ask(handle, &link, permit, Method::ResourcesUnsubscribe, &original);
            // A server that does not answer keeps sending updates, which are ignored.
            drop(tokio::time::timeout(CONFIRM, outcome).await);
        } else {
            // The old stream stays if no new one can be opened.
            drop(self.listen(handle, lane, &link, permit, &mut upstream, &tasks).await);
        }
    }

    /// Opens a stream for all watched resources, then closes the previous one. Returns the URIs
    /// that the server honours.
    async fn listen(
        &self,
        handle: &Arc<UpstreamHandle>,
        lane: &LaneUse,
        link: &UpstreamLink,
        permit: &Arc<Permit>,
        current: &mut Option<CancellationToken>,
        tasks: &TaskGroup,
    ) -> Result<Vec<String>, WatchFailure> {
        let (exchange, honoured) = open_stream(handle, link, permit, &self.uris()).await?;
        let token = CancellationToken::new();
        if let Some(before) = current.replace(token.clone()) {
            before.cancel();
        }
        let (handle, lane, permit) = (Arc::clone(handle), lane.clone(), Arc::clone(permit));
        let stop = tasks.stop_token().clone();
        tasks.spawn("resource updates", async move {
            tokio::select! {
                () = follow(&handle, &lane, &permit, exchange) => {}
                () = token.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(honoured)
    }

    /// Subscribes again after a session was opened anew, because a legacy server has forgotten its
    /// subscriptions. Reports all resources as updated.
    pub async fn restore(&self, handle: &Arc<UpstreamHandle>, link: &UpstreamLink) {
        if link.agreed().revision.era() == Era::Modern {
            return;
        }
        let _turn = self.upstream.lock().await;
        let watched: Vec<(String, Arc<Permit>)> = {
            let watched = self.watched.lock();
            let first = |watches: &Vec<WatchEntry>| watches.first().map(|watch| Arc::clone(&watch.permit));
            watched.iter().filter_map(|(uri, watches)| Some((uri.clone(), first(watches)?))).collect()
        };
        for (uri, permit) in &watched {
            let outcome = ask(handle, link, permit, Method::ResourcesSubscribe, uri);
            let kept = matches!(tokio::time::timeout(CONFIRM, outcome).await, Ok(CallOutcome::Result { .. }));
            let told = || handle.health.lines.subscriptions.count(clock::uptime());
            if let Some(count) = (!kept).then(told).flatten() {
                tracing::warn!(upstream.name = %handle.name, count, "a resource subscription was lost after a restart");
            }
        }
        if !watched.is_empty() {
            self.all_updated();
        }
    }
}

fn outgoing(method: Method, body: RawObject) -> OutgoingCall {
    OutgoingCall { body, ..OutgoingCall::own(method, Meta::default()) }
}

/// Subscribes or unsubscribes at a legacy server.
async fn ask(handle: &UpstreamHandle, link: &UpstreamLink, permit: &Permit, method: Method, uri: &str) -> CallOutcome {
    let body = RawObject::of_strings(&[("uri", uri)]);
    handle.call(link, permit, outgoing(method, body), &ParamHeaders::default()).outcome().await
}

/// Opens a modern server's stream of updates and waits for the acknowledgement.
async fn open_stream(
    handle: &UpstreamHandle,
    link: &UpstreamLink,
    permit: &Permit,
    uris: &[String],
) -> Result<(SentCall, Vec<String>), WatchFailure> {
    let list = RawJson::list(uris.iter().map(|uri| RawJson::string(uri)));
    let wanted = RawObject::of([("resourceSubscriptions", list)]).encode();
    let body = RawObject::of([("notifications", wanted)]);
    // The stream is for all clients together, so it declares Apps as the gateway does for its
    // lists.
    let apps = handle.spec.load().own_apps();
    let capabilities = apps.map(|settings| APPS.added_with(&settings, None));
    let outgoing = OutgoingCall { capabilities, ..outgoing(Method::Listen, body) };
    let mut exchange = handle.call(link, permit, outgoing, &ParamHeaders::default());
    let acknowledged = async {
        loop {
            match exchange.next().await {
                CallEvent::Notice(notice) if notice.method == "notifications/subscriptions/acknowledged" => {
                    let params = notice.params.and_then(|raw| RawObject::parse(&raw).ok()).unwrap_or_default();
                    let filter = params.object("notifications");
                    let uris = filter.and_then(|f| f.get("resourceSubscriptions")?.parse::<Vec<String>>().ok());
                    return Ok(uris.unwrap_or_default());
                }
                CallEvent::Done(CallOutcome::Error { raw }) => return Err(WatchFailure::Refused(raw)),
                CallEvent::Done(CallOutcome::Result { .. } | CallOutcome::Failed(_)) => {
                    return Err(WatchFailure::Silent);
                }
                CallEvent::Notice(_)
                | CallEvent::Progress(_)
                | CallEvent::Log(_)
                | CallEvent::Ask(_)
                | CallEvent::Withdrawn(_)
                | CallEvent::Alive
                | CallEvent::Unwritten => {}
            }
        }
    };
    let uris = tokio::time::timeout(CONFIRM, acknowledged).await.unwrap_or(Err(WatchFailure::Silent))?;
    Ok((exchange, uris))
}

/// Passes on updates, and opens the stream again whenever it ends.
async fn follow(handle: &Arc<UpstreamHandle>, lane: &LaneUse, permit: &Permit, mut exchange: SentCall) {
    let mut pace = StreamPace::default();
    let mut has_lived = false;
    loop {
        match exchange.next().await {
            CallEvent::Notice(notice) if notice.method == "notifications/resources/updated" => {
                has_lived = true;
                if let Some(uri) = updated_uri(notice.params.as_ref()) {
                    lane.news.updates.updated(&uri);
                }
            }
            CallEvent::Done(_) => {
                drop(exchange);
                exchange = loop {
                    let has_lived = std::mem::take(&mut has_lived);
                    tokio::time::sleep(pace.ended(has_lived, None, clock::jitter(), clock::now())).await;
                    let link = loop {
                        match lane.open_link() {
                            Some(link) => break link,
                            None => tokio::time::sleep(SHORTEST).await,
                        }
                    };
                    let uris = lane.news.updates.uris();
                    if let Ok((exchange, _)) = open_stream(handle, &link, permit, &uris).await {
                        break exchange;
                    }
                };
                lane.news.updates.all_updated();
            }
            CallEvent::Notice(_)
            | CallEvent::Progress(_)
            | CallEvent::Log(_)
            | CallEvent::Ask(_)
            | CallEvent::Withdrawn(_)
            | CallEvent::Alive
            | CallEvent::Unwritten => {}
        }
    }
}
