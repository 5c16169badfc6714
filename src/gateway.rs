//! One request of a client, from admission to its answer: routing, decision, approval, call. Any transport, any era.
//!
//! Locks (each guards a map for one operation and is never held across an await): the rendered lists of a snapshot
//! ([`snapshot`]), what the lists of clients have shown ([`listed`]), watched resources ([`watched`]), questions to one client
//! ([`question::client_requests`]), logins that wait for their person ([`logins`]), what each caller holds ([`quota`]), held calls ([`waiting::held`]), how the last notice went ([`notify`]). Everything else on a call's way is `ArcSwap::load_full` plus channel operations.

pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod condition;
pub(crate) mod connected;
pub(crate) mod decision;
pub(crate) mod dry_run;
pub(crate) mod found;
pub(crate) mod gate;
pub(crate) mod keys;
pub(crate) mod listed;
pub(crate) mod logins;
pub(crate) mod notify;
mod prepared;
pub(crate) mod question;
pub(crate) mod quota;
mod request;
pub(crate) mod role;
pub(crate) mod service;
pub(crate) mod snapshot;
mod starting;
mod subscriptions;
pub(crate) mod supervisor;
pub(crate) mod turned_away;
pub(crate) mod waiting;
pub(crate) mod watched;
