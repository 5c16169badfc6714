//! The way of questions to a client and of its answers back; [`crate::engine::question`] decides what is asked, and how.

pub(crate) mod client_requests;
