//! Edits TOML: whole entries are taken out, and new tables are put at the end.

use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::text::{EntryMembers, EntryText, end_of_line};
use crate::cli::setup::switch::lines_as_in;
use crate::config::show::{array, key, quoted};

/// Parses a text; it must have one kind of line end, since the library writes only one.
fn parse(text: &str) -> Result<DocumentMut, String> {
    // The library's error text quotes the line, which could hold a secret.
    let document: DocumentMut = text.parse().map_err(|_| "is not TOML".to_owned())?;
    if printed(text, &document) == text { Ok(document) } else { Err("its line ends differ".to_owned()) }
}

/// Formats a document with the line ends of its text.
fn printed(text: &str, document: &DocumentMut) -> String {
    let printed = lines_as_in(text, document.to_string());
    let has_last = text.is_empty() || text.ends_with('\n');
    if has_last { printed } else { printed.trim_end_matches(['\r', '\n']).to_owned() }
}

/// Returns the table at the end of a path of keys.
fn list<'d>(document: &'d mut DocumentMut, keys: &[&str]) -> Option<&'d mut dyn TableLike> {
    keys.iter()
        .try_fold(document.as_item_mut(), |item, key| item.as_table_like_mut()?.get_mut(key))?
        .as_table_like_mut()
}

/// Lists the names in a list, in order; empty if it is missing.
pub(super) fn names(text: &str, keys: &[&str]) -> Result<Vec<String>, String> {
    let mut document = parse(text)?;
    let list = list(&mut document, keys);
    Ok(list.map(|list| list.iter().map(|(name, _)| name.to_owned()).collect()).unwrap_or_default())
}

/// Removes the tables of an entry; `None` if there is none of that name.
///
/// # Errors
/// The entry is not written as a table with a header.
pub(super) fn remove(text: &str, keys: &[&str], name: &str) -> Result<Option<(String, EntryText)>, String> {
    let mut document = parse(text)?;
    let Some(item) = list(&mut document, keys).and_then(|list| list.remove(name)) else { return Ok(None) };
    if item.as_table().is_none_or(Table::is_dotted) {
        return Err(format!("`{name}` is written in one line"));
    }
    let mut own = DocumentMut::new();
    let mut table = own.as_table_mut();
    for key in keys {
        let mut inner = Table::new();
        inner.set_implicit(true);
        table = table.entry(key).or_insert(Item::Table(inner)).as_table_mut().ok_or("is not a table")?;
    }
    table.insert(name, item);
    let entry = EntryText { text: own.to_string().trim_start_matches('\n').to_owned(), tail: String::new() };
    Ok(Some((printed(text, &document), entry)))
}

/// Returns the text with an entry at its end, behind a blank line.
pub(super) fn insert(text: &str, entry: &EntryText) -> String {
    let eol = end_of_line(text);
    let last = if text.is_empty() || text.ends_with('\n') { "" } else { eol };
    let gap = if text.is_empty() { "" } else { eol };
    format!("{text}{last}{gap}{}", lines_as_in(text, entry.text.clone()))
}

/// Formats an entry of strings and lists as a table.
pub(super) fn table(keys: &[&str], name: &str, members: &EntryMembers) -> EntryText {
    let path: Vec<String> = keys.iter().copied().chain([name]).map(key).collect();
    let mut text = format!("[{}]\n", path.join("."));
    for (name, value) in &members.0 {
        let words = value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned));
        let value = value.as_str().map_or_else(|| array(&words.collect::<Vec<_>>()), quoted);
        text.push_str(&format!("{} = {value}\n", key(name)));
    }
    EntryText { text, tail: String::new() }
}
