//! Carries questions to a client and its answers back; [`crate::engine::question`] decides what is
//! asked, and how.

pub(crate) mod client_requests;
