//! What is counted while it lives.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};

use super::usage::UsageMetrics;

/// One connection of a client, counted until it is dropped.
#[derive(Debug)]
pub struct Connected {
    pub(super) open: IntGauge,
    pub(super) received: IntCounter,
    pub(super) sent: IntCounter,
}

impl Connected {
    /// The counter of bytes read.
    pub fn received(&self) -> IntCounter {
        self.received.clone()
    }

    /// The counter of bytes written.
    pub fn sent(&self) -> IntCounter {
        self.sent.clone()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// A process of an upstream, counted until it is dropped.
#[derive(Debug)]
pub struct Running {
    pub(super) open: IntGauge,
    pub(super) guard: Option<u32>,
    pub(super) usage: Arc<UsageMetrics>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.open.dec();
        self.guard.into_iter().for_each(|guard| self.usage.remove_guard(guard));
    }
}
