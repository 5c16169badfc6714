//! The `[profiles.<name>]` tables, and the filters that they share with upstreams.

use std::collections::HashSet;

use crate::catalog::glob::glob;
use crate::catalog::name::{MAX_ORIGINAL_LENGTH, UpstreamName};

use super::build::repeated;
use super::file::{Node, Table, did_you_mean};
use super::rules::{Separator, check_pattern};
use super::{Filter, Profile};

/// All profiles in the order of the file.
pub(super) fn all(table: Option<Table<'_>>, upstreams: &[UpstreamName]) -> Vec<Profile> {
    let Some(table) = table else { return Vec::new() };
    let mut profiles = Vec::new();
    for (name, node) in table.named() {
        // It is a segment of a URL path; the rules of upstream names fit.
        if let Err(error) = UpstreamName::parse(&name) {
            node.problem(format!("the name of a profile {error}"));
        }
        let Some(table) = node.table() else { continue };
        profiles.push(one(name, table, upstreams));
    }
    profiles
}

fn one(name: String, mut table: Table<'_>, all: &[UpstreamName]) -> Profile {
    let upstreams = match table.take("upstreams") {
        Some(node) => members(&node, all),
        None => all.to_vec(),
    };
    let transparent = table.boolean("transparent").unwrap_or(false);
    if transparent && upstreams.len() != 1 {
        table.problem("a transparent profile shows names as they are, so it needs exactly one upstream");
    }
    let profile = Profile {
        tools: filter_of(&mut table, "tools", &upstreams, Separator::Name),
        prompts: filter_of(&mut table, "prompts", &upstreams, Separator::Name),
        resources: filter_of(&mut table, "resources", &upstreams, Separator::Uri),
        name,
        upstreams,
        transparent,
    };
    table.finish();
    profile
}

fn members(node: &Node<'_>, all: &[UpstreamName]) -> Vec<UpstreamName> {
    let Some(items) = node.items("an array of upstreams") else { return Vec::new() };
    if items.is_empty() {
        node.problem("must name at least one upstream; without this key the profile has all");
    }
    let mut members: Vec<UpstreamName> = Vec::new();
    for item in items {
        let Some(text) = item.string() else { continue };
        match all.iter().find(|name| name.as_str() == text) {
            Some(name) if members.contains(name) => item.problem("stands here twice"),
            Some(name) => members.push(name.clone()),
            None => {
                let near = did_you_mean(&text, all.iter().map(UpstreamName::as_str));
                item.problem(format!("there is no upstream `{text}`{near}"));
            }
        }
    }
    members
}

/// A profile's filter, whose patterns are over canonical names.
fn filter_of(table: &mut Table<'_>, key: &'static str, upstreams: &[UpstreamName], separator: Separator) -> Filter {
    let before = filter(table, key, false);
    for (list, patterns) in [("allow", &before.allow), ("deny", &before.deny)] {
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(message) = check_pattern(pattern, separator, upstreams) {
                let path = format!("{}.{key}.{list}[{index}]", table.path);
                table.source.problem_at(&path, message);
            }
        }
    }
    before
}

/// Reads `{ allow, deny, rename }`; resources and profiles have no `rename`.
pub(super) fn filter(table: &mut Table<'_>, key: &'static str, renames: bool) -> Filter {
    let mut filter = Filter::default();
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

fn globs(node: &Node<'_>) -> Vec<String> {
    let mut globs = Vec::new();
    for item in node.items("an array of patterns such as [\"get_*\"]").into_iter().flatten() {
        let Some(text) = item.string() else { continue };
        if text.is_empty() {
            item.problem("must not be empty; write \"*\" for everything");
        }
        if let Err(error) = glob(&text) {
            item.problem(format!("is no pattern: {error}"));
        }
        globs.push(text);
    }
    globs
}

fn renamed(table: Table<'_>) -> Vec<(String, String)> {
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
    let again: HashSet<usize> = repeated(names.iter().enumerate().map(|(at, (_, new))| (new.as_str(), at)))
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    for (_, node) in nodes.iter().enumerate().filter(|(at, _)| again.contains(at)) {
        node.problem("another item has this name already");
    }
    names
}
