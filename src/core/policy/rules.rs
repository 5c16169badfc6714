//! Rules: as patterns and conditions, matched against names, arguments and URIs.

pub(super) mod arguments;
pub(super) mod pattern;
pub(super) mod problems;
pub(super) mod rule;
pub(super) mod truth;
pub(super) mod uri;
