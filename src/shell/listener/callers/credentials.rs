//! Credentials of clients over HTTP: the accepted tokens and their callers. A reload replaces the
//! whole set; a token that stays keeps its access, and all other tokens lose theirs.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::base::access::{Access, Credential};
use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::config::Config;
use crate::engine::sealed::peer::{PassedCaller, PassedCredential};
use crate::identity::token::is_jwt;
use crate::listener::body::ReplyBody;
pub use crate::listener::callers::caller_access::CallerAccess;
use crate::listener::callers::issuer_keys::Unproved;
use crate::listener::callers::jwt::{JwtCredentials, seconds};
use crate::listener::callers::stored_tokens::StoredTokens;
use crate::listener::challenge::BearerChallenge;
use crate::listener::reply::{refusal, retry_later};
use crate::policy::{Caller, CallerRights};
use crate::wire::digest::Digest;

/// The accepted tokens: the digest of each token, and its caller.
type Tokens = Vec<(Digest, CallerAccess)>;

/// The credentials that all listeners accept.
#[derive(Debug)]
pub struct Credentials {
    /// Accepted tokens; `None` if no token is required.
    tokens: Option<Tokens>,
    /// Accepted tokens of the store, if a token is required.
    stored: Arc<StoredTokens>,
    /// The caller of every client if no token is required.
    anyone: CallerAccess,
    /// The issuers whose JWTs are accepted.
    jwt: Option<JwtCredentials>,
}

/// The reason why a request has no caller yet.
#[derive(Debug)]
pub enum Unauthenticated {
    /// The response to send.
    Refused(Box<Response<ReplyBody>>),
    /// The credential may be a JWT that was not validated so far; [`Credentials::validate`] judges
    /// it.
    Unvalidated,
}

impl Credentials {
    /// Creates the set of credentials. `tokens` is `None` if no authentication is configured.
    /// Access ends when `giving_up` fires.
    pub fn new(tokens: Option<&[(String, Caller)]>, giving_up: &CancellationToken) -> Self {
        let anyone = access(Caller::anyone(), Credential::Anyone, giving_up);
        let nobody = Self { tokens: Some(Vec::new()), stored: Arc::default(), anyone, jwt: None };
        nobody.next(tokens, giving_up).0
    }

    /// Accepts the tokens of this table too. Later credentials share the table.
    pub fn with_stored(self, stored: Arc<StoredTokens>) -> Self {
        Self { stored, ..self }
    }

