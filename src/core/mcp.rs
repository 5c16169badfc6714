//! The MCP vocabulary on top of `wire`: revisions, extensions, methods, `_meta`, items and their
//! projection. Pure.

pub mod asking;
pub mod capability;
pub mod client_name;
pub mod definition;
pub mod extension;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod handed_uris;
pub mod instructions;
pub mod log;
pub(crate) mod lookalike;
pub mod meta;
pub mod method;
pub mod notice;
pub mod nulls;
pub mod project;
pub mod task;
pub mod trace;
pub mod version;
pub mod voice;
