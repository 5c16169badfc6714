//! Which items of an upstream are offered at all, and under which local name.

use std::collections::HashMap;

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Allow and deny patterns plus renames, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    allow: Option<GlobSet>,
    deny: GlobSet,
    rename: HashMap<String, String>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { allow: None, deny: GlobSet::empty(), rename: HashMap::new() }
    }
}

impl Filter {
    /// Compiles the patterns; `["*"]` allows everything.
    ///
    /// # Errors
    /// The first pattern that is no glob.
    pub(crate) fn build(
        allow: &[String],
        deny: &[String],
        rename: &[(String, String)],
    ) -> Result<Self, globset::Error> {
        let everything = allow.iter().any(|pattern| pattern == "*");
        Ok(Self {
            allow: if everything { None } else { Some(globs(allow)?) },
            deny: globs(deny)?,
            rename: rename.iter().cloned().collect(),
        })
    }

    pub(crate) fn admits(&self, name: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.is_match(name)) && !self.deny.is_match(name)
    }

    /// The operator's name for an item, else its own.
    pub(crate) fn local<'n>(&'n self, original: &'n str) -> &'n str {
        self.rename.get(original).map_or(original, String::as_str)
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern)?);
    }
    set.build()
}
