//! Handles a client's request from admission to answer: routing, decision, approval, call.
//! Independent of the client's transport and era.
//!
//! Locks (each guards a map for one operation and is never held across an await): the rendered
//! lists of a snapshot ([`snapshot`]), watched
//! resources ([`watched`]), questions to one client ([`client_requests`]), logins that
//! wait for their person ([`logins`]), what each caller holds ([`client::quota`]), handed URIs
//! ([`client::handed_uris`]), held calls
//! ([`held`]), how the last notice went ([`notify`]). Everything else on a call's way is
//! `ArcSwap::load_full` plus channel operations.

pub mod answer;
pub mod call;
pub mod client;
pub(crate) mod client_requests;
pub mod condition;
pub mod decision;
pub mod held;
pub mod hidden_calls;
pub mod keys;
pub mod logins;
pub mod notify;
mod request;
pub mod role;
pub mod service;
pub mod snapshot;
mod subscriptions;
pub mod supervisor;
pub mod turned_away;
pub mod waiting;
pub(crate) mod watched;
