//! Facts about tools that rules and people look at.

pub(super) mod annotations;
pub(super) mod confirmed;
pub mod likeness;
