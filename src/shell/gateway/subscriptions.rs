//! Serves resource subscriptions of clients: decides them, and starts a watch in a session with the
//! resource's upstream.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::failure::CallFailure;
use crate::engine::route::{RouteError, RoutedRequest};
use crate::gateway::answer::{RequestAnswer, error_answer, unknown_item_answer};
use crate::gateway::call::translate;
use crate::gateway::client::ClientContext;
use crate::gateway::decision::gate::DiskGate;
use crate::gateway::decision::{CallContinuation, GatedPermit, RecordedRefusal};
use crate::gateway::service::Service;
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::gateway::watched::{MAX_WATCHED, WatchedResource};
use crate::mcp::asking::input::InputError;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::policy::ActionKind;
use crate::store::sessions::KeptSession;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::LaneRequest;
use crate::upstream::subscriptions::{ResourceWatch, WatchFailure, WatchTarget};
use crate::upstream::updates::{ResourceSubscriptions, UpdateStream};
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// The reason why a resource is not watched.
#[derive(Debug)]
enum WatchRefusal {
    /// The resource is not found, or its server cannot watch it now.
    NotThere(RequestAnswer),
    /// The policy does not allow it.
    Refused(RequestAnswer),
}

impl WatchRefusal {
    fn answer(self) -> RequestAnswer {
        match self {
            Self::NotThere(answer) | Self::Refused(answer) => answer,
        }
    }
}

/// A resource that may be watched: upstream, target, writes to wait for, number of the request.
type WatchableResource = (Arc<UpstreamHandle>, WatchTarget, Option<DiskGate>, u64);

/// How often the resources of a revived session are looked for, each time in another snapshot, and
/// the pause between two attempts.
const AGAIN: usize = 32;
const PAUSE: Duration = Duration::from_secs(1);

/// Deletes a subscription that has ended or was replaced from its stored session.
async fn delete_subscription(kept: Option<&Arc<KeptSession>>, uri: &str, held: Option<WatchedResource>) {
    if let Some((kept, slot)) = kept.zip(held.and_then(|held| held.slot)) {
        kept.drop_resource(slot, uri).await;
    }
}

impl Service {
    /// Serves `resources/subscribe` of a legacy client: starts the watch and stores the
    /// subscription with the session.
    pub async fn subscribe(self: Arc<Self>, client: ClientContext, params: RawObject) -> RequestAnswer {
        let Some(subscriptions) = &client.watched else {
            return RequestAnswer::error(
                code::INVALID_REQUEST,
                "subscriptions need a session; start with `initialize`",
                None,
            );
        };
        let uri = params.string("uri").unwrap_or_default();
        let (has_place, is_watched, count) = {
            let held = subscriptions.held.lock();
            let mine = held.get(&uri);
            (mine.is_some(), mine.is_some_and(|held| held.watching.is_some()), held.len())
        };
        if is_watched {
            return RequestAnswer::ok(RawJson::EMPTY_OBJECT);
        }
        if !has_place && count >= MAX_WATCHED {
            return RequestAnswer::error(code::INVALID_REQUEST, "too many subscriptions; end one first", None);
        }
        match self.watch(&client, &params, &subscriptions.watcher).await {
            Ok(watching) => {
                let slot = match &client.kept {
                    Some(kept) => Some(kept.keep_resource(&uri).await),
                    None => None,
                };
                let held = WatchedResource { slot, watching: Some(watching) };
                let before = subscriptions.held.lock().insert(uri.clone(), held);
                delete_subscription(client.kept.as_ref(), &uri, before).await;
                RequestAnswer::ok(RawJson::EMPTY_OBJECT)
            }
            Err(why) => why.answer(),
        }
    }

    /// Serves `resources/unsubscribe` of a legacy client. Succeeds also for a resource that is not
    /// watched.
    pub fn unsubscribe(client: &ClientContext, params: &RawObject) -> RequestOutcome {
        let Some(uri) = params.string("uri") else {
            let text = RouteError::Member("uri").to_string();
            return RequestOutcome::Answer(RequestAnswer::error(code::INVALID_PARAMS, &text, None));
        };
        let ended = client.watched.as_ref().and_then(|subscriptions| subscriptions.held.lock().remove(&uri));
        let done = RequestAnswer::ok(RawJson::EMPTY_OBJECT);
        let Some(kept) = client.kept.clone().filter(|_| ended.is_some()) else { return RequestOutcome::Answer(done) };
        RequestOutcome::Later(Box::pin(async move {
            delete_subscription(Some(&kept), &uri, ended).await;
            done
        }))
    }

