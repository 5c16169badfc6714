//! The state directory: the database, the audit log and small files. No other layer opens them.
//!
//! The database is behind a port: [`port`] has one operation for each change of stored data, and
//! its head states their guarantees; the folders `sqlite` and `postgres` are its engines, of which
//! [`db`] opens one. The state machines that operations run inside of a transaction are values of
//! others: pins (`pin_record`), leases (`policy::limit`), grants (`policy::consent`). A process's
//! memory follows their outcomes.
//!
//! Locks (each guards a map for one operation and is never held across an await): grants and open
//! approvals ([`approvals`]), the pin registry ([`pins`]), the last decisions ([`recent`]), ended
//! sessions ([`sessions`]), used states ([`states`]), sign-outs that wait for the disk
//! ([`sign_ins`]).

pub mod approvals;
pub mod audit;
pub mod backup;
pub mod db;
pub mod directory;
pub mod disk;
#[cfg(test)]
pub(crate) mod killed;
pub mod leases;
pub mod logins;
pub mod pin_record;
pub mod pins;
pub mod port;
mod postgres;
pub mod recent;
pub mod restored;
pub mod seal;
pub mod sessions;
pub mod sign_ins;
mod sqlite;
pub(crate) mod states;
