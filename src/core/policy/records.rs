//! Records of decisions: what they hold, their chain, and what is suggested from them.

pub mod chain;
pub mod habit;
pub(super) mod record;
pub mod refusals;
