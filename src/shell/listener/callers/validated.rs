//! The table of JWTs that were validated: a token in it needs no second signature check.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::base::clock;
use crate::identity::keys::KeyDigest;
use crate::listener::callers::caller_access::CallerAccess;
use crate::listener::callers::issuer::JwtIssuer;
use crate::wire::digest::Digest;

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

/// The table, by the digest of each token.
#[derive(Debug, Default)]
pub(in crate::listener) struct ValidatedTokens(Mutex<ValidatedTable>);

#[derive(Debug, Default)]
struct ValidatedTable {
    tokens: HashMap<Digest, ValidatedToken, RandomState>,
    /// The digests, oldest first; each is in `tokens`.
    order: VecDeque<Digest>,
}

impl ValidatedTokens {
    /// Finds a token that is still valid.
    pub(in crate::listener) fn find(&self, digest: &Digest) -> Option<ValidatedToken> {
        let found = self.0.lock().tokens.get(digest).cloned();
        found.filter(ValidatedToken::is_valid)
    }

    /// Adds a token, or returns the entry that another request has added meanwhile.
    pub(in crate::listener) fn add(&self, digest: Digest, token: ValidatedToken) -> ValidatedToken {
        let mut table = self.0.lock();
        if let Some(known) = table.tokens.get(&digest).filter(|known| known.key == token.key && known.is_valid()) {
            return known.clone();
        }
        if table.tokens.insert(digest, token.clone()).is_none() {
            table.order.push_back(digest);
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
        let mut table = self.0.lock();
        let gone: Vec<_> = table.tokens.extract_if(|_, token| token.caller.access.is_withdrawn()).collect();
        let ValidatedTable { tokens, order } = &mut *table;
        order.retain(|digest| tokens.contains_key(digest));
        gone.into_iter().map(|(_, token)| token.caller).collect()
    }
}
