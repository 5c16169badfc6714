//! The configured address of an HTTP upstream: the common parts of its requests, its credentials, and the answers that
//! refuse them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use url::Url;

use crate::config::{Target, Transport, Upstream};
use crate::login::challenge::Complaint;
use crate::upstream::http::answer::{drain, transport_error};
use crate::upstream::http::redirect::Redirect;
use crate::upstream::login::tokens::{Attempts, Keeper, challenge_of};
use crate::upstream::net::client::HttpClient;
use crate::upstream::net::connections::{AnswerBody, ClientError, Connections, Sending};
use crate::upstream::net::trust::refuses_certificate;
use crate::upstream::state::health::Health;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::standing::Standing;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Header fields of most requests.
const FIELDS: usize = 10;

/// Where an HTTP upstream is, and the way there.
pub struct Remote {
    pub url: Url,
    /// The configured address.
    pub uri: Uri,
    /// Where the server has redirected it to, within its origin.
    moved: ArcSwapOption<Uri>,
    /// The URL for people: without what was put in for variables.
    pub shown: String,
    /// The operator's headers, credentials among them.
    fixed: HeaderMap,
    /// One of them is a credential: a refusal means that one, and no login helps.
    has_credential: bool,
    /// HTTP+SSE may be tried where streamable HTTP is not spoken.
    pub(super) may_be_older: bool,
    client: HttpClient,
    /// Its own, where the client has none.
    connections: Option<Connections>,
    pub(super) health: Arc<Health>,
    /// The question for the era is under way.
    pub(crate) is_probing: AtomicBool,
    /// The token of a login; `None` where the configuration has a credential.
    keeper: Option<Arc<Keeper>>,
}

