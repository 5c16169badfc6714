//! Credentials of clients over HTTP: the accepted tokens and their callers. A reload replaces the
//! whole set; a token that stays keeps its access, and all other tokens lose theirs.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::base::access::{Access, Credential};
use crate::base::clock;
use crate::listener::body::ReplyBody;
pub use crate::listener::caller_access::CallerAccess;
use crate::listener::challenge::BearerChallenge;
use crate::listener::reply::refusal;
use crate::listener::stored_tokens::StoredTokens;
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
}

impl Credentials {
    /// Creates the set of credentials. `tokens` is `None` if no authentication is configured.
    /// Access ends when `giving_up` fires.
    pub fn new(tokens: Option<&[(String, Caller)]>, giving_up: &CancellationToken) -> Self {
        let anyone = access(Caller::anyone(), Credential::Anyone, giving_up);
        let nobody = Self { tokens: Some(Vec::new()), stored: Arc::default(), anyone };
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
        Self { tokens: Some(all.iter().map(one).collect()), stored: Arc::default(), anyone }
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
        (Self { tokens, stored: Arc::clone(&self.stored), anyone }, gone)
    }

    /// Identifies the caller of a request by its bearer token.
    ///
    /// # Errors
    /// A 401 response with a challenge. It does not say what was wrong.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<CallerAccess, Box<Response<ReplyBody>>> {
        let Some(tokens) = &self.tokens else { return Ok(self.anyone.clone()) };
        let token = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
        });
        if let Some(token) = token {
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
        }
        Err(Box::new(unauthorized(headers)))
    }
}

fn access(caller: &Caller, credential: Credential, giving_up: &CancellationToken) -> CallerAccess {
    CallerAccess { caller: caller.clone(), access: Access::by(caller, credential, CallerRights::all(), giving_up) }
}

/// Creates a 401 response with a challenge, for a request with these headers. No authorization
/// server issues our tokens, so the challenge names no metadata: a client that found a document
/// without an issuer would try to register somewhere, and report that failure.
pub fn unauthorized(headers: &HeaderMap) -> Response<ReplyBody> {
    let mut response = refusal(StatusCode::UNAUTHORIZED, "a valid bearer token is required");
    let is_wrong = headers.contains_key(AUTHORIZATION);
    let challenge = BearerChallenge { error: is_wrong.then_some("invalid_token"), ..BearerChallenge::default() };
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge.header());
    response
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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
            let got = credentials.authenticate(&headers).ok();
            assert_eq!(got.as_ref().map(|client| client.caller.name()), want, "{label}");
        }
    }

    #[test]
    fn the_challenge_names_no_metadata_that_is_not_there() {
        for (headers, want) in [(HeaderMap::new(), "Bearer"), (bearer("Bearer x"), r#"Bearer error="invalid_token""#)] {
            let refused = unauthorized(&headers);
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
        let access = |token: &'static str| before.authenticate(&bearer(token)).unwrap().access;
        let [ann, bob, cy] = ["Bearer a", "Bearer b", "Bearer c"].map(access);
        // Bob is gone, Cy has another token, and Bob's old token is Dee's now.
        let (after, gone) = before.next(Some(&tokens(&[("a", "ann"), ("b", "dee"), ("d", "cy"), ("l", LOCAL)])), &end);
        let mut names: Vec<&str> = gone.iter().map(|gone| gone.caller.name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["bob", "cy"]);
        gone.iter().for_each(|caller| caller.access.withdraw());
        assert_eq!([&ann, &bob, &cy].map(|access| access.is_withdrawn()), [false, true, true]);
        assert!(Arc::ptr_eq(&after.authenticate(&bearer("Bearer a")).unwrap().access, &ann));
        assert!(!after.authenticate(&bearer("Bearer b")).unwrap().access.is_withdrawn());
        assert!(after.authenticate(&bearer("Bearer c")).is_err());
    }

    #[test]
    fn a_client_without_a_token_loses_access_when_one_is_required() {
        let end = CancellationToken::new();
        let open = Credentials::new(None, &end);
        let anyone = open.authenticate(&HeaderMap::new()).unwrap();
        let (same, gone) = open.next(None, &end);
        assert!(gone.is_empty() && Arc::ptr_eq(&same.authenticate(&HeaderMap::new()).unwrap().access, &anyone.access));
        let (closed, gone) = open.next(Some(&tokens(&[("l", LOCAL)])), &end);
        assert!(gone.iter().any(|caller| Arc::ptr_eq(&caller.access, &anyone.access)) && gone.len() == 1);
        let (reopened, gone) = closed.next(None, &end);
        assert_eq!(gone.len(), 1, "the token is not needed any more, and what it opened ends");
        assert!(!reopened.authenticate(&HeaderMap::new()).unwrap().access.is_withdrawn());
    }
}
