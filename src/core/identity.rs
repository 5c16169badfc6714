//! The rules by which a JWT of an issuer proves who calls, and the metadata by which clients find
//! that issuer. headend is the protected resource here, never an authorization server.
//!
//! Pure: `now`, keys and documents are arguments. [`token::PresentedToken`] reads a token,
//! [`keys::KeySet`] the issuer's keys, and [`token::PresentedToken::validate`] judges one by the
//! other. [`resource::ProtectedResource`] is what clients learn.
//!
//! Source: RFC 6750, 7515, 7517, 7519, 8725, 9068, 9728.

pub mod algorithm;
pub mod discovery;
pub mod keys;
pub mod refusal;
pub mod resource;
mod signature;
pub mod terms;
pub mod token;

#[cfg(any(test, feature = "testing"))]
pub mod fixtures;
