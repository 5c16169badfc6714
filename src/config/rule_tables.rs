//! The tables with patterns: rules, filters and hints.

pub(super) mod arguments;
pub(super) mod canonical;
pub(super) mod filter;
pub(super) mod hints;
pub(super) mod rules;
