//! Properties that hold for any bytes at all: one for each door by which others send them.
//!
//! A property takes the bytes, lets the real functions read them and asserts what must be true of the outcome; a panic is a
//! finding. `tests/fuzz` runs each under `libFuzzer`, and the unit tests run its kept corpus and mutations of that. Compiled for
//! tests and for fuzzing alone.

#[cfg(test)]
mod costs;
#[cfg(test)]
mod tests;

/// The name of a target, of its folder in `tests/fuzz/corpus` too, and the property.
pub type Target = (&'static str, fn(&[u8]));

/// Each property.
pub const TARGETS: &[Target] = &[
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
    ("patterns", crate::policy::fuzz::patterns),
    ("arguments", crate::policy::fuzz::arguments),
    ("audit", crate::policy::fuzz::audit),
    ("configuration", crate::config::fuzz::configuration),
    ("import", crate::cli::import::fuzz::import),
    ("text", crate::console::fuzz::text),
];

/// Checks one property.
///
/// # Panics
/// When the property does not hold, or when there is none of that name.
pub fn run(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, property) = found.expect("a target of this name");
    property(data);
}
