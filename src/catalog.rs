//! The merged namespace: the items of all upstreams, their names for clients, and the bytes of the lists. Pure.

pub(crate) mod filter;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod glob;
pub(crate) mod inventory;
pub(crate) mod merge;
pub(crate) mod name;
pub(crate) mod page;
pub(crate) mod template;
pub(crate) mod view;