    /// Watches the resources of a revived session again, with repeated attempts for resources that
    /// are not found, until `ended` fires. A resource that the policy refuses is not tried again,
    /// since each attempt is a decision and a record.
    pub async fn watch_again(self: Arc<Self>, client: ClientContext, ended: CancellationToken) {
        let Some(subscriptions) = &client.watched else { return };
        let watching = async {
            self.settled().await;
            let mut generation = self.generation.clone();
            let mut refused = HashSet::new();
            for _ in 0..AGAIN {
                generation.mark_unchanged();
                let mut missing = subscriptions.missing();
                missing.retain(|uri| !refused.contains(uri));
                if missing.is_empty() {
                    return;
                }
                for uri in missing {
                    let params = RawObject::of_strings(&[("uri", &uri)]);
                    match self.watch(&client, &params, &subscriptions.watcher).await {
                        Ok(watching) => subscriptions.found(&uri, watching),
                        Err(why) => {
                            tracing::debug!(?why, "a resource of a revived session is not watched yet");
                            if matches!(why, WatchRefusal::Refused(_)) {
                                refused.insert(uri);
                            }
                        }
                    }
                }
                tokio::time::sleep(PAUSE).await;
                if generation.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = ended.cancelled() => {}
            () = client.access.ended() => {}
            () = self.draining.cancelled() => {}
        }
    }

    /// Starts watches of the resources of a modern client's list. Returns those that could be
    /// started, by URI.
    pub async fn watch_all(
        self: &Arc<Self>,
        client: &ClientContext,
        uris: &[String],
        watcher: &Arc<UpdateStream>,
    ) -> Vec<(String, ResourceWatch)> {
        let mut watched = Vec::new();
        for uri in uris {
            let params = RawObject::of_strings(&[("uri", uri)]);
            if let Ok(watching) = self.watch(client, &params, watcher).await {
                watched.push((uri.clone(), watching));
            }
        }
        watched
    }

    /// Decides the watch of one resource and starts it at the upstream.
    async fn watch(
        self: &Arc<Self>,
        client: &ClientContext,
        params: &RawObject,
        watcher: &Arc<UpdateStream>,
    ) -> Result<ResourceWatch, WatchRefusal> {
        let (handle, mut target, gate, call) = self.find_watched(client, params).await?;
        let (caller, tag) = (client.caller.clone(), client.tag.clone());
        let wants = LaneRequest { caller, client: tag, offered: client.offered, apps: client.apps.clone() };
        let internal = |text: &str| RequestAnswer::error(code::INTERNAL, text, None);
        let refused = |failure: CallFailure| WatchRefusal::NotThere(error_answer(&failure, call));
        if let Some(mut gate) = gate {
            gate.pass().await.map_err(refused)?;
        }
        // A watch is not a call in flight.
        target.permit.leave();
        let (lane, link) =
            handle.lane(&wants).await.map_err(|failure| WatchRefusal::NotThere(internal(&failure.detail)))?;
        let watched = ResourceSubscriptions::watch(&handle, &lane, &link, target, watcher, &self.tasks).await;
        watched.map_err(|why| {
            WatchRefusal::NotThere(match why {
                WatchFailure::NotOffered => RequestAnswer::error(
                    code::INVALID_PARAMS,
                    "The server of this resource offers no subscriptions.",
                    None,
                ),
                // Pages to open belong to calls; here they would not be checked.
                WatchFailure::Refused(error) => {
                    translate(Method::ResourcesSubscribe, &error, client.revision, &Err(InputError::NotOffered))
                }
                WatchFailure::Silent => internal("The server of this resource did not answer in time."),
            })
        })
    }

    /// Finds the resource and decides its watch.
    async fn find_watched(
        &self,
        client: &ClientContext,
        params: &RawObject,
    ) -> Result<WatchableResource, WatchRefusal> {
        let snapshot = self.snapshots.load_full();
        let method = Method::ResourcesSubscribe;
        let (found, RoutedRequest { canonical, outgoing, .. }) =
            self.find(&snapshot, client, method, params, Meta::default()).map_err(WatchRefusal::NotThere)?;
        let action = found.action(client, ActionKind::Subscription, canonical);
        let call = self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let exposed = params.string("uri").unwrap_or_default();
        let GatedPermit { permit, gate } = match self.decide(&found, &action, &CallContinuation::Anew, call) {
            Ok(permitted) => permitted,
            Err(RecordedRefusal { refusal, recorded }) => {
                let unknown = || unknown_item_answer(&found.unknown(params), params, client.revision);
                let told = |failure: CallFailure| error_answer(&failure, call);
                let refused = WatchRefusal::Refused(refusal.failure().map_or_else(unknown, told));
                recorded.placed().await;
                return Err(refused);
            }
        };
        let original = outgoing.body.string("uri").unwrap_or_default();
        Ok((Arc::clone(found.handle), WatchTarget { original, exposed, permit }, gate, call))
    }
}
