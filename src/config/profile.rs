//! Reads the `[profiles.<name>]` tables.

use crate::catalog::name::UpstreamName;
use crate::policy::CallerPatterns;

use super::model::{FilterSettings, Profile};
use crate::rule_tables::canonical::{Separator, check_all};
use crate::rule_tables::filter::filter;
use crate::source::file::{ConfigNode, ConfigTable, patterns};
use crate::source::words::did_you_mean;
use crate::values::instructions;
use crate::values::issuers;
use crate::values::issuers::JwtSettings;

/// Reads all profiles, in the order of the file.
pub(super) fn all(
    table: Option<ConfigTable<'_>>,
    upstreams: &[UpstreamName],
    jwt: Option<&JwtSettings>,
) -> Vec<Profile> {
    let Some(table) = table else { return Vec::new() };
    let mut profiles = Vec::new();
    for (name, node) in table.named() {
        // The name is a segment of a URL path; the rules of upstream names fit.
        if let Err(error) = UpstreamName::parse(&name) {
            node.problem(format!("the name of a profile {error}"));
        }
        let Some(table) = node.table() else { continue };
        profiles.push(one(name, table, upstreams, jwt));
    }
    profiles
}

fn one(name: String, mut table: ConfigTable<'_>, all: &[UpstreamName], jwt: Option<&JwtSettings>) -> Profile {
    let upstreams = match table.take("upstreams") {
        Some(node) => members(&node, all),
        None => all.to_vec(),
    };
    let transparent = table.boolean("transparent").unwrap_or(false);
    if transparent && upstreams.len() != 1 {
        table.problem("a transparent profile shows names as they are, so it needs exactly one upstream");
    }
    let (callers, groups) = (patterns(&mut table, "callers"), patterns(&mut table, "groups"));
    for problem in CallerPatterns::build(&table.path, &callers, &groups).err().into_iter().flatten() {
        table.source.problem_at(&problem.path, problem.message);
    }
    let audiences = issuers::texts(&mut table, "audiences").unwrap_or_default();
    let has_issuer =
        |audience: &String| jwt.iter().flat_map(|jwt| &jwt.issuers).any(|one| one.terms.audiences.contains(audience));
    if let Some(unknown) = audiences.iter().find(|audience| !has_issuer(audience)) {
        table.problem(format!(
            "no issuer has the audience \"{unknown}\"; add it to `audiences` of one in `[[server.auth.issuers]]`"
        ));
    }
    let profile = Profile {
        audiences,
        tools: filter_of(&mut table, "tools", &upstreams, Separator::Name),
        prompts: filter_of(&mut table, "prompts", &upstreams, Separator::Name),
        resources: filter_of(&mut table, "resources", &upstreams, Separator::Uri),
        name,
        upstreams,
        callers,
        groups,
        transparent,
        hints: table.take("hints").and_then(|node| node.choice()).unwrap_or_default(),
        instructions: instructions::read(&mut table),
    };
    table.finish();
    profile
}

fn members(node: &ConfigNode<'_>, all: &[UpstreamName]) -> Vec<UpstreamName> {
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

/// Reads a profile's filter, whose patterns are over canonical names.
fn filter_of(
    table: &mut ConfigTable<'_>,
    key: &'static str,
    upstreams: &[UpstreamName],
    separator: Separator,
) -> FilterSettings {
    let before = filter(table, key, false);
    for (list, patterns) in [("allow", &before.allow), ("deny", &before.deny)] {
        let mut at = |path: String, message: String| table.source.problem_at(&path, message);
        check_all(&format!("{}.{key}.{list}", table.path), patterns, separator, upstreams, &mut at);
    }
    before
}
