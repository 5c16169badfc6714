//! The state directory: the database and files, and what is kept in them. No other layer opens either.
//!
//! Locks (each guards a map for one operation and is never held across an await): grants and open approvals ([`approvals`]), the
//! book of pins ([`pins`]), the last decisions ([`recent`]).

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod db;
pub(crate) mod directory;
mod files;
pub(crate) mod leases;
pub(crate) mod pins;
pub(crate) mod recent;
pub(crate) mod seal;
