//! What HTTP adds to a modern request: headers that must say what the body says, and streams of changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response};

use crate::engine::answer::Answer;
use crate::engine::client::head::{Head, mismatch};
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::quota::Place;
use crate::gateway::service::Service;
use crate::listener::body::ReplyBody;
use crate::listener::reply;
use crate::mcp::input::Kinds;
use crate::mcp::meta::{Meta, SUBSCRIPTION_ID};
use crate::mcp::method::List;
use crate::serve::feed::{Feed, updated_notice};
use crate::serve::front::Front;
use crate::upstream::subscriptions::Watching;
use crate::upstream::updates::Watcher;
use crate::wire::code;
use crate::wire::message::{self, Request};
use crate::wire::raw::{RawJson, RawObject};
use crate::wire::sse;

impl Head for HeaderMap {
    fn field(&self, name: &str) -> (Option<&[u8]>, bool) {
        let mut values = self.get_all(name).iter();
        (values.next().map(HeaderValue::as_bytes), values.next().is_some())
    }
}

/// Checks the arguments that the tool's schema wants repeated in headers, for tools that this client can see.
///
/// # Errors
/// The answer to send.
pub(crate) fn check_param_headers(
    service: &Service,
    client: &ClientContext,
    headers: &HeaderMap,
    params: &RawObject,
) -> Result<(), Answer> {
    let snapshot = service.snapshots.load_full();
    let Some(view) = view_of(&snapshot, client).filter(|view| view.catalog.mirrors_arguments) else { return Ok(()) };
    let found = params.string("name").and_then(|name| view.catalog.find(List::Tools, &name));
    let found = found.filter(|at| view.visible(&snapshot.policy, *at, client.viewer()));
    let Some(entry) = found.and_then(|at| view.catalog.entry(at)).filter(|entry| !entry.headers.is_empty()) else {
        return Ok(());
    };
    for (name, _) in entry.headers.params() {
        if headers.get_all(format!("mcp-param-{name}").to_ascii_lowercase()).iter().nth(1).is_some() {
            return Err(mismatch("an Mcp-Param header stands twice"));
        }
    }
    let arguments = params.get("arguments").map(RawJson::text);
    let find = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    entry.headers.check(arguments.as_deref(), find).map_err(|error| mismatch(&error.to_string()))
}

/// What a listener asked for and gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    methods: Vec<&'static str>,
    honoured: Vec<&'static str>,
    uris: Vec<String>,
    /// What the client can be asked for, which decides which of a legacy server's sessions tells of updates.
    pub(crate) offered: Kinds,
}

