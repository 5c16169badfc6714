//! Properties that must hold for any input: at least one for each channel on which other programs
//! send bytes.
//!
//! A property passes the bytes to the real functions and asserts facts about the outcome; a panic
//! is a finding. `tests/fuzz` runs each property under `libFuzzer`, and the unit tests run its
//! stored corpus and mutations of it. This module is compiled for tests and fuzzing only.

#[cfg(test)]
mod costs;
#[cfg(test)]
mod tests;

/// The name of a target, which is also its folder in `tests/fuzz/corpus`, and its property.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    ("frames", crate::wire::fuzz::frames),
    ("lines", crate::wire::fuzz::lines),
    ("sse", crate::wire::fuzz::sse),
    ("headers", crate::wire::fuzz::headers),
    ("canonical", crate::wire::fuzz::canonical),
    ("items", crate::mcp::fuzz::items),
    ("questions", crate::mcp::fuzz::questions),
    ("projection", crate::mcp::fuzz::projection),
    ("templates", crate::catalog::fuzz::templates),
    ("cursors", crate::catalog::fuzz::cursors),
    ("states", crate::engine::fuzz::states),
    ("parameters", crate::engine::fuzz::parameters),
    ("peer", crate::engine::fuzz::peer),
    ("challenges", crate::login::fuzz::challenges),
    ("logins", crate::login::fuzz::logins),
    ("patterns", crate::policy::fuzz::patterns),
    ("arguments", crate::policy::fuzz::arguments),
    ("audit", crate::policy::fuzz::audit),
    ("configuration", crate::config::fuzz::configuration),
    ("import", crate::cli::setup::import::fuzz::import),
    ("text", crate::console::fuzz::text),
];

/// Checks one property with these bytes.
///
/// # Panics
/// If the property does not hold, or no target has that name.
pub fn run(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, property) = found.expect("a target of this name");
    property(data);
}
