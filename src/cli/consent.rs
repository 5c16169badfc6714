//! Commands about approvals, grants, pins and rules.

pub(super) mod approvals;
pub(super) mod grants;
pub(super) mod pins;
pub(super) mod policy;
