//! The merged namespace of all upstreams: item names, inventories, the merge into one catalog, and
//! the bytes of the lists. Pure, without I/O.

pub(crate) mod app_views;
pub mod apps;
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
