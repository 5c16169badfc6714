//! JSON text: read, checked and edited without building values.

pub(super) mod envelope;
pub(super) mod grammar;
pub mod layout;
pub(crate) mod plain;
pub mod raw;
pub(crate) mod strings;
pub mod tokens;
