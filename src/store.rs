//! The state directory: the database and files, and what is kept in them. No other layer opens either.
//!
//! The database is a seam: [`db`] has one operation for each thing that happens to what is kept, and says what it guarantees. The
//! state machines that operations run inside of a transaction are values of others: pins ([`pins`]), leases (`policy::limit`),
//! grants (`policy::consent`). What a process has in memory beside it follows the outcomes.
//!
//! Locks (each guards a map for one operation and is never held across an await): grants and open approvals ([`approvals`]), the
//! book of pins ([`pins`]), the last decisions ([`recent`]).

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod db;
pub(crate) mod directory;
mod files;
pub(crate) mod leases;
mod lock;
pub(crate) mod pins;
pub(crate) mod recent;
pub(crate) mod seal;