    /// Creates credentials of callers with certain rights: each token, its caller, and its rights.
    /// The token of a person counts as a JWT.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_rights(all: &[(String, Caller, Arc<CallerRights>)], giving_up: &CancellationToken) -> Self {
        let one = |(token, caller, rights): &(String, Caller, Arc<CallerRights>)| {
            let digest = Digest::of(token.as_bytes());
            let is_person = caller.issuer_and_subject().is_some();
            let credential = if is_person { Credential::Jwt } else { Credential::Token(*digest.bytes()) };
            let access = Access::by(caller, credential, Arc::clone(rights), giving_up);
            (digest, CallerAccess { caller: caller.clone(), access })
        };
        let anyone = access(Caller::anyone(), Credential::Anyone, giving_up);
        Self { tokens: Some(all.iter().map(one).collect()), stored: Arc::default(), anyone, jwt: None }
    }

    /// Creates the credentials that replace these; `tokens` is `None` if every client may call
    /// without one. Tokens that stay keep their access. Also returns the callers whose access ends
    /// with the change, which the caller of this function has to end.
    pub fn next(
        &self,
        tokens: Option<&[(String, Caller)]>,
        giving_up: &CancellationToken,
    ) -> (Self, Vec<CallerAccess>) {
        let known = |new: &Digest, caller: &Caller| {
            let same = |(old, known): &&(Digest, CallerAccess)| old == new && known.caller == *caller;
            self.tokens.iter().flatten().find(same).map(|(_, known)| known.clone())
        };
        let admitted = |(token, caller): &(String, Caller)| {
            let token = Digest::of(token.as_bytes());
            let new = || access(caller, Credential::Token(*token.bytes()), giving_up);
            (token, known(&token, caller).unwrap_or_else(new))
        };
        let tokens: Option<Tokens> = tokens.map(|tokens| tokens.iter().map(admitted).collect());
        let stays = |caller: &CallerAccess| {
            tokens.iter().flatten().any(|(_, other)| Arc::ptr_eq(&other.access, &caller.access))
        };
        let mut gone: Vec<CallerAccess> =
            self.tokens.iter().flatten().map(|(_, caller)| caller).filter(|caller| !stays(caller)).cloned().collect();
        let anyone = if self.tokens.is_none() && tokens.is_some() {
            gone.push(self.anyone.clone());
            access(&self.anyone.caller, Credential::Anyone, giving_up)
        } else {
            self.anyone.clone()
        };
        (Self { tokens, stored: Arc::clone(&self.stored), anyone, jwt: None }, gone)
    }

    /// Accepts the JWTs of the configuration beside the tokens. `before` are the credentials that
    /// these replace: issuers that stay keep their keys. Withdraws the access of the callers of all
    /// other issuers, and returns those callers.
    pub fn accept_jwts(
        self,
        before: Option<&Self>,
        config: &Config,
        tasks: &TaskGroup,
        giving_up: &CancellationToken,
    ) -> (Self, Vec<CallerAccess>) {
        let before = before.and_then(|before| before.jwt.as_ref());
        let scopes: Vec<String> = config.policy.scopes.iter().map(|one| one.scope.clone()).collect();
        let jwt = JwtCredentials::next(before, config, &scopes, tasks, giving_up);
        let gone = before.map_or_else(Vec::new, JwtCredentials::withdrawn);
        (Self { jwt, ..self }, gone)
    }

    /// Identifies the caller of a request to a profile, or to the endpoint, by its bearer token.
    ///
    /// # Errors
    /// A 401 response with a challenge that does not say what was wrong; 400 for two credentials;
    /// and [`Unauthenticated::Unvalidated`].
    pub fn authenticate(&self, headers: &HeaderMap, profile: Option<&str>) -> Result<CallerAccess, Unauthenticated> {
        let Some(tokens) = &self.tokens else { return Ok(self.anyone.clone()) };
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let token = values.next().and_then(bearer_token);
        if values.next().is_some() {
            let text = "send one Authorization header";
            return Err(Unauthenticated::Refused(Box::new(refusal(StatusCode::BAD_REQUEST, text))));
        }
        if let Some(token) = token {
            // A JWT that was validated before is found without a digest of it.
            match self.jwt.as_ref().and_then(|jwt| Some((jwt, jwt.find(token, profile)?))) {
                Some((_, Ok(caller))) => return Ok(caller),
                Some((jwt, Err(why))) => {
                    jwt.log(why);
                    return Err(Unauthenticated::Refused(Box::new(self.unauthorized(headers, profile))));
                }
                None => {}
            }
            // Digests have equal lengths, each comparison takes constant time, and all tokens are
            // compared even after a match.
            let given = Digest::of(token);
            let mut found = None;
            for (known, caller) in tokens {
                if known.bytes().ct_eq(given.bytes()).into() {
                    found = Some(caller);
                }
            }
            let stored = || self.stored.find(&given, clock::since_1970().as_secs());
            if let Some(caller) = found.cloned().or_else(stored) {
                return Ok(caller);
            }
            if self.jwt.is_some() && is_jwt(token) {
                return Err(Unauthenticated::Unvalidated);
            }
        }
        Err(Unauthenticated::Refused(Box::new(self.unauthorized(headers, profile))))
    }

    /// Returns the access of a caller that another replica of the cluster vouches for; `None` if
    /// its credential is not accepted here.
    pub fn of_passed(&self, passed: &PassedCaller) -> Option<CallerAccess> {
        let found = match (&passed.credential, &self.tokens) {
            (PassedCredential::Anyone, None) => self.anyone.clone(),
            (PassedCredential::Token(digest), Some(tokens)) => {
                let known = tokens.iter().find(|(known, _)| known.bytes().ct_eq(digest).into());
                let stored = || self.stored.find(&Digest::from_bytes(digest)?, clock::since_1970().as_secs());
                known.map(|(_, caller)| caller.clone()).or_else(stored)?
            }
            (PassedCredential::Jwt { rights, expires }, Some(_)) => {
                self.jwt.as_ref()?.of_passed(&passed.caller, rights, *expires)?
            }
            (PassedCredential::Anyone, Some(_)) | (PassedCredential::Token(_) | PassedCredential::Jwt { .. }, None) => {
                return None;
            }
        };
        (found.caller == passed.caller).then_some(found)
    }

    /// Validates the JWT of a request, and fetches its issuer's keys if they are not known.
    ///
    /// # Errors
    /// A 401 response as of [`Self::authenticate`], and 503 if the issuer's keys are not known and
    /// cannot be fetched.
    pub async fn validate(
        &self,
        headers: &HeaderMap,
        profile: Option<&str>,
    ) -> Result<CallerAccess, Box<Response<ReplyBody>>> {
        let refused = || Box::new(self.unauthorized(headers, profile));
        let token = headers.get(AUTHORIZATION).and_then(bearer_token).ok_or_else(refused)?;
        let jwt = self.jwt.as_ref().ok_or_else(refused)?;
        jwt.validate(token, profile).await.map_err(|why| match why {
            Unproved::Refused(why) => {
                jwt.log(why);
                refused()
            }
            Unproved::NoKeys(wait) => {
                let text = "the issuer of this token cannot be reached; send the request again later";
                Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, seconds(wait), text))
            }
        })
    }

    /// Creates a 401 response with a challenge, for a request with these headers to a profile, or
    /// to the endpoint. The challenge names metadata only if there are issuers: a client that found
    /// a document without one would try to register somewhere, and report that failure.
    pub fn unauthorized(&self, headers: &HeaderMap, profile: Option<&str>) -> Response<ReplyBody> {
        let mut response = refusal(StatusCode::UNAUTHORIZED, "a valid bearer token is required");
        let challenge = BearerChallenge {
            error: headers.contains_key(AUTHORIZATION).then_some("invalid_token"),
            scope: self.jwt.as_ref().and_then(JwtCredentials::scope),
            resource_metadata: self.metadata_address(profile),
        };
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge.header());
        response
    }

    /// Returns the address of the metadata of a profile, or of the endpoint; `None` without
    /// issuers.
    pub fn metadata_address(&self, profile: Option<&str>) -> Option<&str> {
        self.jwt.as_ref().map(|jwt| jwt.place(profile).metadata_address.as_str())
    }

    /// Returns the metadata that lies at a path, if there are issuers.
    pub fn metadata(&self, path: &str) -> Option<Bytes> {
        Some(self.jwt.as_ref()?.place_of_metadata(path)?.document.clone())
    }
}

