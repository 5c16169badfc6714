//! Merges several files into one configuration: tables are merged, rules and limits of the policy
//! are appended, and anything else in two files is a problem that names both.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Tables below the top that several files may add to. An entry of `upstreams` and `profiles`
/// belongs to one file: half an upstream in each of two files is hardly intended.
const SHARED: [&str; 4] = ["server.auth", "server.auth.tokens", "server.limits", "policy.consent"];
/// Arrays of tables to which the next file appends.
const CONTINUED: [&str; 3] = ["policy.rules", "policy.limits", "policy.consent.holds"];

/// A callback for a key path that is in two files, with both positions.
type OnDuplicateKey<'a> = &'a dyn Fn(&str, usize, usize);

/// Adds the tables of a later file, and reports each key that is in both.
pub(crate) fn merge<'t>(into: &mut DeTable<'t>, from: DeTable<'t>, path: &str, twice: OnDuplicateKey<'_>) {
    for (key, value) in from {
        let name: &str = key.get_ref();
        // Editors look for it in each file.
        if path.is_empty() && name == "$schema" && into.contains_key(name) {
            continue;
        }
        let path = join(path, name);
        let first = into.get_key_value(name).map(|(first, _)| first.span().start);
        let before = into.get_mut(name).map(Spanned::get_mut);
        let Some((first, before)) = first.zip(before) else {
            into.insert(key, value);
            continue;
        };
        let again = key.span().start;
        match (before, value.into_inner()) {
            (DeValue::Table(before), DeValue::Table(more)) if is_shared(&path) => merge(before, more, &path, twice),
            (DeValue::Array(before), DeValue::Array(more)) if CONTINUED.contains(&path.as_str()) => {
                append_tables(before, more, &path, twice);
            }
            _ => twice(&path, first, again),
        }
    }
}

/// Returns the key path of an entry; keys that are no bare keys are quoted.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

fn is_shared(path: &str) -> bool {
    !path.contains('.') || SHARED.contains(&path)
}

/// Appends the rules, limits or holds of a later file, and reports each id that an earlier file
/// has.
fn append_tables<'t>(before: &mut DeArray<'t>, more: DeArray<'t>, path: &str, twice: OnDuplicateKey<'_>) {
    let earlier = before.len();
    for item in more {
        let same = id(&item).and_then(|(id, at)| {
            let others = before.iter().take(earlier).filter_map(self::id);
            others.into_iter().find(|(other, _)| *other == id).map(|(_, first)| (first, at))
        });
        if let Some((first, again)) = same {
            twice(&format!("{path}[{}].id", before.len()), first, again);
        }
        before.push(item);
    }
}

/// Returns the id of a rule or limit, and its position.
fn id<'v>(item: &'v Spanned<DeValue<'_>>) -> Option<(&'v str, usize)> {
    let value = item.get_ref().as_table()?.get("id")?;
    Some((value.get_ref().as_str()?, value.span().start))
}

/// Adds an offset to all positions of a table.
pub(crate) fn shift_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    if by == 0 {
        return table;
    }
    table.into_iter().map(|(key, value)| (shift_span(key, by, |key| key), shift_value(value, by))).collect()
}

fn shift_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    shift_span(value, by, |value| match value {
        DeValue::Table(table) => DeValue::Table(shift_table(table, by)),
        DeValue::Array(items) => DeValue::Array(items.into_iter().map(|item| shift_value(item, by)).collect()),
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
            value
        }
    })
}

fn shift_span<T>(value: Spanned<T>, by: usize, inner: impl FnOnce(T) -> T) -> Spanned<T> {
    let span = value.span();
    Spanned::new(span.start + by..span.end + by, inner(value.into_inner()))
}
