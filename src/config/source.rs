//! The way from files to typed values: parts that are merged, variables, secrets, and problems with
//! their positions.

pub(super) mod expand;
pub(super) mod file;
pub(super) mod fixed;
pub(super) mod folder;
pub mod guard;
pub(super) mod home;
pub(super) mod merge;
pub(super) mod observed;
pub(super) mod problem;
pub mod secret;
pub(super) mod seen;
pub(super) mod units;
pub(super) mod words;
