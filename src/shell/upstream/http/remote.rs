//! The server at the configured address of an HTTP upstream: common parts of requests to it, the
//! gateway's credentials, and answers that refuse them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use url::Url;

use crate::config::{HttpTransport, UpstreamSettings, UpstreamTarget};
use crate::login::challenge::TokenComplaint;
use crate::upstream::http::answer::{drain, transport_error};
use crate::upstream::http::redirect::Redirect;
use crate::upstream::login::tokens::{TokenAttempts, TokenKeeper, challenge_of};
use crate::upstream::net::client::HttpClient;
use crate::upstream::net::connections::{AnswerBody, AnswerHeadFuture, ClientError, PlainConnections};
use crate::upstream::net::trust::Certificates;
use crate::upstream::net::trust::refuses_certificate;
use crate::upstream::state::health::UpstreamHealth;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::standing::CredentialStanding;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Number of header fields that most requests have.
const FIELDS: usize = 10;

/// The server of an HTTP upstream, and the means to send requests to it.
pub struct RemoteServer {
    pub url: Url,
    /// The configured address.
    pub uri: Uri,
    /// The address to which the server has redirected, within its origin.
    moved: ArcSwapOption<Uri>,
    /// The URL as shown to people, without the values of variables.
    pub shown: String,
    /// The headers of the configuration, credentials among them.
    fixed: HeaderMap,
    /// True if a configured header is a credential: then a refusal is about that credential, and no
    /// login helps.
    has_credential: bool,
    /// True if HTTP+SSE may be tried when the server does not speak streamable HTTP.
    pub may_be_older: bool,
    client: HttpClient,
    /// Connections of this upstream's own; `None` if all requests use the client's pool.
    connections: Option<PlainConnections>,
    pub health: Arc<UpstreamHealth>,
    /// True while the request that finds out the server's era has no answer.
    pub is_probing: AtomicBool,
    /// The server's instructions in the latest handshake of the main session, cleaned.
    pub instructions: ArcSwapOption<Arc<str>>,
    /// The token of a login; `None` if the configuration has a credential.
    keeper: Option<Arc<TokenKeeper>>,
}

