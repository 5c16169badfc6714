//! The shell: tokio, hyper, rustls and notify live here and nowhere else.
//!
//! Locks (each guards a map for one operation and is never held across an await): the session table and each session's
//! calls in flight ([`server::legacy`]), the rendered lists of a snapshot ([`snapshot`]), the limiter's shards
//! ([`crate::policy`]), an upstream's lanes ([`upstream::lane`]), a legacy HTTP session's calls ([`upstream::http`]), watched
//! resources ([`upstream::updates`], [`watching`]), parked calls ([`held`]), open questions ([`asker`]), grants and
//! prompts ([`ledger`]), the book of pins ([`pins`]), the last decisions ([`recent`]), the console's sessions ([`console`]).
//! Everything else on a call's way is `ArcSwap::load_full` plus channel operations.

pub(crate) mod admin;
pub(crate) mod asker;
pub(crate) mod asking;
pub(crate) mod audit;
pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod console;
pub(crate) mod db;
pub(crate) mod descriptors;
pub(crate) mod dialogue;
pub(crate) mod exchange;
pub(crate) mod gate;
pub(crate) mod gateway;
pub(crate) mod held;
pub(crate) mod inquiry;
pub(crate) mod leases;
pub(crate) mod ledger;
pub(crate) mod live;
pub(crate) mod pins;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod relay;
pub(crate) mod repoll;
pub(crate) mod seal;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod shares;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod supervisor;
pub(crate) mod systemd;
pub(crate) mod tally;
pub(crate) mod tasking;
pub(crate) mod tasks;
pub(crate) mod trial;
mod turned_away;
pub(crate) mod upstream;
pub(crate) mod watch;
pub(crate) mod watching;
