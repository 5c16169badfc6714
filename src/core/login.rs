//! The OAuth client: leads from a server's challenge to a token, and keeps that token fresh.
//!
//! Pure: `now`, random bytes and the answers of other servers are arguments, requests are values.
//! [`flow::LoginFlow`] says which request comes next and takes its answer; [`token`] makes the
//! requests of a login that exists already. [`terms::LoginTerms`] judges to which addresses the
//! document of a peer may lead.
//!
//! | step | module |
//! |---|---|
//! | the server's 401 or 403 | [`challenge`] |
//! | metadata of the resource | [`resource`] |
//! | metadata of its authorization server | [`server`] |
//! | headend as a client of that server | [`registration`], [`client`], [`assertion`] |
//! | the scopes to ask for | [`scope`] |
//! | the login page and its call-back | [`authorize`] |
//! | tokens | [`token`] |
//!
//! Source: MCP basic/authorization of all revisions; RFC 6749, 6750, 7009, 7523, 7591, 7636, 8414,
//! 8707, 9207, 9728.

pub mod assertion;
pub mod authorize;
pub mod challenge;
pub mod client;
pub mod document;
pub mod error;
#[cfg(any(test, fuzzing, feature = "testing"))]
mod fixtures;
pub mod flow;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod hidden;
pub mod registration;
pub mod request;
pub mod resource;
pub mod scope;
pub mod server;
pub mod terms;
pub mod token;
