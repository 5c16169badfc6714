//! Several replicas that serve the same clients: which of them live, which one holds a session, and
//! the link over which one passes requests on to another.
//!
//! - Each replica has a row in the store with a heartbeat every few seconds ([`membership`]). What
//!   the row says is sealed ([`row`]). A replica without a heartbeat for 15 s is dead, and one that
//!   refuses a connection is dead at once. One that was taken for dead and lives begins another
//!   *run*, so nothing of before is its own by right.
//! - A text that leads to the memory of one process names its run: a session id, the state of a
//!   call that is parked or waits for an approval, the id of a task. Of the owner of a session that
//!   is dead, the replica that gets the next request claims it in the store and revives it. A
//!   parked call or a task is lost with its owner, and never run again. An approval is asked for
//!   again.
//! - A request for another replica is passed on over HTTP ([`link`]): with mutual TLS by keys that
//!   each replica makes at its start and whose digests stand in the rows ([`peer_tls`]), or plain
//!   on loopback. The caller goes along, sealed for this one request
//!   ([`crate::engine::sealed::peer`]). The client's credential does not.
//! - The program of an upstream with `placement = "one"` runs at the replica that has its lease
//!   ([`lease`]), and the others reach it over the link ([`lines`]).
//! - A request is passed on once: the listener for peers never passes on.
//!
//! `serve::passing` decides for a request, and [`crate::serve::http_server`] serves both
//! kinds of listener.

pub mod lease;
pub mod lines;
pub mod link;
pub mod membership;
pub mod passed;
pub mod peer_tls;
pub mod row;
