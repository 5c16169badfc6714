//! Operations on sign-ins to the console. The daemon alone has one.

use super::operation::Operation;

/// SHA-256 of a secret; the secret itself is not kept.
pub type Key = [u8; 32];

/// A browser's sign-in as it is kept. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// Digest of the browser's cookie.
    pub id: Key,
    /// End of the sign-in unless it is used before.
    pub until: u64,
    /// Latest end of the sign-in.
    pub last: u64,
}

/// Operations on sign-ins to the console.
pub trait SignInOperations {
    /// Returns the sign-ins by that token of the operator, and removes all others and those that
    /// are over.
    fn sign_ins(&self, token: Key, now: u64) -> Operation<'_, Vec<SignIn>>;

    /// Keeps a sign-in by that token; of more than `most` the one that would end first gives way.
    fn keep_sign_in(&self, one: SignIn, token: Key, most: usize) -> Operation<'_, ()>;

    /// Removes a sign-in.
    fn end_sign_in(&self, id: Key) -> Operation<'_, ()>;

    /// Removes all sign-ins but those by that token.
    fn end_other_sign_ins(&self, token: Key) -> Operation<'_, ()>;
}