impl RemoteServer {
    /// Reads the configuration, and prepares the client for the URL's scheme.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn of(
        spec: &UpstreamSettings,
        client: &HttpClient,
        health: &Arc<UpstreamHealth>,
        keeper: Option<&Arc<TokenKeeper>>,
    ) -> Result<Self, String> {
        let UpstreamTarget::Http { url, headers, transport, .. } = &spec.target else {
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
        let own = match keeper {
            Some(keeper) => keeper.client()?,
            None if spec.certificates.is_empty() => None,
            None => Some(HttpClient::of(&Certificates::of(&spec.certificates)?)?),
        };
        let client = own.as_ref().unwrap_or(client).by(&spec.proxy, url)?;
        let prepared = client.prepare(&uri);
        prepared.map_err(|error| format!("the system's certificate store cannot be used: {error}"))?;
        let has_credential = spec.target.has_credential();
        let may_be_older = *transport == HttpTransport::Auto;
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
            instructions: ArcSwapOption::empty(),
            keeper,
        })
    }

    /// Returns the address of the server: the redirected one once it has redirected, else the
    /// configured one.
    pub fn address(&self) -> Uri {
        self.moved.load().as_deref().unwrap_or(&self.uri).clone()
    }

    /// Returns the address to which a request to `from` has to be sent again, if this answer
    /// redirects it. A redirect of the server's own address is remembered.
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

    /// Creates a request with the headers of the transport. Credentials are added when it is sent.
    pub fn request(&self, method: Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let accept = if method == Method::GET { EVENTS } else { BOTH };
        let has_body = !body.is_empty();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        // Room for all headers of a call, so that they are not moved later.
        request.headers_mut().reserve(FIELDS);
        request.headers_mut().insert(ACCEPT, accept);
        if has_body {
            request.headers_mut().insert(CONTENT_TYPE, JSON);
        }
        request
    }

    /// Returns whether requests get their token by a login.
    pub fn may_log_in(&self) -> bool {
        self.keeper.is_some()
    }

    /// Adds the credentials to a request. Headers of the protocol take precedence over configured
    /// ones. Waits only if a token has to be fetched or renewed. Cancel-safe.
    ///
    /// # Errors
    /// As [`TokenKeeper::attach`].
    pub async fn authorize(&self, request: &mut Request<Full<Bytes>>) -> Result<TokenVersion, HttpError> {
        for (name, value) in &self.fixed {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        match &self.keeper {
            Some(keeper) => keeper.attach(request.headers_mut()).await.map(TokenVersion),
            None => Ok(TokenVersion(None)),
        }
    }

    /// Sends a request that has its credentials; the caller awaits the head of the answer.
    pub fn start(&self, request: Request<Full<Bytes>>) -> AnswerHeadFuture {
        match &self.connections {
            Some(connections) if connections.serve(request.uri()) => connections.send(request),
            _ => self.client.request(request),
        }
    }

    /// Gets another token for a refused request if that can help. Returns whether the request is
    /// worth another attempt, and `attempts` with this one counted. Cancel-safe.
    pub fn judge(
        &self,
        response: &Response<AnswerBody>,
        TokenVersion(had): TokenVersion,
        mut attempts: TokenAttempts,
    ) -> BoxFuture<'static, (bool, TokenAttempts)> {
        let (refusal, keeper) = ((response.status(), challenge_of(response)), self.keeper.clone());
        Box::pin(async move {
            let again = match keeper {
                Some(keeper) => keeper.again(refusal, had, &mut attempts).await,
                None => false,
            };
            (again, attempts)
        })
    }

    /// Adds the credentials, sends a request, and waits for the head of any answer. Follows a
    /// redirect. A request that is refused because of its token is sent again with another one, if
    /// there is one.
    ///
    /// # Errors
    /// [`HttpError::Connect`], [`HttpError::Broken`], and as [`Self::authorize`] and
    /// [`Self::redirected`].
    pub async fn fetch(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<AnswerBody>, TokenVersion), HttpError> {
        let (mut attempts, mut was_redirected) = (TokenAttempts::default(), false);
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

    /// Converts the error of a request without an answer, and records it in the upstream's health.
    pub fn lost(&self, error: &ClientError) -> HttpError {
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

    /// Fails if the answer to a message refuses the gateway's credentials or asks for more rights.
    /// Records the standing or the error in the upstream's health in any case. A caller passes no
    /// answer to the opening of a stream or to the end of a session: such an answer is a refusal
    /// for other reasons too. The token's version only tells whether the request had a token.
    ///
    /// # Errors
    /// [`HttpError::Unadmitted`]; [`HttpError::MoreScopes`] for scopes that headend may not request
    /// by itself; [`HttpError::NoToken`] if headend logs in without a person and no authorization
    /// server could be asked.
    pub fn admitted<B>(&self, response: &Response<B>, TokenVersion(had): TokenVersion) -> Result<(), HttpError> {
        let (standing, status) = (self.standing(response, had.is_some()), response.status());
        if standing == CredentialStanding::Admitted {
            self.health.stands(standing, String::new);
            return Ok(());
        }
        let keeper = self.keeper.as_ref().filter(|_| status == StatusCode::FORBIDDEN);
        let why = keeper.zip(challenge_of(response)).and_then(|(keeper, challenge)| keeper.refuses_scopes(&challenge));
        if let Some(why) = why {
            self.health.failed(why.clone());
            return Err(HttpError::MoreScopes(why));
        }
        // No person can log in there, so the reason itself is reported.
        let unattended = self.keeper.as_ref().filter(|_| status == StatusCode::UNAUTHORIZED);
        if let Some(why) = unattended.and_then(|keeper| keeper.unattended_failure()) {
            self.health.failed(why.clone());
            return Err(HttpError::NoToken(why));
        }
        let error = HttpError::Unadmitted(standing, status);
        if status == StatusCode::FORBIDDEN && had.is_some() {
            // The login is valid for everything else.
            self.health.failed("a call wants more rights than the login has".to_owned());
        } else {
            self.health.stands(standing, || error.to_string());
        }
        Err(error)
    }

    /// Returns whether the server refuses the gateway with this answer. Unlike [`Self::admitted`],
    /// records nothing.
    pub fn is_unadmitted<B>(&self, response: &Response<B>, TokenVersion(had): TokenVersion) -> bool {
        self.standing(response, had.is_some()) != CredentialStanding::Admitted
    }

    /// Returns what the answer says about the credentials of the request; `had` says that a token
    /// of a login was among them.
    fn standing<B>(&self, response: &Response<B>, had: bool) -> CredentialStanding {
        let challenge = challenge_of(response).filter(|_| !self.has_credential);
        match response.status() {
            StatusCode::UNAUTHORIZED if challenge.is_some() && had => CredentialStanding::LoginExpired,
            StatusCode::UNAUTHORIZED if challenge.is_some() => CredentialStanding::NeedsLogin,
            StatusCode::UNAUTHORIZED => CredentialStanding::Refused,
            StatusCode::FORBIDDEN
                if challenge.is_some_and(|one| one.error == Some(TokenComplaint::InsufficientScope)) =>
            {
                CredentialStanding::NeedsLogin
            }
            StatusCode::FORBIDDEN if !answers(response) => CredentialStanding::Refused,
            _ => CredentialStanding::Admitted,
        }
    }

    /// Sends a message that the connection depends on, and judges the answer.
    ///
    /// # Errors
    /// As [`Self::fetch`] and [`Self::admitted`].
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, HttpError> {
        let (response, pass) = self.fetch(request).await?;
        self.admitted(&response, pass)?;
        Ok(response)
    }
}

/// The version of the token that a request had; `None` without a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenVersion(Option<u64>);

/// Returns whether the status is 401 or 403, which may be about the credentials.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Returns whether a 403 is the server's own answer, for example about one tool: it is JSON and has
/// no challenge. A server that wants other credentials says which. Source: MCP 2025-11-25,
/// authorization, "Scope Challenge Handling".
fn answers<B>(response: &Response<B>) -> bool {
    let headers = response.headers();
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    response.status() == StatusCode::FORBIDDEN && is_json && !headers.contains_key(WWW_AUTHENTICATE)
}
