//! Tests of rules, approvals, pins and records.

pub(super) mod approvals;
pub(super) mod claims;
pub(super) mod consent;
pub(super) mod foreign;
pub(super) mod hidden;
pub(super) mod hints;
pub(super) mod live;
pub(super) mod notices;
pub(super) mod operator;
pub(super) mod pins;
pub(super) mod poison;
pub(super) mod policy;
pub(super) mod rules;
