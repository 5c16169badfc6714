//! The tables of the database, a file for each group, with the operations over it.

pub(super) mod approvals;
pub(super) mod audit;
pub(super) mod client_tokens;
pub(super) mod grants;
pub(super) mod limits;
pub(super) mod logins;
pub(super) mod meta;
pub(super) mod open_approvals;
pub(super) mod pins;
pub(super) mod restored;
pub(in crate::store) mod sealed;
pub(super) mod sessions;
pub(super) mod sign_ins;
pub(super) mod states;
