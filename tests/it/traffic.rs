//! Tests of clients, servers and what passes between them.

pub(super) mod admission;
pub(super) mod afar;
pub(super) mod buffered;
pub(super) mod calls;
pub(super) mod children;
pub(super) mod deadlines;
pub(super) mod door;
pub(super) mod faces;
pub(super) mod failures;
pub(super) mod leased;
pub(super) mod limits;
pub(super) mod piped;
pub(super) mod proxy;
pub(super) mod slips;
pub(super) mod surroundings;
