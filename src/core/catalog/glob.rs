//! Glob patterns of the configuration: `*`, `?`, `[a-z]`, `{one,other}`, and `\` before a literal
//! character.

use globset::{Glob, GlobBuilder};

/// Longest pattern, in bytes. Names have up to 128 bytes, URIs rarely more than a thousand.
const MAX_BYTES: usize = 4096;
/// Most braces in one pattern. The library parses nested braces by recursion.
const MAX_BRACES: usize = 64;

/// Compiles a glob pattern. All patterns of headend go through this function, so they have one
/// syntax and one bound.
///
/// # Errors
/// A sentence about the mistake.
pub fn glob(pattern: &str) -> Result<Glob, String> {
    if pattern.len() > MAX_BYTES {
        return Err(format!("a pattern may have {MAX_BYTES} bytes, and this one has {}", pattern.len()));
    }
    if memchr::memchr_iter(b'{', pattern.as_bytes()).nth(MAX_BRACES).is_some() {
        return Err(format!("a pattern may have {MAX_BRACES} braces, and this one has more"));
    }
    let mut builder = GlobBuilder::new(pattern);
    let glob = builder.literal_separator(false).backslash_escape(true).build();
    glob.map_err(|error| format!("`{pattern}` is not a glob: {}", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_glob_within_bounds() {
        for good in ["*", "get_*", "a/{b,c}/*", "[!a]?", &"{a,".repeat(64).replace("{a,", "{a}")] {
            assert!(glob(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("a[", "is not a glob"),
            (&*"{".repeat(100_000), "4096 bytes"),
            (&*"{".repeat(4096), "64 braces"),
            (&*format!("{}{}", "{".repeat(65), "}".repeat(65)), "64 braces"),
        ] {
            let error = glob(bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
