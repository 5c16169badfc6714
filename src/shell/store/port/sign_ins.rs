//! Operations on sign-ins to the console. The daemon alone has one.

use super::operation::DbOperation;

/// SHA-256 of a secret; the secret itself is not kept.
pub type SecretDigest = [u8; 32];

/// A browser's sign-in as it is kept. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleSignIn {
    /// Digest of the browser's cookie.
    pub id: SecretDigest,
    /// End of the sign-in unless it is used before.
    pub until: u64,
    /// Latest end of the sign-in.
    pub last: u64,
}

/// Operations on sign-ins to the console.
pub trait SignInOperations {
    /// Returns the sign-ins by that token of the operator, and removes all others and those that
    /// are over.
    fn sign_ins(&self, token: SecretDigest, now: u64) -> DbOperation<'_, Vec<ConsoleSignIn>>;

    /// Keeps a sign-in by that token; of more than `most` the one that would end first gives way.
    fn keep_sign_in(&self, one: ConsoleSignIn, token: SecretDigest, most: usize) -> DbOperation<'_, ()>;

    /// Removes a sign-in.
    fn end_sign_in(&self, id: SecretDigest) -> DbOperation<'_, ()>;

    /// Removes all sign-ins but those by that token.
    fn end_other_sign_ins(&self, token: SecretDigest) -> DbOperation<'_, ()>;
}
