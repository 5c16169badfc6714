//! Streamable HTTP towards one upstream: its address, its exchanges, and what they fail with.

pub(crate) mod answer;
pub(crate) mod exchange;
pub(crate) mod failure;
pub(crate) mod initialize;
pub(crate) mod parts;
mod redirect;
pub(crate) mod remote;
pub(crate) mod resume;
pub(crate) mod unspoken;
