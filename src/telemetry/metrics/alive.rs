//! What is counted while it lives.

use prometheus::{IntCounter, IntGauge};

/// One connection of a client, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(super) open: IntGauge,
    pub(super) received: IntCounter,
    pub(super) sent: IntCounter,
}

impl Connected {
    /// The counter of bytes read.
    pub(crate) fn received(&self) -> IntCounter {
        self.received.clone()
    }

    /// The counter of bytes written.
    pub(crate) fn sent(&self) -> IntCounter {
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
pub(crate) struct Running(pub(super) IntGauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}
