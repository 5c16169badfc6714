//! Logs and metrics for operators.

pub mod logs;
pub mod metrics;
pub mod upstream_state;
