//! The callers of HTTP: their credentials, and what is said to those who have none.

pub(super) mod caller_access;
pub mod credentials;
mod issuer;
pub mod issuer_keys;
pub mod jwt;
pub mod stored_tokens;
pub(super) mod validated;
