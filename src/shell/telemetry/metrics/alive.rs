//! Guards that count a connection or a process in a gauge until they are dropped.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};

use super::usage::UsageMetrics;

/// A client's connection, counted until it is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    pub(super) open: IntGauge,
    pub(super) received: IntCounter,
    pub(super) sent: IntCounter,
}

impl CountedConnection {
    /// Returns the counter of bytes read from the client.
    pub fn received(&self) -> IntCounter {
        self.received.clone()
    }

    /// Returns the counter of bytes written to the client.
    pub fn sent(&self) -> IntCounter {
        self.sent.clone()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// A process of an upstream, counted until it is dropped.
#[derive(Debug)]
pub struct CountedProcess {
    pub(super) open: IntGauge,
    /// Number of the process's guard, if it has one.
    pub(super) guard: Option<u32>,
    pub(super) usage: Arc<UsageMetrics>,
}

impl Drop for CountedProcess {
    fn drop(&mut self) {
        self.open.dec();
        self.guard.into_iter().for_each(|guard| self.usage.remove_guard(guard));
    }
}
