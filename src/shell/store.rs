//! The state directory: the database, the audit log and small files. No other layer opens them.
//!
//! All access to the database goes through [`db`]: it has one operation for each change of stored
//! data, and its head states what each guarantees. The state machines that run inside a transaction
//! are values of other modules: pins ([`pins`]), leases (`policy::limit`) and grants
//! (`policy::consent`). A process updates its memory only from the outcome of an operation.
//!
//! Locks, each of which guards a map for one operation and is never held across an await: grants
//! and open approvals ([`approvals`]), the pin registry ([`pins`]), the last decisions
//! ([`recent`]), ended sessions ([`sessions`]), used states ([`states`]), sign-outs that are not on
//! disk yet ([`sign_ins`]).

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
