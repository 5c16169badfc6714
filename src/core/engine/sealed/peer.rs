//! Messages between replicas of one cluster, sealed with a key that only they have: the rows of the
//! directory, and the caller of a request that one replica passes on to another.
//!
//! A passed-on caller is bound to the request and to both replicas, expires, and has a number that
//! is taken once ([`super::replay_window`]). The client's credential does not travel: the replica
//! that gets the request finds the access of the same credential among its own.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::{NONCE_BYTES, TextKeys};
use crate::policy::{Caller, CallerRights, Groups, Scopes};
use crate::wire::digest::Digest;
use crate::wire::secrets::SealSecrets;

/// Longest sealed row or caller that is made or opened, in bytes.
const MAX_BYTES: usize = 12 * 1024;
/// Time after which a passed-on caller is refused, and the largest difference of two clocks.
const LIFE: Duration = Duration::from_secs(30);

/// The keys that replicas of one cluster share.
pub struct PeerKey(TextKeys);

impl std::fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerKey")
    }
}

/// The credential with which a passed-on caller authenticated.
#[derive(Clone, PartialEq, Eq)]
pub enum PassedCredential {
    /// No credential, because none is required.
    Anyone,
    /// A token with this digest.
    Token([u8; 32]),
    /// A JWT with these rights, which expires at this time since 1970.
    Jwt { rights: Arc<CallerRights>, expires: Duration },
}

impl std::fmt::Debug for PassedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anyone => "anyone",
            Self::Token(_) => "token",
            Self::Jwt { .. } => "jwt",
        })
    }
}

/// A caller that one replica vouches for to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedCaller {
    pub caller: Caller,
    pub credential: PassedCredential,
    /// The number of the request among those that the first replica passes on.
    pub number: u64,
}

/// The request that a passed-on caller is bound to.
#[derive(Clone, Copy, Debug)]
pub struct PassedRequest<'a> {
    pub from: RunId,
    pub to: RunId,
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Headers that decide what the request reaches, in a fixed order.
    pub headers: [Option<&'a [u8]>; 2],
    /// Digest of the body.
    pub body: Digest,
}

impl PassedRequest<'_> {
    /// Encodes the request as the data that the seal authenticates. No two requests are encoded
    /// alike.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"passed on 1".to_vec();
        bytes.extend_from_slice(&self.from.bytes());
        bytes.extend_from_slice(&self.to.bytes());
        let [first, second] = self.headers;
        let [method, target] = [self.method, self.target].map(str::as_bytes);
        let texts = [Some(method), Some(target), first, second, Some(self.body.bytes())];
        for text in texts {
            bytes.push(u8::from(text.is_some()));
            let text = text.unwrap_or_default();
            bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bytes.extend_from_slice(text);
        }
        bytes
    }
}

/// A passed-on caller as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerText {
    /// Time since 1970 after which the caller is refused, in seconds.
    until: u64,
    number: u64,
    /// [`Caller::key`].
    caller: String,
    kind: CredentialKind,
    /// Digest of a token, in hexadecimal.
    token: Option<String>,
    /// Scopes of a JWT; `None` for all.
    scopes: Option<Vec<String>>,
    /// Groups of a JWT; `None` if they are unknown.
    groups: Option<Vec<String>>,
    /// Expiry of a JWT: seconds since 1970, and nanoseconds.
    expires: Option<(u64, u32)>,
}

/// The kind of a passed-on credential.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum CredentialKind {
    Anyone,
    Token,
    Jwt,
}

impl CallerText {
    fn new(passed: &PassedCaller, until: u64) -> Self {
        let texts = |list: &[Box<str>]| list.iter().map(ToString::to_string).collect();
        let (number, caller) = (passed.number, passed.caller.key().to_owned());
        let text = |kind| Self { until, number, caller, kind, token: None, scopes: None, groups: None, expires: None };
        match &passed.credential {
            PassedCredential::Anyone => text(CredentialKind::Anyone),
            PassedCredential::Token(digest) => {
                Self { token: Some(HEXLOWER.encode(digest)), ..text(CredentialKind::Token) }
            }
            PassedCredential::Jwt { rights, expires } => Self {
                scopes: match &rights.scopes {
                    Scopes::All => None,
                    Scopes::Of(scopes) => Some(texts(scopes)),
                },
                groups: match &rights.groups {
                    Groups::Unknown => None,
                    Groups::Of(groups) => Some(texts(groups)),
                },
                expires: Some((expires.as_secs(), expires.subsec_nanos())),
                ..text(CredentialKind::Jwt)
            },
        }
    }

    /// Reads what [`Self::new`] has written; `None` for anything else.
    fn passed(self) -> Option<PassedCaller> {
        let boxed = |list: Vec<String>| list.into_iter().map(String::into_boxed_str).collect();
        let credential = match self.kind {
            CredentialKind::Anyone => PassedCredential::Anyone,
            CredentialKind::Token => {
                PassedCredential::Token(HEXLOWER.decode(self.token?.as_bytes()).ok()?.try_into().ok()?)
            }
            CredentialKind::Jwt => {
                let (seconds, nanos) = self.expires?;
                let rights = CallerRights {
                    scopes: self.scopes.map_or(Scopes::All, |scopes| Scopes::Of(boxed(scopes))),
                    groups: self.groups.map_or(Groups::Unknown, |groups| Groups::Of(boxed(groups))),
                };
                let expires = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into()));
                PassedCredential::Jwt { rights: Arc::new(rights), expires }
            }
        };
        Some(PassedCaller { caller: Caller::from_key(&self.caller)?, credential, number: self.number })
    }
}

