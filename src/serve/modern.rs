//! What HTTP adds to a modern request: headers that must say what the body says, and streams of changes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response};

use crate::engine::answer::Answer;
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::quota::Place;
use crate::gateway::service::Service;
use crate::listener::body::ReplyBody;
use crate::listener::reply;
use crate::mcp::capability::unsupported_version_data;
use crate::mcp::input::Kinds;
use crate::mcp::meta::{Meta, SUBSCRIPTION_ID};
use crate::mcp::method::{List, Method};
use crate::mcp::version::{Era, Revision};
use crate::serve::feed::{Feed, updated_notice};
use crate::serve::front::Front;
use crate::upstream::subscriptions::Watching;
use crate::upstream::updates::Watcher;
use crate::wire::code;
use crate::wire::headers::decode_value;
use crate::wire::message::{self, Request};
use crate::wire::raw::{RawJson, RawObject};
use crate::wire::sse;

/// A refusal of a rung of the ladder.
pub(crate) fn mismatch(why: &str) -> Answer {
    Answer::error(code::HEADER_MISMATCH, why, None).with_status(400)
}

/// The revision that a request claims.
///
/// # Errors
/// The answer to send: it is not served, or has no `_meta` to claim it in.
pub(crate) fn claimed_revision(claimed: &str) -> Result<Revision, Answer> {
    Revision::parse(claimed).filter(|revision| revision.era() == Era::Modern).ok_or_else(|| {
        let served: Vec<&str> = Revision::of(Era::Modern).rev().map(Revision::as_str).collect();
        let text = format!("Unsupported protocol version; this server speaks {}", served.join(", "));
        let data = unsupported_version_data(claimed);
        Answer::error(code::UNSUPPORTED_VERSION, &text, Some(&data)).with_status(400)
    })
}

/// Checks version and `Mcp-*` headers against the body, which names the revision. Policy never reads them again.
///
/// Source: MCP 2026-07-28, streamable-http, "Server validation"; order as the official suite expects it.
///
/// # Errors
/// The answer to send.
pub(crate) fn check_headers(
    headers: &HeaderMap,
    request: &Request,
    method: Method,
    params: &RawObject,
    claimed: &str,
) -> Result<Revision, Answer> {
    for name in ["mcp-protocol-version", "mcp-method", "mcp-name"] {
        if headers.get_all(name).iter().nth(1).is_some() {
            return Err(mismatch(&format!("the header {name} stands twice")));
        }
    }
    let version = headers.get("mcp-protocol-version").and_then(|v| v.to_str().ok()).map(str::trim);
    if version.is_some_and(|version| version != claimed) {
        return Err(mismatch("MCP-Protocol-Version differs from the version in params._meta"));
    }
    let named = headers.get("mcp-method").map(|v| v.as_bytes().trim_ascii());
    if named.is_some_and(|named| named != request.method.as_bytes()) {
        return Err(mismatch("Mcp-Method differs from the method in the body"));
    }
    let revision = claimed_revision(claimed)?;
    if version.is_none() {
        return Err(mismatch("the MCP-Protocol-Version header is missing"));
    }
    if named.is_none() {
        return Err(mismatch("the Mcp-Method header is missing"));
    }
    let Some(in_body) = method.name_member().and_then(|member| params.string(member)) else {
        return Ok(revision);
    };
    let Some(header) = headers.get("mcp-name") else { return Err(mismatch("the Mcp-Name header is missing")) };
    match decode_value(header.as_bytes()) {
        Ok(Cow::Borrowed(value)) if value == in_body => Ok(revision),
        Ok(Cow::Owned(value)) if value == in_body => Ok(revision),
        Ok(_) => Err(mismatch("Mcp-Name differs from the name in the body")),
        Err(_) => Err(mismatch("Mcp-Name cannot be decoded")),
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

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use crate::wire::id::ClientId;

    /// What a call of the tool `t` is told that claims this revision with these headers; the revision where it may pass.
    fn told(claimed: &str, headers: &[(&'static str, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let id = ClientId::from_raw(RawJson::trusted("1")).unwrap();
        let request = Request { id, method: "tools/call".to_owned(), params: None };
        let params = RawObject::parse(&RawJson::trusted(r#"{"name":"t"}"#)).unwrap();
        match check_headers(&map, &request, Method::ToolsCall, &params, claimed) {
            Ok(revision) => revision.to_string(),
            Err(answer) => {
                assert_eq!(answer.status, Some(400));
                answer.outcome.unwrap_err().text().into_owned()
            }
        }
    }

    #[test]
    fn headers_of_2026_07_28_are_checked_as_if_no_revision_had_followed() {
        const NOW: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
        const LATER: (&str, &str) = ("mcp-protocol-version", "2099-12-31");
        const CALL: (&str, &str) = ("mcp-method", "tools/call");
        const NAME: (&str, &str) = ("mcp-name", "t");
        let bad = |why: &str| format!(r#"{{"code":-32020,"message":"{why}"}}"#);
        for (headers, want) in [
            (vec![NOW, CALL, NAME], "2026-07-28".to_owned()),
            (vec![NOW, NOW, CALL, NAME], bad("the header mcp-protocol-version stands twice")),
            (vec![CALL, NAME], bad("the MCP-Protocol-Version header is missing")),
            (vec![LATER, CALL, NAME], bad("MCP-Protocol-Version differs from the version in params._meta")),
            (vec![NOW, NAME], bad("the Mcp-Method header is missing")),
            (vec![NOW, ("mcp-method", "ping"), NAME], bad("Mcp-Method differs from the method in the body")),
            (vec![NOW, CALL], bad("the Mcp-Name header is missing")),
            (vec![NOW, CALL, ("mcp-name", "u")], bad("Mcp-Name differs from the name in the body")),
        ] {
            assert_eq!(told("2026-07-28", &headers), want, "{headers:?}");
        }
        assert_eq!(told("2099-12-31", &[LATER, CALL, NAME]), "2099-12-31");
        for claimed in ["2025-11-25", "2031-01-01", ""] {
            let want = format!(
                r#"{{"code":-32022,"message":"Unsupported protocol version; this server speaks 2099-12-31, 2026-07-28","data":{{"supported":["2099-12-31","2026-07-28"],"requested":"{claimed}"}}}}"#
            );
            assert_eq!(told(claimed, &[CALL, NAME]), want);
        }
    }
}
