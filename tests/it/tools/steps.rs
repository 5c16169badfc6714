//! Steps that tests of the binary and of the stage share.

#[path = "steps/abuse.rs"]
pub(crate) mod abuse;
#[path = "steps/approvals.rs"]
pub(crate) mod approvals;
#[path = "steps/consent.rs"]
pub(crate) mod consent;
#[path = "steps/faces.rs"]
pub(crate) mod faces;
#[path = "steps/health.rs"]
pub(crate) mod health;
#[path = "steps/limits.rs"]
pub(crate) mod limits;
#[path = "steps/pins.rs"]
pub(crate) mod pins;
#[path = "steps/revive.rs"]
pub(crate) mod revive;
#[path = "steps/ways.rs"]
pub(crate) mod ways;
