//! Tests of approvals, pins, rules and records.

pub(super) mod actions;
pub(super) mod approvals;
pub(super) mod audit;
pub(super) mod claims;
pub(super) mod consent;
pub(super) mod habit;
pub(super) mod hidden;
pub(super) mod pins;
pub(super) mod sealed;
