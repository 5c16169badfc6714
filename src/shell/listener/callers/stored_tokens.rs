//! Stored tokens of clients in a running gateway: the table in which credentials are looked up, and
//! the last uses that are not in the store yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::base::access::{Access, Credential};
use crate::listener::callers::caller_access::CallerAccess;
use crate::policy::{Caller, CallerRights, Groups, Scopes};
use crate::store::db::{ClientToken, TOKEN_PREFIX_BYTES};
use crate::wire::digest::Digest;

/// Grain of the last use of a token, in seconds.
const USE_GRAIN: u64 = 3600;

/// The accepted tokens by the first bytes of their digests. The store bounds their number.
type TokenTable = HashMap<[u8; TOKEN_PREFIX_BYTES], Arc<StoredToken>>;

/// The stored tokens that are accepted now.
#[derive(Debug, Default)]
pub struct StoredTokens(ArcSwap<TokenTable>);

/// An accepted token. Times are seconds since 1970.
#[derive(Debug)]
struct StoredToken {
    digest: Digest,
    expires: Option<u64>,
    caller: CallerAccess,
    /// Last use in the store, and in this process; 0 for none.
    stored_use: AtomicU64,
    last_use: AtomicU64,
}

impl StoredTokens {
    /// Returns the caller of the token with this digest, and notes its use; `None` for an unknown
    /// token and for one that has expired by `now`. Both take the same time.
    pub fn find(&self, given: &Digest, now: u64) -> Option<CallerAccess> {
        let table = self.0.load();
        let found = prefix(given).and_then(|prefix| table.get(prefix));
        // An unknown token is compared with a digest too.
        let known = found.map_or(&[0; 32], |token| token.digest.bytes());
        let is_same: bool = known.ct_eq(given.bytes()).into();
        let token = found.filter(|token| is_same && token.expires.is_none_or(|expires| now < expires))?;
        token.last_use.fetch_max(now - now % USE_GRAIN, Ordering::Relaxed);
        Some(token.caller.clone())
    }

    /// Replaces the table by the tokens of the store, and returns the callers that lose their
    /// access. A token that stays keeps its access, also after it has expired: it is accepted no
    /// more, but calls in flight go on. Called once at a time.
    pub fn replace(&self, tokens: &[ClientToken], giving_up: &CancellationToken) -> Vec<CallerAccess> {
        let old = self.0.load_full();
        let entry = |token: &ClientToken| {
            let prefix = *prefix(&token.digest)?;
            let caller = Caller::token(&token.name)?;
            let kept = old.get(&prefix).filter(|old| old.is_of(&caller, token)).cloned();
            let kept = kept.unwrap_or_else(|| Arc::new(StoredToken::new(caller, token, giving_up)));
            kept.stored_use.store(token.last_used.unwrap_or(0), Ordering::Relaxed);
            Some((prefix, kept))
        };
        let new: TokenTable = tokens.iter().filter_map(entry).collect();
        let stays = |prefix, token| new.get(prefix).is_some_and(|new| Arc::ptr_eq(new, token));
        let gone = old.iter().filter(|(prefix, token)| !stays(*prefix, *token));
        let gone = gone.map(|(_, token)| token.caller.clone()).collect();
        self.0.store(Arc::new(new));
        gone
    }

    /// Returns the last uses that the store does not have.
    pub fn unwritten_uses(&self) -> Vec<(Digest, u64)> {
        let table = self.0.load();
        let last_use = |token: &Arc<StoredToken>| {
            let at = token.last_use.load(Ordering::Relaxed);
            (at > token.stored_use.load(Ordering::Relaxed)).then_some((token.digest, at))
        };
        table.values().filter_map(last_use).collect()
    }

    /// Returns the callers whose tokens have expired after `since` and by `now`.
    pub fn expired(&self, since: u64, now: u64) -> Vec<Caller> {
        let table = self.0.load();
        let expired = table.values().filter(|token| token.expires.is_some_and(|at| since < at && at <= now));
        expired.map(|token| token.caller.caller.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }
}

impl StoredToken {
    fn new(caller: Caller, token: &ClientToken, giving_up: &CancellationToken) -> Self {
        let scopes = token.scopes.iter().map(|scope| Box::from(scope.as_str())).collect();
        let rights = Arc::new(CallerRights { scopes: Scopes::Of(scopes), groups: Groups::none() });
        let (credential, expires) = (Credential::Token(*token.digest.bytes()), token.expires.map(Duration::from_secs));
        let access = Access::until(&caller, credential, rights, expires, giving_up);
        let caller = CallerAccess { caller, access };
        let (stored_use, last_use) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { digest: token.digest, expires: token.expires, caller, stored_use, last_use }
    }