impl PeerKey {
    /// Derives the keys from the cluster's secrets.
    pub fn new(secrets: &SealSecrets) -> Self {
        Self(TextKeys::new(secrets))
    }

    /// Seals the row of a replica; `None` if it would be too long. `nonce` must never be used
    /// twice.
    pub fn seal_row(&self, run: RunId, row: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<String> {
        self.0.seal(nonce, &row_scope(run), row, MAX_BYTES)
    }

    /// Opens the row of a replica, and returns what `read` makes of it; `None` for any other text.
    pub fn open_row<T>(&self, run: RunId, sealed: &str, read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        (sealed.len() <= MAX_BYTES).then(|| self.0.open(sealed, &row_scope(run), read)).flatten().map(|(_, row)| row)
    }

    /// Seals a caller for a request that is passed on at `now`, the time since 1970; `None` if the
    /// text would be too long. `nonce` must never be used twice.
    pub fn seal_caller(
        &self,
        request: &PassedRequest<'_>,
        passed: &PassedCaller,
        now: Duration,
        nonce: [u8; NONCE_BYTES],
    ) -> Option<String> {
        let text = CallerText::new(passed, now.saturating_add(LIFE).as_secs());
        self.0.seal(nonce, &request.bytes(), &serde_json::to_vec(&text).ok()?, MAX_BYTES)
    }

    /// Opens the caller of a request; `None` if it was not sealed for exactly this request, has
    /// expired or comes from a clock that is far ahead. The result does not tell which.
    pub fn open_caller(&self, request: &PassedRequest<'_>, sealed: &str, now: Duration) -> Option<PassedCaller> {
        if sealed.len() > MAX_BYTES {
            return None;
        }
        let read = |plain: &[u8]| {
            let text: CallerText = serde_json::from_slice(plain).ok()?;
            let left = text.until.checked_sub(now.as_secs())?;
            (1..=2 * LIFE.as_secs()).contains(&left).then(|| text.passed()).flatten()
        };
        self.0.open(sealed, &request.bytes(), read).map(|(_, passed)| passed)
    }
}

/// Returns the data that the seal of a row authenticates.
fn row_scope(run: RunId) -> Vec<u8> {
    [b"replica 1".as_slice(), &run.bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn key(secret: u8) -> PeerKey {
        PeerKey::new(&SealSecrets::new([secret; 32]))
    }

    fn run(number: u8) -> RunId {
        RunId::new([number; 8]).unwrap()
    }

    fn request() -> PassedRequest<'static> {
        PassedRequest {
            from: run(1),
            to: run(2),
            method: "POST",
            target: "/mcp",
            headers: [Some(b"session"), None],
            body: Digest::of(b"{}"),
        }
    }

    fn jwt() -> PassedCaller {
        let rights = CallerRights { scopes: Scopes::Of(["read".into()].into()), groups: Groups::Unknown };
        let expires = Duration::from_millis(1_800_000_100_250);
        let credential = PassedCredential::Jwt { rights: Arc::new(rights), expires };
        PassedCaller { caller: Caller::issued("corp", "alice").unwrap(), credential, number: 9 }
    }

    #[test]
    fn a_caller_arrives_as_it_was_passed_on() {
        let [token, anyone] = [PassedCredential::Token([3; 32]), PassedCredential::Anyone]
            .map(|credential| PassedCaller { caller: Caller::local().clone(), credential, number: 1 });
        for passed in [token, anyone, jwt()] {
            let sealed = key(1).seal_caller(&request(), &passed, NOW, [5; NONCE_BYTES]).unwrap();
            assert_eq!(key(1).open_caller(&request(), &sealed, NOW), Some(passed));
        }
    }

    #[test]
    fn a_caller_counts_for_one_request_between_two_replicas_and_for_a_moment() {
        let sealed = key(1).seal_caller(&request(), &jwt(), NOW, [5; NONCE_BYTES]).unwrap();
        for (label, other) in [
            ("sender", PassedRequest { from: run(3), ..request() }),
            ("receiver", PassedRequest { to: run(3), ..request() }),
            ("method", PassedRequest { method: "DELETE", ..request() }),
            ("path", PassedRequest { target: "/mcp/work", ..request() }),
            ("session", PassedRequest { headers: [Some(b"another"), None], ..request() }),
            ("header", PassedRequest { headers: [None, Some(b"session")], ..request() }),
            ("body", PassedRequest { body: Digest::of(b"[]"), ..request() }),
        ] {
            assert_eq!(key(1).open_caller(&other, &sealed, NOW), None, "another {label}");
        }
        assert_eq!(key(2).open_caller(&request(), &sealed, NOW), None, "another cluster");
        for (label, now) in [("too late", NOW + LIFE), ("too early", NOW - LIFE - Duration::from_secs(1))] {
            assert_eq!(key(1).open_caller(&request(), &sealed, now), None, "{label}");
        }
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key(1).open_caller(&request(), &String::from_utf8(forged).unwrap(), NOW), None, "byte {at}");
        }
    }

    #[test]
    fn a_row_belongs_to_its_run_and_is_no_caller() {
        let sealed = key(1).seal_row(run(1), b"row", [5; NONCE_BYTES]).unwrap();
        let read = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(key(1).open_row(run(1), &sealed, read), Some(b"row".to_vec()));
        assert_eq!(key(1).open_row(run(2), &sealed, read), None);
        assert_eq!(key(2).open_row(run(1), &sealed, read), None);
        assert_eq!(key(1).open_caller(&request(), &sealed, NOW), None);
    }
}
