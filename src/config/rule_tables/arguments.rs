//! Reads the keys `arguments` and `unless` of a rule.

use std::ops::RangeInclusive;

use strum::VariantNames as _;

use crate::policy::{ArgumentSpec, MatcherSpec};

use crate::source::file::{ConfigNode, ConfigTable};

const COUNTS: RangeInclusive<usize> = 0..=1_000_000_000;

/// Reads the conditions under one of these keys.
pub(crate) fn conditions(table: &mut ConfigTable<'_>, key: &'static str) -> Vec<ArgumentSpec> {
    let Some(node) = table.take(key) else { return Vec::new() };
    let wanted = "an array such as [{ pointer = \"/path\", path-under = \"/srv/work\" }]";
    let Some(items) = node.items(wanted) else { return Vec::new() };
    if items.is_empty() {
        node.problem("must not be empty; without this key the rule looks at no arguments");
    }
    items.iter().filter_map(|item| condition(item.table()?)).collect()
}

/// Reads one condition: a pointer and exactly one matcher.
fn condition(mut table: ConfigTable<'_>) -> Option<ArgumentSpec> {
    let pointer = table.take("pointer");
    if pointer.is_none() {
        table.problem("needs `pointer`: which argument is meant, such as \"/path\"");
    }
    let found: Vec<_> = MatcherSpec::VARIANTS.iter().filter_map(|key| Some((*key, table.take(key)?))).collect();
    let matcher = match found.as_slice() {
        [(key, node)] => matcher(key, node),
        [] => {
            table.problem(format!("needs a matcher, one of {}", MatcherSpec::VARIANTS.join(", ")));
            None
        }
        [_, (_, second), ..] => {
            second.problem("is a second matcher; write another entry with the same pointer, and both must hold");
            None
        }
    };
    table.finish();
    Some(ArgumentSpec { pointer: pointer?.string()?, matcher: matcher? })
}

/// Reads the matcher of that key; `None` if its value is invalid, with a problem.
fn matcher(key: &str, node: &ConfigNode<'_>) -> Option<MatcherSpec> {
    Some(match key {
        "eq" => MatcherSpec::Eq(node.scalar()?),
        "ne" => MatcherSpec::Ne(node.scalar()?),
        "in" => {
            let items = node.items("an array of strings, numbers, or true and false")?;
            MatcherSpec::In(items.iter().filter_map(ConfigNode::scalar).collect())
        }
        "prefix" => MatcherSpec::Prefix(node.string()?),
        "suffix" => MatcherSpec::Suffix(node.string()?),
        "glob" => MatcherSpec::Glob(node.string()?),
        "regex" => MatcherSpec::Regex(node.string()?),
        "path-under" => MatcherSpec::PathUnder(node.string()?),
        "url-host-in" => MatcherSpec::UrlHostIn(node.strings()?),
        "email-domain-in" => MatcherSpec::EmailDomainIn(node.strings()?),
        "cidr-in" => MatcherSpec::CidrIn(node.strings()?),
        "range" => {
            let mut table = node.table()?;
            let (min, max) = (table.take("min"), table.take("max"));
            table.finish();
            MatcherSpec::Range { min: number(min.as_ref())?, max: number(max.as_ref())? }
        }
        "max-len" => MatcherSpec::MaxLen(node.count(&COUNTS)?),
        "max-items" => MatcherSpec::MaxItems(node.count(&COUNTS)?),
        "type" => MatcherSpec::Type(node.choice()?),
        "absent" => flag(node, MatcherSpec::Absent, "present")?,
        "present" => flag(node, MatcherSpec::Present, "absent")?,
        _ => return None,
    })
}

/// Reads an optional number; the outer `None` means that it cannot be read.
fn number(node: Option<&ConfigNode<'_>>) -> Option<Option<f64>> {
    node.map_or(Some(None), |node| node.number().map(Some))
}

/// Reads a matcher that is written as `true`; `opposite` is the key to suggest for `false`.
fn flag(node: &ConfigNode<'_>, matcher: MatcherSpec, opposite: &str) -> Option<MatcherSpec> {
    let value = node.boolean()?;
    if !value {
        node.problem(format!("must be true; for the opposite write {opposite} = true"));
    }
    value.then_some(matcher)
}
