//! Tests of what clients say and get.

pub(super) mod admission;
pub(super) mod buffered;
pub(super) mod codings;
pub(super) mod door;
pub(super) mod faces;
pub(super) mod fairness;
pub(super) mod ladder;
pub(super) mod limits;
pub(super) mod onward;
pub(super) mod proxied;
pub(super) mod requests;
pub(super) mod resume;
pub(super) mod revive;
pub(super) mod sessions;
pub(super) mod sse;
pub(super) mod subscriptions;
