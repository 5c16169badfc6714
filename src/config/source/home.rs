//! Paths that begin with `~`, the home directory of headend's own user.

use std::path::{Path, PathBuf};

/// Resolves a text to an absolute path.
///
/// # Errors
/// The fault, and what the operator should write instead.
pub(crate) fn absolute(text: &str, home: Option<&str>) -> Result<PathBuf, &'static str> {
    let path = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = home.map(Path::new).filter(|home| home.is_absolute());
            let home =
                home.ok_or("begins with `~`, and $HOME is not set where headend runs; write an absolute path")?;
            home.join(rest.trim_start_matches('/'))
        }
        Some(_) => {
            return Err("`~` is the home directory of headend's own user; write that of another one in full");
        }
        None => PathBuf::from(text),
    };
    if path.is_absolute() { Ok(path) } else { Err("must be an absolute path, or begin with `~/`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_our_home_and_nothing_else() {
        for (text, home, wanted) in [
            ("~", Some("/h"), Some("/h")),
            ("~/", Some("/h"), Some("/h")),
            ("~/a b/~", Some("/h"), Some("/h/a b/~")),
            ("/srv/~x", None, Some("/srv/~x")),
            ("~/a", None, None),
            ("~/a", Some("relative"), None),
            ("~other/a", Some("/h"), None),
            ("a/b", Some("/h"), None),
            ("", Some("/h"), None),
        ] {
            assert_eq!(absolute(text, home).ok().as_deref(), wanted.map(Path::new), "{text}");
        }
    }
}
