//! Logins at upstreams: tokens, their renewal, and the requests that obtain them.

pub(crate) mod fetcher;
pub(crate) mod link;
pub mod parts;
pub mod tokens;