    /// Whether this is the same token with the same rights: one that was revoked and added again
    /// may have others.
    fn is_of(&self, caller: &Caller, token: &ClientToken) -> bool {
        let has_scopes = match &self.caller.access.rights().scopes {
            Scopes::All => false,
            Scopes::Of(scopes) => scopes.iter().map(|scope| &**scope).eq(token.scopes.iter().map(String::as_str)),
        };
        (&self.caller.caller, self.digest, self.expires) == (caller, token.digest, token.expires) && has_scopes
    }
}

/// Returns the bytes by which a token is found.
fn prefix(digest: &Digest) -> Option<&[u8; TOKEN_PREFIX_BYTES]> {
    digest.bytes().first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, text: &str, scopes: &[&str], expires: Option<u64>) -> ClientToken {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let digest = Digest::of(text.as_bytes());
        ClientToken { name: name.to_owned(), digest, scopes, created: 1, expires, last_used: None }
    }

    #[test]
    fn a_token_is_accepted_until_it_expires_or_is_gone_and_has_its_scopes_alone() {
        let (end, tokens) = (CancellationToken::new(), StoredTokens::default());
        let rows = [token("ann", "a", &[], None), token("bob", "b", &["read", "write"], Some(100))];
        assert!(tokens.replace(&rows, &end).is_empty());
        let find = |text: &str, now| tokens.find(&Digest::of(text.as_bytes()), now);
        let (ann, bob) = (find("a", 10).unwrap(), find("b", 99).unwrap());
        assert_eq!([&ann, &bob].map(|client| client.caller.name()), ["ann", "bob"]);
        let has = |client: &CallerAccess, scope: &str| client.access.rights().scopes.has(scope);
        assert_eq!([has(&ann, "read"), has(&bob, "read"), has(&bob, "admin")], [false, true, false]);
        assert!(find("b", 100).is_none() && find("c", 10).is_none());
        // A digest with the same first bytes is another token.
        let mut near = *Digest::of(b"a").bytes();
        near[31] ^= 1;
        assert!(tokens.find(&Digest::from_bytes(&near).unwrap(), 10).is_none());
        // Bob's token expires, which withdraws nothing, and Ann's stays the same.
        let expired =
            |since, now| tokens.expired(since, now).iter().map(|one| one.name().to_owned()).collect::<Vec<_>>();
        assert_eq!((expired(0, 99), expired(99, 100), expired(100, 200)), (vec![], vec!["bob".to_owned()], vec![]));
        assert!(tokens.replace(&rows, &end).is_empty() && find("b", 100).is_none());
        assert!(Arc::ptr_eq(&find("a", 100).unwrap().access, &ann.access));
        // The expired token is revoked later.
        let gone = tokens.replace(&rows[..1], &end);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0].access, &bob.access));
        // A token whose scopes change gives another access.
        let gone = tokens.replace(&[token("ann", "a", &["read"], None)], &end);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0].access, &ann.access) && has(&find("a", 100).unwrap(), "read"));
        assert_eq!(tokens.replace(&[], &end).len(), 1);
        assert!(find("a", 100).is_none() && tokens.is_empty());
    }

    #[test]
    fn a_use_is_told_once_an_hour() {
        let (end, tokens) = (CancellationToken::new(), StoredTokens::default());
        let mut row = token("ann", "a", &[], None);
        tokens.replace(std::slice::from_ref(&row), &end);
        assert_eq!(tokens.unwritten_uses(), []);
        let digest = Digest::of(b"a");
        for (now, hour) in [(7300, 7200), (10_799, 7200), (10_800, 10_800)] {
            tokens.find(&digest, now).unwrap();
            assert_eq!(
                tokens.unwritten_uses(),
                if row.last_used == Some(hour) { vec![] } else { vec![(digest, hour)] }
            );
            row.last_used = Some(hour);
            tokens.replace(std::slice::from_ref(&row), &end);
            assert_eq!(tokens.unwritten_uses(), []);
        }
    }
}
