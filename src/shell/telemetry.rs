//! Logs and metrics for operators, and the names of upstream states that both use.

pub mod logs;
pub mod metrics;
pub mod upstream_state;
