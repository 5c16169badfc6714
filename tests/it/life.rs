//! Tests of the life of the daemon: starts, reloads, restarts, upgrades and ends.

pub(super) mod activation;
pub(super) mod disk;
pub(super) mod ends;
pub(super) mod files;
pub(super) mod handover;
pub(super) mod health;
pub(super) mod late;
pub(super) mod live;
pub(super) mod package;
pub(super) mod reload;
pub(super) mod revive;
pub(super) mod starts;
pub(super) mod units;
pub(super) mod upgrade;
