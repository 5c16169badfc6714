//! Handles a client's request from admission to answer: routing, decision, approval, call.
//! Independent of the client's transport and era.
//!
//! Locks, each of which guards a map for one operation and is never held across an await: the
//! rendered lists of a snapshot ([`snapshot`]), the items that clients' lists have shown
//! ([`listed`]), watched resources ([`watched`]), questions to one client
//! ([`question::client_requests`]), logins that a client has been led to ([`logins`]), slots per
//! caller ([`quota`]), held calls ([`waiting::held`]), the outcome of the last notice ([`notify`]).
//! Everything else on a call's way is `ArcSwap::load_full` plus channel operations.

pub mod admission;
pub mod answer;
pub mod call;
pub mod client;
pub mod condition;
pub mod connected;
pub(crate) mod decision;
pub mod dry_run;
pub(crate) mod found;
pub(crate) mod gate;
pub mod keys;
pub mod listed;
pub mod logins;
pub mod notify;
mod prepared;
pub(crate) mod question;
pub mod quota;
mod request;
pub mod role;
pub mod service;
pub mod snapshot;
mod starting;
mod subscriptions;
pub mod supervisor;
pub mod turned_away;
pub mod waiting;
pub(crate) mod watched;
