//! Operations on stored tokens of clients. Every process adds and revokes them; the daemon alone
//! notes their use.

use super::operation::DbOperation;
use crate::wire::digest::Digest;

/// Number of digest bytes by which a token is found.
pub const TOKEN_PREFIX_BYTES: usize = 8;

/// A token of a client as it is kept; the token itself is not. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientToken {
    /// Name of the token and of its caller; unique.
    pub name: String,
    /// Digest of the token. Its first [`TOKEN_PREFIX_BYTES`] are unique.
    pub digest: Digest,
    pub scopes: Vec<String>,
    pub created: u64,
    /// End of the token; `None` for a token that lasts until it is revoked.
    pub expires: Option<u64>,
    /// Last use, coarsely; `None` for a token that was never used.
    pub last_used: Option<u64>,
}

/// The outcome of adding a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAddition {
    Added,
    /// A token of this name is there, which may have expired.
    NameExists,
    /// A token of another name has the same text.
    TokenExists,
    /// As many tokens as may be kept are there.
    Full,
}

/// Operations on stored tokens of clients.
pub trait ClientTokenOperations {
    /// Returns all tokens, those that have expired among them, by name.
    fn client_tokens(&self) -> DbOperation<'_, Vec<ClientToken>>;

    /// Keeps a new token, of which there are at most `most`.
    fn add_client_token(&self, token: ClientToken, most: usize) -> DbOperation<'_, TokenAddition>;

    /// Removes a token, and returns whether there was one of this name.
    fn revoke_client_token(&self, name: String) -> DbOperation<'_, bool>;

    /// Notes the last use of tokens by their digests; never an earlier one than is there.
    fn note_token_uses(&self, uses: Vec<(Digest, u64)>) -> DbOperation<'_, ()>;
}