impl Wanted {
    /// Reads the filter. List changes are always honoured, resources where their server tells of updates.
    ///
    /// # Errors
    /// The answer to send.
    pub(crate) fn read(params: &RawObject, max_uris: usize) -> Result<Self, Answer> {
        let bad = |text: &str| Answer::error(code::INVALID_PARAMS, text, None);
        let filter = params.get("notifications").ok_or_else(|| bad("params lacks `notifications`"))?;
        let filter = RawObject::parse(filter).map_err(|_| bad("`notifications` must be an object"))?;
        let capabilities = Meta::of(params).ok().and_then(|meta| meta.input_capabilities());
        let mut wanted = Self { offered: Kinds::of(capabilities.as_ref()), ..Self::default() };
        for (key, list) in [
            ("toolsListChanged", List::Tools),
            ("promptsListChanged", List::Prompts),
            ("resourcesListChanged", List::Resources),
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

    /// Begins to watch what can be watched.
    pub(crate) async fn watch(
        &self,
        service: &Arc<Service>,
        client: &ClientContext,
    ) -> (Arc<Watcher>, Vec<(String, Watching)>) {
        let watcher = Arc::default();
        let watched = service.watch_all(client, &self.uris, &watcher).await;
        (watcher, watched)
    }

    /// The notification of an update.
    pub(crate) fn updated(&self, id: &RawJson, uri: &str) -> Bytes {
        updated_notice(uri, Some(&subscription(id)))
    }

    /// The acknowledgement, which must be the first message of the stream.
    pub(crate) fn acknowledged(&self, id: &RawJson, watched: &[(String, Watching)]) -> Bytes {
        let mut honoured: Vec<String> = self.honoured.iter().map(|key| format!(r#""{key}":true"#)).collect();
        if !watched.is_empty() {
            let uris = RawJson::list(watched.iter().map(|(uri, _)| RawJson::string(uri)));
            honoured.push(format!(r#""resourceSubscriptions":{}"#, uris.text()));
        }
        let params = format!(r#"{{"notifications":{{{}}},"_meta":{}}}"#, honoured.join(","), subscription(id));
        message::encode_notification("notifications/subscriptions/acknowledged", Some(&RawJson::trusted(params)))
    }

    /// The notification of one change, if it was asked for.
    pub(crate) fn notice(&self, id: &RawJson, method: &'static str) -> Option<Bytes> {
        self.methods.contains(&method).then(|| {
            let params = RawJson::trusted(format!(r#"{{"_meta":{}}}"#, subscription(id)));
            message::encode_notification(method, Some(&params))
        })
    }
}

/// The result that ends a subscription.
pub(crate) fn listen_end(id: &RawJson) -> Bytes {
    message::encode_result(id, format!(r#"{{"resultType":"complete","_meta":{}}}"#, subscription(id)).as_bytes())
}

fn subscription(id: &RawJson) -> String {
    format!(r#"{{"{SUBSCRIPTION_ID}":{}}}"#, id.text())
}

/// A stream of changes over HTTP: acknowledgement, changes, and a result when the gateway ends it.
pub(crate) fn listen(
    front: &Front,
    client: &ClientContext,
    request: &Request,
    params: &RawObject,
    place: Place,
) -> Response<ReplyBody> {
    let wanted = match Wanted::read(params, front.limits.uris_per_stream) {
        Ok(wanted) => wanted,
        Err(answer) => return reply::answer(request.id.raw(), answer),
    };
    let state = Listening {
        feed: Feed::new(Arc::clone(&front.service), client.clone()),
        client: client.clone(),
        watched: (Arc::default(), Vec::new()),
        service: Arc::clone(&front.service),
        wanted,
        id: request.id.raw().clone(),
        keepalive: front.keepalive,
        _place: place,
        stage: Stage::Acknowledge,
    };
    reply::events(stream::unfold(state, Listening::step))
}

struct Listening {
    feed: Feed,
    client: ClientContext,
    /// Ends with the stream.
    watched: (Arc<Watcher>, Vec<(String, Watching)>),
    service: Arc<Service>,
    wanted: Wanted,
    id: RawJson,
    keepalive: Duration,
    _place: Place,
    stage: Stage,
}

enum Stage {
    Acknowledge,
    Listen,
    Ended,
}

impl Listening {
    async fn step(mut self) -> Option<(Bytes, Self)> {
        match self.stage {
            Stage::Acknowledge => {
                self.stage = Stage::Listen;
                self.watched = self.wanted.watch(&self.service, &self.client).await;
                let bytes = sse::event(None, None, &[&self.wanted.acknowledged(&self.id, &self.watched.1)]);
                Some((bytes, self))
            }
            Stage::Listen => {
                let draining = self.service.draining.clone();
                let bytes = tokio::select! {
                    methods = self.feed.changed() => {
                        let notices = methods.into_iter().filter_map(|method| self.wanted.notice(&self.id, method));
                        notices.map(|notice| sse::event(None, None, &[&notice])).collect::<Vec<_>>().concat().into()
                    }
                    uris = self.watched.0.updated() => {
                        let notices = uris.iter().map(|uri| self.wanted.updated(&self.id, uri));
                        notices.map(|notice| sse::event(None, None, &[&notice])).collect::<Vec<_>>().concat().into()
                    }
                    () = tokio::time::sleep(self.keepalive) => sse::comment("keep-alive"),
                    () = draining.cancelled() => {
                        self.stage = Stage::Ended;
                        sse::event(None, None, &[&listen_end(&self.id)])
                    }
                };
                Some((bytes, self))
            }
            Stage::Ended => None,
        }
    }
}
