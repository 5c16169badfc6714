//! The merged namespace: the items of all upstreams, their names for clients, and the bytes of the lists. Pure.

pub mod filter;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod glob;
pub mod holder;
pub mod inventory;
pub mod merge;
pub mod name;
pub mod page;
pub mod template;
pub mod view;
