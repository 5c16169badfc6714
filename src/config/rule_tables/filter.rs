//! Reads the filters of upstreams and profiles.

use std::collections::HashSet;

use crate::catalog::glob::glob;
use crate::catalog::name::MAX_ORIGINAL_LENGTH;

use crate::model::FilterSettings;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::words::find_repeated;

/// Reads `{ allow, deny, rename }`; resources and profiles have no `rename`.
pub(crate) fn filter(table: &mut ConfigTable<'_>, key: &'static str, renames: bool) -> FilterSettings {
    let mut filter = FilterSettings::default();
    let Some(mut table) = table.table(key) else { return filter };
    if let Some(allow) = table.take("allow") {
        filter.allow = globs(&allow);
    }
    if let Some(deny) = table.take("deny") {
        filter.deny = globs(&deny);
    }
    if renames {
        filter.rename = table.table("rename").map(renamed).unwrap_or_default();
    } else {
        table.refuse("rename", "only tools and prompts of an upstream can be renamed");
    }
    table.finish();
    filter
}

fn globs(node: &ConfigNode<'_>) -> Vec<String> {
    let mut globs = Vec::new();
    for item in node.items("an array of patterns such as [\"get_*\"]").into_iter().flatten() {
        let Some(text) = item.string() else { continue };
        if text.is_empty() {
            item.problem("must not be empty; write \"*\" for everything");
        }
        if let Err(error) = glob(&text) {
            item.problem(format!("is not a pattern: {error}"));
        }
        globs.push(text);
    }
    globs
}

/// Reads new names by original name; reports names that are used twice.
fn renamed(table: ConfigTable<'_>) -> Vec<(String, String)> {
    let mut names = Vec::new();
    let mut nodes = Vec::new();
    for (original, node) in table.named() {
        let Some(new) = node.string() else { continue };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if new.is_empty() || MAX_ORIGINAL_LENGTH < new.len() || !new.chars().all(fits) {
            node.problem(format!("must be up to {MAX_ORIGINAL_LENGTH} letters, digits, `_`, `-`, `.` or `/`"));
        }
        names.push((original, new));
        nodes.push(node);
    }
    let again: HashSet<usize> = find_repeated(names.iter().enumerate().map(|(at, (_, new))| (new.as_str(), at)))
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    for (_, node) in nodes.iter().enumerate().filter(|(at, _)| again.contains(at)) {
        node.problem("another item has this name already");
    }
    names
}
