//! Logs and metrics for operators.

pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod upstream_state;