impl Remote {
    /// Reads the configuration and makes its scheme usable.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn of(
        spec: &Upstream,
        client: &HttpClient,
        health: &Arc<Health>,
        keeper: Option<&Arc<Keeper>>,
    ) -> Result<Self, String> {
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
        let own = keeper.map(|keeper| keeper.client()).transpose()?.flatten();
        let client = own.as_ref().unwrap_or(client).by(&spec.proxy, url)?;
        let prepared = client.prepare(&uri);
        prepared.map_err(|error| format!("the system's certificate store cannot be used: {error}"))?;
        let has_credential = spec.target.has_credential();
        let may_be_older = *transport == Transport::Auto;
        let (url, health) = (url.clone(), Arc::clone(health));
        let keeper = keeper.cloned();
        let shown = spec.target.shown_url().unwrap_or_default();
        let connections = client.connections(&uri);
        let moved = ArcSwapOption::empty();
        Ok(Self {
            url,
            uri,
            moved,
            shown,
            fixed,
            has_credential,
            may_be_older,
            client,
            connections,
            health,
            is_probing: AtomicBool::new(false),
            keeper,
        })
    }

    /// The address of the server at present.
    pub fn address(&self) -> Uri {
        self.moved.load().as_deref().unwrap_or(&self.uri).clone()
    }

    /// The address to which the request to `from` has to be sent again, if its answer redirects it.
    /// A redirect of the server's own address is remembered.
    ///
    /// # Errors
    /// [`HttpError::Elsewhere`].
    pub fn redirected<B>(&self, response: &Response<B>, from: &Uri, is_second: bool) -> Result<Option<Uri>, HttpError> {
        match Redirect::of(response, from, is_second) {
            None => Ok(None),
            Some(Redirect::Followed(to)) => {
                if *from == self.address() {
                    self.moved.store(Some(Arc::new(to.clone())));
                }
                Ok(Some(to))
            }
            Some(Redirect::Refused(why)) => {
                self.health.lasts("write the address that the last error names as `url`, if the server is there");
                Err(HttpError::Elsewhere(self.health.flaws.without_given(&why)))
            }
        }
    }

    /// A request with the headers of the transport. Its credentials are added when it is sent.
    pub fn request(&self, method: Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let accept = if method == Method::GET { EVENTS } else { BOTH };
        let has_body = !body.is_empty();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        // All that a call has, so that they are not moved.
        request.headers_mut().reserve(FIELDS);
        request.headers_mut().insert(ACCEPT, accept);
        if has_body {
            request.headers_mut().insert(CONTENT_TYPE, JSON);
        }
        request
    }

    /// Whether a login gives its requests their token.
    pub fn may_log_in(&self) -> bool {
        self.keeper.is_some()
    }

    /// Adds the credentials to a request. The headers of the protocol go before the operator's. Waits only for a token that has to be
    /// fetched or renewed. Cancel-safe.
    ///
    /// # Errors
    /// Those of [`Keeper::attach`].
    pub async fn authorize(&self, request: &mut Request<Full<Bytes>>) -> Result<Pass, HttpError> {
        for (name, value) in &self.fixed {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        match &self.keeper {
            Some(keeper) => keeper.attach(request.headers_mut()).await.map(Pass),
            None => Ok(Pass(None)),
        }
    }

    /// Sends a request that has its credentials; the head of its answer is awaited by the caller.
    pub fn start(&self, request: Request<Full<Bytes>>) -> Sending {
        match &self.connections {
            Some(connections) if connections.serve(request.uri()) => connections.send(request),
            _ => self.client.request(request),
        }
    }

    /// Whether a refused request is worth another attempt, with another token. Cancel-safe.
    pub fn judge(
        &self,
        response: &Response<AnswerBody>,
        Pass(had): Pass,
        mut attempts: Attempts,
    ) -> BoxFuture<'static, (bool, Attempts)> {
        let (refusal, keeper) = ((response.status(), challenge_of(response)), self.keeper.clone());
        Box::pin(async move {
            let again = match keeper {
                Some(keeper) => keeper.again(refusal, had, &mut attempts).await,
                None => false,
            };
            (again, attempts)
        })
    }

    /// Adds the credentials, sends a request and waits for the head of its answer, whatever that is. One that is refused for its token
    /// is sent again with another one, if there is one.
    ///
    /// # Errors
    /// [`HttpError::Connect`], [`HttpError::Broken`], and those of [`Self::authorize`] and
    /// [`Self::redirected`].
    pub async fn fetch(&self, mut request: Request<Full<Bytes>>) -> Result<(Response<AnswerBody>, Pass), HttpError> {
        let (mut attempts, mut was_redirected) = (Attempts::default(), false);
        loop {
            let mut sent = request.clone();
            let pass = self.authorize(&mut sent).await?;
            let response = self.start(sent).await.map_err(|error| self.lost(&error))?;
            if let Some(to) = self.redirected(&response, request.uri(), was_redirected)? {
                (*request.uri_mut(), was_redirected) = (to, true);
                drain(response.into_body()).await;
                continue;
            }
            if !self.may_log_in() || !is_refusal(response.status()) {
                return Ok((response, pass));
            }
            let (again, tried) = self.judge(&response, pass, attempts).await;
            attempts = tried;
            if !again {
                return Ok((response, pass));
            }
        }
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
            | HttpError::NoToken(_)
            | HttpError::Unadmitted(..)
            | HttpError::MoreScopes(_)
            | HttpError::Status(_)
            | HttpError::Elsewhere(_)
            | HttpError::Protocol(_)
            | HttpError::NoRoom(_) => {}
        }
        error
    }

    /// Judges the answer to a message: whether the server admits the gateway. Streams and ends of
    /// sessions are refused for other reasons too, so their answers are not judged.
    ///
    /// # Errors
    /// [`HttpError::Unadmitted`] and [`HttpError::MoreScopes`].
    pub fn admitted<B>(&self, response: &Response<B>, Pass(had): Pass) -> Result<(), HttpError> {
        let (standing, status) = (self.standing(response, had.is_some()), response.status());
        if standing == Standing::Admitted {
            self.health.stands(standing, String::new);
            return Ok(());
        }
        let keeper = self.keeper.as_ref().filter(|_| status == StatusCode::FORBIDDEN);
        let why = keeper.zip(challenge_of(response)).and_then(|(keeper, challenge)| keeper.refuses_scopes(&challenge));
        if let Some(why) = why {
            self.health.failed(why.clone());
            return Err(HttpError::MoreScopes(why));
        }
        // No person can log in there, so the reason is what helps.
        let unattended = self.keeper.as_ref().filter(|_| status == StatusCode::UNAUTHORIZED);
        if let Some(why) = unattended.and_then(|keeper| keeper.unattended_failure()) {
            self.health.failed(why.clone());
            return Err(HttpError::NoToken(why));
        }
        let error = HttpError::Unadmitted(standing, status);
        if status == StatusCode::FORBIDDEN && had.is_some() {
            // The login is good for everything else.
            self.health.failed("a call wants more rights than the login has".to_owned());
        } else {
            self.health.stands(standing, || error.to_string());
        }
        Err(error)
    }

    /// Whether the server does not admit the gateway with this answer. Unlike [`Self::admitted`] it
    /// takes no note of that.
    pub fn is_unadmitted<B>(&self, response: &Response<B>, Pass(had): Pass) -> bool {
        self.standing(response, had.is_some()) != Standing::Admitted
    }

    /// How the server takes the credentials that the request had; `had` says that a token of a login was among them.
    fn standing<B>(&self, response: &Response<B>, had: bool) -> Standing {
        let challenge = challenge_of(response).filter(|_| !self.has_credential);
        match response.status() {
            StatusCode::UNAUTHORIZED if challenge.is_some() && had => Standing::LoginExpired,
            StatusCode::UNAUTHORIZED if challenge.is_some() => Standing::NeedsLogin,
            StatusCode::UNAUTHORIZED => Standing::Refused,
            StatusCode::FORBIDDEN if challenge.is_some_and(|one| one.error == Some(Complaint::InsufficientScope)) => {
                Standing::NeedsLogin
            }
            StatusCode::FORBIDDEN if !answers(response) => Standing::Refused,
            _ => Standing::Admitted,
        }
    }

    /// Sends a message on which the connection depends.
    ///
    /// # Errors
    /// Those of [`Self::fetch`] and [`Self::admitted`].
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, HttpError> {
        let (response, pass) = self.fetch(request).await?;
        self.admitted(&response, pass)?;
        Ok(response)
    }
}

/// The version of the token that a request had, if it had one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass(Option<u64>);

/// Whether an answer may be about the credentials.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Whether a 403 is the server's own answer, about one tool say: it is JSON and challenges nobody. A server that wants other
/// credentials says which. Source: MCP 2025-11-25, authorization, "Scope Challenge Handling".
fn answers<B>(response: &Response<B>) -> bool {
    let headers = response.headers();
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    response.status() == StatusCode::FORBIDDEN && is_json && !headers.contains_key(WWW_AUTHENTICATE)
}
