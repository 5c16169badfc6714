//! MCP vocabulary over the wire layer: revisions, extensions, methods, `_meta`, items and their projection. Pure.

pub(crate) mod annotations;
pub(crate) mod capability;
pub(crate) mod elicitation;
pub(crate) mod extension;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod imitation;
pub(crate) mod input;
pub(crate) mod item;
pub(crate) mod log;
pub(crate) mod meta;
pub(crate) mod method;
pub(crate) mod notice;
pub(crate) mod project;
pub(crate) mod task;
pub(crate) mod trace;
pub(crate) mod version;
pub(crate) mod voice;
