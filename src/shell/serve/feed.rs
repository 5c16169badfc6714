//! Notifications to one client that belong to none of its calls. A list change is sent only if the
//! part of the list that the client sees has changed.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::base::clock;
use crate::base::never::or_never;
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::service::Service;
use crate::mcp::log::write_for_client;
use crate::mcp::method::ItemList;
use crate::mcp::notice::NoticeKind;
use crate::wire::json::raw::RawJson;
use crate::wire::message::encode_notification;

/// Waits for the next notification from an upstream for a legacy client that belongs to none of its
/// calls: a log message at the level the client has set, or the end of a visit to a page.
/// Cancel-safe.
async fn wait_for_unclaimed(client: &ClientContext) -> Bytes {
    let (Some(tag), Some(level)) = (&client.tag, &client.log) else { return std::future::pending().await };
    loop {
        let (upstream, notice) = tag.next().await;
        let params = match NoticeKind::of(&notice.method) {
            NoticeKind::Log => level
                .get()
                .zip(notice.params)
                .and_then(|(least, params)| write_for_client(&params, least, upstream.as_str())),
            NoticeKind::PageDone => notice.params.filter(|_| client.revision.features().elicitation_ids),
            NoticeKind::Progress
            | NoticeKind::Cancelled
            | NoticeKind::Updated
            | NoticeKind::Changed(_)
            | NoticeKind::Other => None,
        };
        if let Some(params) = params {
            return encode_notification(&notice.method, Some(&params));
        }
    }
}

/// Creates the notification that a resource was updated; `meta` names the subscription that it
/// belongs to.
pub(crate) fn updated_notice(uri: &str, meta: Option<&str>) -> Bytes {
    let meta = meta.map(|meta| format!(r#","_meta":{meta}"#)).unwrap_or_default();
    let params = RawJson::trusted(format!(r#"{{"uri":{}{meta}}}"#, RawJson::string(uri).text()));
    encode_notification("notifications/resources/updated", Some(&params))
}

/// The state of one client's list-change notifications.
#[derive(Debug)]
pub(crate) struct ListChangeFeed {
    service: Arc<Service>,
    client: ClientContext,
    generation: watch::Receiver<u64>,
    /// Digests of the lists that the client knows.
    told: [u64; 4],
}

impl ListChangeFeed {
    /// Creates a feed for a client that knows the current lists.
    pub(crate) fn new(service: Arc<Service>, client: ClientContext) -> Self {
        let generation = service.generation.clone();
        let mut feed = Self { service, client, generation, told: [0; 4] };
        feed.generation.mark_unchanged();
        feed.told = feed.digests();
        feed
    }

    /// Returns the digests of the lists that the client knows.
    pub(crate) fn told(&self) -> [u64; 4] {
        self.told
    }

    /// Continues from the lists that the client knows by an earlier feed.
    fn since(mut self, told: Option<[u64; 4]>) -> Self {
        if let Some(told) = told {
            self.told = told;
            self.generation.mark_changed();
        }
        self
    }

    /// Waits for changes and returns the notification methods to send, each once. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> Vec<&'static str> {
        loop {
            if self.generation.changed().await.is_err() {
                // The supervisor has ended; nothing will change any more.
                std::future::pending::<()>().await;
            }
            let now = self.digests();
            let mut methods: Vec<&'static str> = Vec::new();
            for ((list, new), old) in ItemList::ALL.into_iter().zip(now).zip(self.told) {
                if new != old && !methods.contains(&list.changed()) {
                    methods.push(list.changed());
                }
            }
            self.told = now;
            if !methods.is_empty() {
                return methods;
            }
        }
    }

    /// Returns digests of the lists as the client sees them now.
    fn digests(&self) -> [u64; 4] {
        let snapshot = self.service.snapshots.load_full();
        let Some(view) = view_of(&snapshot, &self.client) else { return [0; 4] };
        let (viewer, keys, now) = (self.client.viewer(), &self.service.keys, clock::since_1970());
        ItemList::ALL.map(|list| snapshot.list(view, list, viewer, &keys.cursors, now).digest)
    }
}

/// All notifications to a legacy client that belong to none of its calls.
#[derive(Debug)]
pub(crate) struct ClientNotifications {
    pub feed: ListChangeFeed,
    client: ClientContext,
}

impl ClientNotifications {
    /// Creates the source of notifications. `told` are digests of the lists that the client knows
    /// from an earlier stream.
    pub(crate) fn new(service: &Arc<Service>, client: ClientContext, told: Option<[u64; 4]>) -> Self {
        Self { feed: ListChangeFeed::new(Arc::clone(service), client.clone()).since(told), client }
    }

    /// Waits for the next notifications. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Vec<Bytes> {
        let updated = or_never(self.client.watched.as_ref().map(|watched| watched.watcher.updated()));
        tokio::select! {
            methods = self.feed.changed() => methods.into_iter().map(|one| encode_notification(one, None)).collect(),
            message = wait_for_unclaimed(&self.client) => vec![message],
            uris = updated => uris.iter().map(|uri| updated_notice(uri, None)).collect(),
        }
    }
}
