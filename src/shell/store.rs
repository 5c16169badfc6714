//! The state directory: the database, small files and their contents. No other layer opens either.
//!
//! The database is a seam: [`db`] has one operation for each change of stored data, and its head states their guarantees. The
//! state machines that operations run inside of a transaction are values of others: pins ([`pins`]), leases (`policy::limit`),
//! grants (`policy::consent`). A process's memory follows their outcomes.
//!
//! Locks (each guards a map for one operation and is never held across an await): grants and open approvals ([`approvals`]), the
//! pin registry ([`pins`]), the last decisions ([`recent`]), ended sessions ([`sessions`]), used states ([`states`]),
//! sign-outs that wait for the disk ([`sign_ins`]).

pub mod address;
pub mod approvals;
pub mod audit;
pub mod backup;
pub mod db;
pub mod directory;
mod disk_use;
mod files;
#[cfg(test)]
pub(crate) mod killed;
pub mod leases;
mod lock;
pub mod logins;
pub mod pins;
pub mod presence;
pub mod recent;
pub mod restored;
pub mod seal;
pub mod sessions;
pub mod sign_ins;
pub(crate) mod states;
