//! The table of JWTs that were validated: a token in it needs no second signature check.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock;
use crate::identity::keys::KeyDigest;
use crate::listener::callers::caller_access::CallerAccess;
use crate::listener::callers::issuer::JwtIssuer;

/// Most tokens in the table; the oldest entry leaves for a new one.
pub(super) const MAX_TOKENS: usize = 4096;

/// A validated token.
#[derive(Clone, Debug)]
pub(in crate::listener) struct ValidatedToken {
    pub(in crate::listener) caller: CallerAccess,
    pub(in crate::listener) issuer: Arc<JwtIssuer>,
    pub(in crate::listener) audiences: Arc<[String]>,
    /// Time since 1970 from which the token is refused.
    pub(in crate::listener) expires: Duration,
    /// The key that signed it.
    pub(in crate::listener) key: KeyDigest,
}

impl ValidatedToken {
    /// Reports whether the token would still pass: it has not expired, and its issuer and key are
    /// still accepted.
    fn is_valid(&self) -> bool {
        clock::since_1970() < self.expires
            && !self.caller.access.is_withdrawn()
            && self.issuer.keys.known().is_some_and(|keys| keys.has(&self.key))
    }
}

/// A name of a token in this process: two keyed hashes with a key that never leaves it. It is
/// computed for each request, and costs a fifth of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TokenFingerprint([u64; 2]);

impl Hash for TokenFingerprint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

/// The table, by the fingerprint of each token.
#[derive(Debug, Default)]
pub(in crate::listener) struct ValidatedTokens {
    key: RandomState,
    table: Mutex<ValidatedTable>,
}

#[derive(Debug, Default)]
struct ValidatedTable {
    tokens: HashMap<TokenFingerprint, ValidatedToken, foldhash::fast::RandomState>,
    /// The fingerprints, oldest first; each is in `tokens`.
    order: VecDeque<TokenFingerprint>,
}

impl ValidatedTokens {
    fn fingerprint(&self, text: &[u8]) -> TokenFingerprint {
        // The first byte makes two functions of one: SipHash of texts that differ.
        TokenFingerprint([0_u8, 1].map(|part| {
            let mut hasher = self.key.build_hasher();
            hasher.write_u8(part);
            hasher.write(text);
            hasher.finish()
        }))
    }

    /// Finds a token that is still valid, and returns what `judge` makes of it.
    pub(in crate::listener) fn find<T>(&self, text: &[u8], judge: impl FnOnce(&ValidatedToken) -> T) -> Option<T> {
        let fingerprint = self.fingerprint(text);
        let table = self.table.lock();
        table.tokens.get(&fingerprint).filter(|token| token.is_valid()).map(judge)
    }

    /// Adds a token, or returns the entry that another request has added meanwhile.
    pub(in crate::listener) fn add(&self, text: &[u8], token: ValidatedToken) -> ValidatedToken {
        let fingerprint = self.fingerprint(text);
        let mut table = self.table.lock();
        if let Some(known) = table.tokens.get(&fingerprint).filter(|known| known.key == token.key && known.is_valid()) {
            return known.clone();
        }
        if table.tokens.insert(fingerprint, token.clone()).is_none() {
            table.order.push_back(fingerprint);
        }
        while table.order.len() > MAX_TOKENS {
            if let Some(oldest) = table.order.pop_front() {
                table.tokens.remove(&oldest);
            }
        }
        token
    }

    /// Removes the tokens of issuers that are no longer accepted, and returns their callers.
    pub(in crate::listener) fn remove_withdrawn(&self) -> Vec<CallerAccess> {
        let mut table = self.table.lock();
        let gone: Vec<_> = table.tokens.extract_if(|_, token| token.caller.access.is_withdrawn()).collect();
        let ValidatedTable { tokens, order } = &mut *table;
        order.retain(|fingerprint| tokens.contains_key(fingerprint));
        gone.into_iter().map(|(_, token)| token.caller).collect()
    }
}
