//! One request of a client, from admission to its answer: routing, decision, approval, call. Any
//! transport, any era.
//!
//! Locks (each guards a map for one operation and is never held across an await): the rendered
//! lists of a snapshot ([`snapshot`]), what the lists of clients have shown ([`listed`]), watched
//! resources ([`watched`]), questions to one client ([`question::client_requests`]), logins that
//! wait for their person ([`logins`]), what each caller holds ([`quota`]), held calls
//! ([`waiting::held`]), how the last notice went ([`notify`]). Everything else on a call's way is
//! `ArcSwap::load_full` plus channel operations.

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
