//! Edits TOML by the spans of its parser: whole tables are taken out, and new ones are put at the
//! end.

use toml_edit::{Document, Item, Table, TableLike, Value};

use super::{EntryMembers, EntryText, end_of_line};
use crate::config::show::{array, key, quoted};

fn parse(text: &str) -> Result<Document<&str>, String> {
    // The library's error text quotes the line, which could hold a secret.
    Document::parse(text).map_err(|_| "is not TOML".to_owned())
}

/// Returns the item at the end of a path of keys.
fn at<'d>(document: &'d Document<&str>, keys: &[&str]) -> Option<&'d Item> {
    keys.iter().try_fold(document.as_item(), |item, key| item.as_table_like()?.get(key))
}

/// Lists the names in a list, in order; empty if it is missing.
pub(super) fn names(text: &str, keys: &[&str]) -> Result<Vec<String>, String> {
    let document = parse(text)?;
    let list = at(&document, keys).and_then(Item::as_table_like);
    Ok(list.map(|list| list.iter().map(|(name, _)| name.to_owned()).collect()).unwrap_or_default())
}

/// Removes the tables of an entry; `None` if there is none of that name.
///
/// # Errors
/// The entry is not written as tables with headers.
pub(super) fn remove(text: &str, keys: &[&str], name: &str) -> Result<Option<(String, EntryText)>, String> {
    let document = parse(text)?;
    let Some(item) = at(&document, keys).and_then(|list| list.as_table_like()?.get(name)) else { return Ok(None) };
    let mut spans = Vec::new();
    if item.as_table().is_none_or(Table::is_dotted) {
        return Err(format!("`{name}` is written in one line"));
    }
    tables_of(item, &mut spans);
    spans.sort_unstable();
    let (mut rest, mut own, mut done) = (String::new(), String::new(), 0);
    for (start, end) in spans {
        let before = text.get(done..start).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        let (kept, lead) = before.split_at(line);
        let end = text.get(end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| end + at + 1);
        // The blank line above a table goes with it.
        let blank = ["\r\n", "\n"].into_iter().find(|eol| kept.ends_with(&eol.repeat(2)) || kept == *eol);
        rest.push_str(blank.and_then(|eol| kept.strip_suffix(eol)).unwrap_or(kept));
        own.push_str(lead);
        own.push_str(text.get(start..end).unwrap_or_default());
        done = end;
    }
    rest.push_str(text.get(done..).unwrap_or_default());
    if !own.ends_with('\n') {
        own.push_str(end_of_line(text));
    }
    Ok(Some((rest, EntryText { text: own, tail: String::new() })))
}

/// Collects the spans of a table with a header, and of those below it.
fn tables_of(item: &Item, spans: &mut Vec<(usize, usize)>) {
    match item {
        Item::Table(table) => {
            if let Some(span) = table.span().filter(|_| !table.is_dotted() && !table.is_implicit()) {
                spans.push((span.start, values_end(table, span.end)));
            }
            table.iter().for_each(|(_, item)| tables_of(item, spans));
        }
        Item::ArrayOfTables(tables) => {
            for table in tables {
                spans.extend(table.span().map(|span| (span.start, values_end(table, span.end))));
                table.iter().for_each(|(_, item)| tables_of(item, spans));
            }
        }
        Item::None | Item::Value(_) => {}
    }
}

/// Returns the end of the last value below a table's own header; `end` is the header's.
fn values_end(table: &Table, end: usize) -> usize {
    table.iter().fold(end, |end, (_, item)| match item {
        Item::Value(value) => value.span().map_or(end, |span| span.end.max(end)),
        Item::Table(inner) if inner.is_dotted() => values_end(inner, end),
        Item::Table(_) | Item::ArrayOfTables(_) | Item::None => end,
    })
}

/// Returns the text with an entry at its end, behind a blank line.
pub(super) fn insert(text: &str, entry: &EntryText) -> String {
    let eol = end_of_line(text);
    let own = entry.text.replace("\r\n", "\n").replace('\n', eol);
    let last = if text.is_empty() || text.ends_with('\n') { "" } else { eol };
    let gap = if text.is_empty() { "" } else { eol };
    format!("{text}{last}{gap}{own}")
}

/// Formats an entry of strings and lists as a table.
pub(super) fn tables(text: &str, keys: &[&str], name: &str, value: &EntryMembers) -> EntryText {
    let path: Vec<String> = keys.iter().copied().chain([name]).map(key).collect();
    let mut out = format!("[{}]\n", path.join("."));
    for (name, value) in &value.0 {
        let words = value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned));
        let value = value.as_str().map_or_else(|| array(&words.collect::<Vec<_>>()), quoted);
        out.push_str(&format!("{} = {value}\n", key(name)));
    }
    EntryText { text: out.replace('\n', end_of_line(text)), tail: String::new() }
}

/// Replaces the strings that `hides` says by dots. It gets the names of the keys around a string,
/// and its value.
pub(super) fn redacted(text: &str, hides: &dyn Fn(&[&str], &str) -> bool) -> String {
    let Ok(document) = parse(text) else { return String::new() };
    let mut spans = Vec::new();
    collect_table(document.as_table(), &mut Vec::new(), hides, &mut spans);
    super::dotted(text, spans)
}

fn collect_table<'d>(
    table: &'d dyn TableLike,
    path: &mut Vec<&'d str>,
    hides: &dyn Fn(&[&str], &str) -> bool,
    spans: &mut Vec<(usize, usize)>,
) {
    for (name, item) in table.iter() {
        path.push(name);
        match item {
            Item::Table(table) => collect_table(table, path, hides, spans),
            Item::ArrayOfTables(tables) => tables.iter().for_each(|table| collect_table(table, path, hides, spans)),
            Item::Value(value) => collect_value(value, path, hides, spans),
            Item::None => {}
        }
        path.pop();
    }
}

fn collect_value<'d>(
    value: &'d Value,
    path: &mut Vec<&'d str>,
    hides: &dyn Fn(&[&str], &str) -> bool,
    spans: &mut Vec<(usize, usize)>,
) {
    match value {
        Value::InlineTable(table) => collect_table(table, path, hides, spans),
        Value::Array(items) => items.iter().for_each(|item| collect_value(item, path, hides, spans)),
        Value::String(text) if hides(path, text.value()) => {
            spans.extend(value.span().map(|span| (span.start + 1, span.end - 1)));
        }
        _ => {}
    }
}
