//! Calls that wait for a person: for an approval, or for a login at their upstream.

pub(crate) mod approval;
pub(super) mod channel;
pub(crate) mod client_call;
pub(crate) mod held;
pub(super) mod login;
