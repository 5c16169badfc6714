//! A subscription of a modern client: what it asked for, what it gets, and its messages,
//! independent of the transport.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::engine::answer::RequestAnswer;
use crate::gateway::client::ClientContext;
use crate::gateway::service::Service;
use crate::gateway::watched::{ResourceWatch, UpdateStream};
use crate::mcp::meta::SUBSCRIPTION_ID;
use crate::mcp::method::ItemList;
use crate::serve::feed::{ListChangeFeed, updated_notice};
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message;

/// An open subscription.
pub(crate) struct OpenSubscription {
    service: Arc<Service>,
    client: ClientContext,
    id: RawJson,
    wanted: SubscriptionFilter,
    feed: ListChangeFeed,
    watcher: Arc<UpdateStream>,
    /// Resources being watched, until the subscription is dropped; `None` before it is
    /// acknowledged.
    watched: Option<Vec<(String, ResourceWatch)>>,
}

impl OpenSubscription {
    /// Opens the subscription that the request with this id asks for.
    ///
    /// # Errors
    /// The answer to send.
    pub(crate) async fn open(
        service: &Arc<Service>,
        client: ClientContext,
        id: &RawJson,
        params: &RawObject,
        max_uris: usize,
    ) -> Result<Self, RequestAnswer> {
        let wanted = SubscriptionFilter::read(params, max_uris)?;
        if let Some(refused) = service.refuse_watches(&client, &wanted.uris).await {
            return Err(refused);
        }
        let feed = ListChangeFeed::new(Arc::clone(service), client.clone());
        let (service, id) = (Arc::clone(service), id.clone());
        Ok(Self { service, client, id, wanted, feed, watcher: Arc::default(), watched: None })
    }

    /// Starts watching the resources and returns the acknowledgement, which must be the first
    /// message; `None` if it was returned before. Not cancel-safe.
    pub(crate) async fn acknowledge(&mut self) -> Option<Bytes> {
        if self.watched.is_some() {
            return None;
        }
        let watched = self.service.watch_all(&self.client, &self.wanted.uris, &self.watcher).await;
        let acknowledged = self.wanted.acknowledged(&self.id, &watched);
        self.watched = Some(watched);
        Some(acknowledged)
    }

    /// Waits for the next notifications, or breaks with the result by which the gateway ends the
    /// subscription. Cancel-safe.
    pub(crate) async fn next(&mut self) -> ControlFlow<Bytes, Vec<Bytes>> {
        let (wanted, id) = (&self.wanted, &self.id);
        ControlFlow::Continue(tokio::select! {
            methods = self.feed.changed() => methods.into_iter().filter_map(|method| wanted.notice(id, method)).collect(),
            uris = self.watcher.updated() => uris.iter().map(|uri| updated_notice(uri, Some(&subscription(id)))).collect(),
            () = ended(&self.service, &self.client) => {
                let end = format!(r#"{{"resultType":"complete","_meta":{}}}"#, subscription(id));
                return ControlFlow::Break(message::encode_result(id, end.as_bytes()));
            }
        })
    }
}

/// Resolves when the gateway drains, the client's access ends, or its credential expires.
async fn ended(service: &Service, client: &ClientContext) {
    tokio::select! {
        () = service.draining.cancelled() => {}
        () = client.access.ended() => {}
        () = client.access.expired() => {}
    }
}

/// The parts of a subscription that the client asked for.
#[derive(Debug, Default)]
struct SubscriptionFilter {
    /// Notification methods asked for.
    methods: Vec<&'static str>,
    /// Keys of the filter that are honoured, for the acknowledgement.
    honoured: Vec<&'static str>,
    uris: Vec<String>,
}

impl SubscriptionFilter {
    /// Parses the filter of a subscription. List changes are always honoured, resources only if
    /// their server reports updates.
    ///
    /// # Errors
    /// The answer to send.
    fn read(params: &RawObject, max_uris: usize) -> Result<Self, RequestAnswer> {
        let bad = |text: &str| RequestAnswer::error(code::INVALID_PARAMS, text, None);
        let filter = params.get("notifications").ok_or_else(|| bad("params lacks `notifications`"))?;
        let filter = RawObject::parse(filter).map_err(|_| bad("`notifications` must be an object"))?;
        let mut wanted = Self::default();
        for (key, list) in [
            ("toolsListChanged", ItemList::Tools),
            ("promptsListChanged", ItemList::Prompts),
            ("resourcesListChanged", ItemList::Resources),
        ] {
            match filter.get(key).map(|raw| raw.bytes().as_ref().to_vec()).as_deref() {
                Some(b"true") => {
                    wanted.methods.push(list.changed());
                    wanted.honoured.push(key);
                }
                None | Some(b"false") => {}
                Some(_) => return Err(bad("a member of `notifications` has the wrong type")),
            }
        }
        if let Some(uris) = filter.get("resourceSubscriptions") {
            let uris = uris.parse::<Vec<String>>();
            let uris = uris.map_err(|_| bad("`resourceSubscriptions` must be a list of URIs"))?;
            if uris.len() > max_uris {
                return Err(bad(&format!("`resourceSubscriptions` may hold {max_uris} URIs")));
            }
            wanted.uris = uris;
            wanted.uris.sort_unstable();
            wanted.uris.dedup();
        }
        Ok(wanted)
    }

    /// Creates the acknowledgement. It names the resources that are actually watched.
    fn acknowledged(&self, id: &RawJson, watched: &[(String, ResourceWatch)]) -> Bytes {
        let mut honoured: Vec<String> = self.honoured.iter().map(|key| format!(r#""{key}":true"#)).collect();
        if !watched.is_empty() {
            let uris = RawJson::list(watched.iter().map(|(uri, _)| RawJson::string(uri)));
            honoured.push(format!(r#""resourceSubscriptions":{}"#, uris.text()));
        }
        let params = format!(r#"{{"notifications":{{{}}},"_meta":{}}}"#, honoured.join(","), subscription(id));
        message::encode_notification("notifications/subscriptions/acknowledged", Some(&RawJson::trusted(params)))
    }

    /// Creates the notification of a list change, if the client asked for it.
    fn notice(&self, id: &RawJson, method: &'static str) -> Option<Bytes> {
        self.methods.contains(&method).then(|| {
            let params = RawJson::trusted(format!(r#"{{"_meta":{}}}"#, subscription(id)));
            message::encode_notification(method, Some(&params))
        })
    }
}

/// Creates the `_meta` object that names the subscription.
fn subscription(id: &RawJson) -> String {
    format!(r#"{{"{SUBSCRIPTION_ID}":{}}}"#, id.text())
}
