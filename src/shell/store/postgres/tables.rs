//! The tables of the database, a file for each group, with the operations over it.

mod approvals;
mod audit;
pub(super) mod audit_rows;
mod client_tokens;
mod grants;
mod limits;
mod logins;
pub(super) mod meta;
mod open_approvals;
mod pins;
pub(super) mod replaced;
mod replicas;
mod restored;
pub(super) mod sealed;
pub(super) mod sealed_columns;
pub(super) mod sessions;
mod sign_ins;
mod states;
