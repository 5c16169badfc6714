//! The operator's filters on an upstream's items (`allow`, `deny`) and the operator's names for
//! them (`rename`).

use std::collections::HashMap;

use globset::{GlobSet, GlobSetBuilder};

use crate::catalog::glob::glob;

/// Compiled allow and deny patterns, and the renames.
#[derive(Clone, Debug, Default)]
pub struct ItemFilter {
    allow: Option<GlobSet>,
    deny: GlobSet,
    rename: HashMap<String, String>,
}

impl ItemFilter {
    /// Compiles the patterns. An allow pattern `*` admits everything that is not denied.
    ///
    /// # Errors
    /// The first invalid pattern.
    pub fn build(allow: &[String], deny: &[String], rename: &[(String, String)]) -> Result<Self, String> {
        let everything = allow.iter().any(|pattern| pattern == "*");
        Ok(Self {
            allow: if everything { None } else { Some(globs(allow)?) },
            deny: globs(deny)?,
            rename: rename.iter().cloned().collect(),
        })
    }

    /// Returns a filter that admits no item, used when the patterns cannot be compiled.
    pub fn nothing() -> Self {
        Self { allow: Some(GlobSet::empty()), ..Self::default() }
    }

    /// Whether an item with this original name passes the filter.
    pub fn admits(&self, name: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.is_match(name)) && !self.deny.is_match(name)
    }

    /// Returns the operator's name for an item, or the item's own name if it is not renamed.
    pub fn local<'n>(&'n self, original: &'n str) -> &'n str {
        self.rename.get(original).map_or(original, String::as_str)
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(glob(pattern)?);
    }
    set.build().map_err(|error| format!("the patterns together: {}", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_admits_what_it_says_and_the_empty_one_nothing() {
        let names = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        let filter = ItemFilter::build(&names(&["get_*"]), &names(&["get_secret"]), &[]).unwrap();
        assert!(filter.admits("get_a") && !filter.admits("get_secret") && !filter.admits("set_a"));
        assert!(ItemFilter::default().admits("x") && !ItemFilter::nothing().admits("x"));
        assert!(ItemFilter::build(&names(&["{"]), &[], &[]).is_err());
    }
}