/// Returns the credential of a caller as another replica learns it; `None` for the user of a pipe,
/// whose requests come over no listener.
pub fn passed_credential(access: &Access) -> Option<PassedCredential> {
    Some(match access.credential() {
        Credential::User => return None,
        Credential::Anyone => PassedCredential::Anyone,
        Credential::Token(digest) => PassedCredential::Token(*digest),
        Credential::Jwt => PassedCredential::Jwt { rights: Arc::clone(access.rights()), expires: access.expires()? },
    })
}

/// Returns the token of an `Authorization` header with the scheme `Bearer`.
fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

fn access(caller: &Caller, credential: Credential, giving_up: &CancellationToken) -> CallerAccess {
    CallerAccess { caller: caller.clone(), access: Access::by(caller, credential, CallerRights::all(), giving_up) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LOCAL;

    fn tokens(pairs: &[(&str, &str)]) -> Vec<(String, Caller)> {
        pairs.iter().map(|(token, caller)| ((*token).to_owned(), Caller::named(caller))).collect()
    }

    fn bearer(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_token_names_its_caller_and_nothing_else_does() {
        let credentials = Credentials::new(Some(&tokens(&[("secret", "ci")])), &CancellationToken::new());
        for (label, value, want) in [
            ("right", Some("Bearer secret"), Some("ci")),
            ("scheme in other case", Some("bearer secret"), Some("ci")),
            ("wrong", Some("Bearer secreT"), None),
            ("empty", Some("Bearer "), None),
            ("other scheme", Some("Basic secret"), None),
            ("none", None, None),
        ] {
            let headers = value.map(bearer).unwrap_or_default();
            let got = credentials.authenticate(&headers, None).ok();
            assert_eq!(got.as_ref().map(|client| client.caller.name()), want, "{label}");
        }
    }

    #[test]
    fn the_challenge_names_no_metadata_that_is_not_there() {
        for (headers, want) in [(HeaderMap::new(), "Bearer"), (bearer("Bearer x"), r#"Bearer error="invalid_token""#)] {
            let credentials = Credentials::new(Some(&[]), &CancellationToken::new());
            let refused = credentials.unauthorized(&headers, None);
            assert_eq!(
                (refused.status(), refused.headers()[WWW_AUTHENTICATE].as_bytes()),
                (StatusCode::UNAUTHORIZED, want.as_bytes())
            );
        }
    }

    #[test]
    fn a_token_that_stays_keeps_its_access_and_every_other_one_loses_it() {
        let end = CancellationToken::new();
        let before = Credentials::new(Some(&tokens(&[("a", "ann"), ("b", "bob"), ("c", "cy"), ("l", LOCAL)])), &end);
        let access = |token: &'static str| before.authenticate(&bearer(token), None).unwrap().access;
        let [ann, bob, cy] = ["Bearer a", "Bearer b", "Bearer c"].map(access);
        // Bob is gone, Cy has another token, and Bob's old token is Dee's now.
        let (after, gone) = before.next(Some(&tokens(&[("a", "ann"), ("b", "dee"), ("d", "cy"), ("l", LOCAL)])), &end);
        let mut names: Vec<&str> = gone.iter().map(|gone| gone.caller.name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["bob", "cy"]);
        gone.iter().for_each(|caller| caller.access.withdraw());
        assert_eq!([&ann, &bob, &cy].map(|access| access.is_withdrawn()), [false, true, true]);
        assert!(Arc::ptr_eq(&after.authenticate(&bearer("Bearer a"), None).unwrap().access, &ann));
        assert!(!after.authenticate(&bearer("Bearer b"), None).unwrap().access.is_withdrawn());
        assert!(after.authenticate(&bearer("Bearer c"), None).is_err());
    }

    #[test]
    fn a_client_without_a_token_loses_access_when_one_is_required() {
        let end = CancellationToken::new();
        let open = Credentials::new(None, &end);
        let anyone = open.authenticate(&HeaderMap::new(), None).unwrap();
        let (same, gone) = open.next(None, &end);
        assert!(
            gone.is_empty() && Arc::ptr_eq(&same.authenticate(&HeaderMap::new(), None).unwrap().access, &anyone.access)
        );
        let (closed, gone) = open.next(Some(&tokens(&[("l", LOCAL)])), &end);
        assert!(gone.iter().any(|caller| Arc::ptr_eq(&caller.access, &anyone.access)) && gone.len() == 1);
        let (reopened, gone) = closed.next(None, &end);
        assert_eq!(gone.len(), 1, "the token is not needed any more, and what it opened ends");
        assert!(!reopened.authenticate(&HeaderMap::new(), None).unwrap().access.is_withdrawn());
    }
}
