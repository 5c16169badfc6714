//! The configured address of an HTTP upstream: the common parts of its requests, its credentials, and the answers that
//! refuse them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Error as ClientError, ResponseFuture};
use url::Url;

use crate::config::{Target, Transport, Upstream};
use crate::upstream::answer::{HttpError, refuses_certificate, transport_error};
use crate::upstream::client::HttpClient;
use crate::upstream::health::Health;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Where an HTTP upstream is, and the way there.
pub(crate) struct Remote {
    pub(crate) url: Url,
    pub(crate) uri: Uri,
    /// The URL for people: without what was put in for variables.
    pub(crate) shown: String,
    /// The operator's headers, credentials among them.
    fixed: HeaderMap,
    /// HTTP+SSE may be tried where streamable HTTP is not spoken.
    pub(super) may_be_older: bool,
    client: HttpClient,
    pub(super) health: Arc<Health>,
}

impl Remote {
    /// Reads the configuration and makes its scheme usable.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn of(spec: &Upstream, client: &HttpClient, health: &Arc<Health>) -> Result<Self, String> {
        let Target::Http { url, headers, transport, .. } = &spec.target else {
            return Err("not an HTTP upstream".to_owned());
        };
        let uri = url.as_str().parse::<Uri>().map_err(|_| "its URL is no HTTP URI".to_owned())?;
        let mut fixed = HeaderMap::new();
        for (name, value) in headers {
            let (Ok(name), Ok(mut value)) =
                (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value.expose()))
            else {
                return Err(format!("its header `{name}` is no HTTP header"));
            };
            value.set_sensitive(true);
            fixed.insert(name, value);
        }
        let prepared = client.prepare(&uri);
        prepared.map_err(|error| format!("the system's certificate store cannot be used: {error}"))?;
        let may_be_older = *transport == Transport::Auto;
        let (url, client, health) = (url.clone(), client.clone(), Arc::clone(health));
        let shown = spec.target.shown_url().unwrap_or_default();
        Ok(Self { url, uri, shown, fixed, may_be_older, client, health })
    }

    /// A request with the headers of the transport. Its credentials are added when it is sent.
    pub(crate) fn request(&self, method: Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let accept = if method == Method::GET { EVENTS } else { BOTH };
        let has_body = !body.is_empty();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        request.headers_mut().insert(ACCEPT, accept);
        if has_body {
            request.headers_mut().insert(CONTENT_TYPE, JSON);
        }
        request
    }

    /// Adds the credentials to a request. The headers of the protocol go before the operator's. Cancel-safe.
    #[expect(clippy::unused_async, reason = "where a token must be fetched or renewed, requests wait here")]
    pub(crate) async fn authorize(&self, request: &mut Request<Full<Bytes>>) {
        for (name, value) in &self.fixed {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }

    /// Sends a request that has its credentials; the head of its answer is awaited by the caller.
    pub(crate) fn start(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.client.request(request)
    }

    /// Adds the credentials, sends a request and waits for the head of its answer, whatever that is.
    ///
    /// # Errors
    /// [`HttpError::Connect`] and [`HttpError::Broken`].
    pub(crate) async fn fetch(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, HttpError> {
        self.authorize(&mut request).await;
        self.start(request).await.map_err(|error| self.lost(&error))
    }

    /// Takes note of a request without an answer.
    pub(super) fn lost(&self, error: &ClientError) -> HttpError {
        if refuses_certificate(error) {
            self.health.lasts("correct `url`, or have the server's certificate mended");
        }
        let error = transport_error(error);
        match &error {
            HttpError::Connect(_) => self.health.unreached(&error.to_string()),
            HttpError::NoDescriptor(_) => self.health.no_descriptor(),
            HttpError::Broken(_)
            | HttpError::Unauthorized(_)
            | HttpError::Status(_)
            | HttpError::Protocol(_)
            | HttpError::NoRoom(_) => {}
        }
        error
    }

    /// The answer to a message, unless it refuses the credentials. Streams and ends of sessions are refused for other reasons
    /// too, so their answers are not judged.
    ///
    /// # Errors
    /// [`HttpError::Unauthorized`].
    pub(crate) fn admitted(&self, response: Response<Incoming>) -> Result<Response<Incoming>, HttpError> {
        let status = response.status();
        if !answers(&response) && self.health.refuses(status) {
            return Err(HttpError::Unauthorized(status));
        }
        Ok(response)
    }

    /// Sends a message on which the connection depends.
    ///
    /// # Errors
    /// Those of [`Self::fetch`] and [`Self::admitted`].
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, HttpError> {
        self.fetch(request).await.and_then(|response| self.admitted(response))
    }
}

/// Whether a 403 is the server's own answer, about one tool say: it is JSON and challenges nobody. A server that wants other
/// credentials says which. Source: MCP 2025-11-25, authorization, "Scope Challenge Handling".
fn answers(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    response.status() == StatusCode::FORBIDDEN && is_json && !headers.contains_key(WWW_AUTHENTICATE)
}
