//! The table of JWTs that were validated: a token in it needs no second signature check.

use std::collections::{HashMap, VecDeque};
use std::fmt;
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

/// The table, by the text of each token: two texts are never taken for one, and a look-up costs
/// less than a digest.
#[derive(Default)]
pub(in crate::listener) struct ValidatedTokens {
    table: Mutex<ValidatedTable>,
}

#[derive(Default)]
struct ValidatedTable {
    tokens: HashMap<Arc<[u8]>, ValidatedToken>,
    /// The texts, oldest first; each is in `tokens`.
    order: VecDeque<Arc<[u8]>>,
}

impl fmt::Debug for ValidatedTokens {
    /// Writes no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidatedTokens").finish_non_exhaustive()
    }
}

impl ValidatedTokens {
    /// Finds a token that is still valid, and returns what `judge` makes of it.
    pub(in crate::listener) fn find<T>(&self, text: &[u8], judge: impl FnOnce(&ValidatedToken) -> T) -> Option<T> {
        let table = self.table.lock();
        table.tokens.get(text).filter(|token| token.is_valid()).map(judge)
    }

    /// Adds a token, or returns the entry that another request has added meanwhile.
    pub(in crate::listener) fn add(&self, text: &[u8], token: ValidatedToken) -> ValidatedToken {
        let mut table = self.table.lock();
        if let Some(known) = table.tokens.get(text).filter(|known| known.key == token.key && known.is_valid()) {
            return known.clone();
        }
        let text: Arc<[u8]> = Arc::from(text);
        if table.tokens.insert(Arc::clone(&text), token.clone()).is_none() {
            table.order.push_back(text);
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
        order.retain(|text| tokens.contains_key(text));
        gone.into_iter().map(|(_, token)| token.caller).collect()
    }
}
