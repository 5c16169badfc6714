//! Tests of what servers say and how they fail.

pub(super) mod asking;
pub(super) mod bounds;
pub(super) mod failures;
pub(super) mod faults;
pub(super) mod gone;
pub(super) mod inventory;
pub(super) mod killed;
pub(super) mod lazy;
pub(super) mod lists;
pub(super) mod login;
pub(super) mod malformed;
pub(super) mod order;
pub(super) mod slips;
pub(super) mod starting;
pub(super) mod tasks;
pub(super) mod voice;
