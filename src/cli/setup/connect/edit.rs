//! Edits a host's list of servers in place: JSON with comments, and TOML. Each edit is checked by
//! reading the new text: it must mean the same as the old one but for the edited servers.

use std::path::Path;

use crate::cli::setup::import::{FileValue, read_value};

mod json;
#[cfg(test)]
mod tests;
mod text;
mod toml;

pub(super) use self::text::{EntryMembers, EntryText};

/// The text of a host's file while its list of servers is edited.
#[derive(Clone, Debug)]
pub(super) struct ListText<'a> {
    path: &'a Path,
    keys: Vec<&'static str>,
    text: String,
    has_bom: bool,
    original: String,
    /// Names whose entries were removed or added.
    edited: Vec<String>,
}

/// The byte order mark.
const BOM: char = '\u{feff}';

impl<'a> ListText<'a> {
    /// Reads the text of a file; `keys` lead to its list. A missing or empty file has no servers.
    ///
    /// # Errors
    /// The file does not parse, or its list cannot be told.
    pub(super) fn new(path: &'a Path, text: &str, keys: &[&'static str]) -> Result<Self, String> {
        let plain = text.strip_prefix(BOM).unwrap_or(text);
        let list = Self {
            path,
            keys: keys.to_vec(),
            text: plain.to_owned(),
            has_bom: plain.len() < text.len(),
            original: plain.to_owned(),
            edited: Vec::new(),
        };
        if !plain.trim().is_empty() {
            list.value(plain)?;
            list.names()?;
        }
        Ok(list)
    }

    fn is_toml(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "toml")
    }

    fn value(&self, text: &str) -> Result<FileValue, String> {
        read_value(self.path, text).map_err(|error| error.to_string())
    }

    fn failed(&self, why: &str) -> String {
        format!("{}: {why}; edit it by hand", self.path.display())
    }

    fn unsafe_edit(&self) -> String {
        self.failed("it is written in a way that cannot be edited safely")
    }

    /// Lists the names of the servers, in order.
    pub(super) fn names(&self) -> Result<Vec<String>, String> {
        let names = match (self.text.trim().is_empty(), self.is_toml()) {
            (true, _) => Ok(Vec::new()),
            (_, true) => toml::names(&self.text, &self.keys),
            (_, false) => json::names(&self.text, &self.keys),
        };
        names.map_err(|why| self.failed(&why))
    }

    /// Removes an entry and returns it; `None` if there is none of that name.
    pub(super) fn remove(&mut self, name: &str) -> Result<Option<EntryText>, String> {
        let mut names = self.names()?;
        names.retain(|other| other != name);
        let removed = match (self.text.trim().is_empty(), self.is_toml()) {
            (true, _) => Ok(None),
            (_, true) => toml::remove(&self.text, &self.keys, name),
            (_, false) => json::remove(&self.text, &self.keys, name),
        };
        let Some((text, entry)) = removed.map_err(|why| self.failed(&why))? else { return Ok(None) };
        self.text = text;
        self.edited.push(name.to_owned());
        if self.names().ok() == Some(names) { Ok(Some(entry)) } else { Err(self.unsafe_edit()) }
    }

    /// Puts an entry behind the one named `after`, or first without one. In TOML it is put last.
    pub(super) fn insert(&mut self, name: &str, after: Option<&str>, entry: &EntryText) -> Result<(), String> {
        let text = if self.is_toml() {
            Ok(toml::insert(&self.text, entry))
        } else {
            json::with_list(&self.text, &self.keys).and_then(|text| json::insert(&text, &self.keys, after, entry))
        };
        self.text = text.map_err(|why| self.failed(&why))?;
        self.edited.push(name.to_owned());
        let is_there = self.names().is_ok_and(|names| names.iter().any(|other| other == name));
        if is_there { Ok(()) } else { Err(self.unsafe_edit()) }
    }

    /// Formats an entry as this file is written, and puts it in the place of one of the same name,
    /// or last.
    pub(super) fn put(&mut self, name: &str, value: &EntryMembers) -> Result<(), String> {
        let json = serde_json::to_string(value).map_err(|error| error.to_string())?;
        let present = if self.text.trim().is_empty() { FileValue::Null } else { self.value(&self.text)? };
        let present = present.at(&self.keys).and_then(|list| list.get(name));
        let own = read_value(Path::new(""), &json).map_err(|error| error.to_string())?;
        // What else the user wrote into the entry stays.
        if present.is_some_and(|present| own.members().iter().all(|(key, value)| present.get(key) == Some(value))) {
            return Ok(());
        }
        let names = self.names()?;
        let place = names.iter().position(|other| other == name).unwrap_or(names.len());
        let after = place.checked_sub(1).and_then(|at| names.get(at));
        self.remove(name)?;
        let entry = if self.is_toml() {
            toml::table(&self.keys, name, value)
        } else {
            let text = json::with_list(&self.text, &self.keys).map_err(|why| self.failed(&why))?;
            json::member(&text, &self.keys, name, value).map_err(|why| self.failed(&why))?
        };
        self.insert(name, after.map(String::as_str), &entry)
    }

    /// Returns true if the file has a list of servers, also an empty one.
    pub(super) fn has_list(&self) -> bool {
        self.value(&self.text).is_ok_and(|value| value.at(&self.keys).is_some())
    }

    /// Removes the list itself if it is empty.
    pub(super) fn remove_empty_list(&mut self) -> Result<(), String> {
        if !self.is_toml()
            && self.names()?.is_empty()
            && let Some((last, outer)) = self.keys.clone().split_last()
            && let Some((text, _)) = json::remove(&self.text, outer, last).map_err(|why| self.failed(&why))?
        {
            self.text = text;
        }
        Ok(())
    }

    /// Returns the edited text, after a check that everything but the edited servers means what it
    /// meant before.
    pub(super) fn finish(self) -> Result<String, String> {
        let parts = |text: &str| -> Result<_, String> {
            let value = if text.trim().is_empty() { FileValue::Object(Vec::new()) } else { self.value(text)? };
            let (mut rest, mut list) = (value, Vec::new());
            take_list(&mut rest, &self.keys, &mut list);
            list.retain(|(name, _)| !self.edited.contains(name));
            Ok((rest, list))
        };
        if parts(&self.text).ok() != Some(parts(&self.original)?) {
            return Err(self.unsafe_edit());
        }
        let bom = if self.has_bom { BOM.to_string() } else { String::new() };
        Ok(bom + &self.text)
    }
}

/// Takes the members of the list at the end of a path of keys out of a value, and drops the objects
/// that are empty then.
fn take_list(value: &mut FileValue, keys: &[&str], list: &mut Vec<(String, FileValue)>) {
    let FileValue::Object(members) = value else { return };
    let Some((key, inner)) = keys.split_first() else {
        list.append(members);
        return;
    };
    for (_, value) in members.iter_mut().filter(|(name, _)| name == key) {
        take_list(value, inner, list);
    }
    members.retain(|(name, value)| name != key || *value != FileValue::Object(Vec::new()));
}

/// Replaces the strings that `hides` says by dots, to show a text; `None` if one of them is written
/// in a way that is not found. `hides` gets the keys around a string, and its value.
pub(super) fn redacted(path: &Path, text: &str, hides: &dyn Fn(&[&str], &str) -> bool) -> Option<String> {
    if text.trim().is_empty() {
        return Some(String::new());
    }
    let value = read_value(path, text).ok()?;
    let mut secrets = Vec::new();
    collect(&value, &mut Vec::new(), hides, &mut secrets);
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut out = text.to_owned();
    for secret in secrets {
        let escaped = serde_json::Value::from(secret).to_string();
        let literal = format!("'{secret}'");
        if !text.contains(&escaped) && !text.contains(&literal) {
            return None;
        }
        out = out.replace(&escaped, "\"•••••\"").replace(&literal, "'•••••'");
    }
    Some(out)
}

/// Collects the strings of a value that are hidden.
fn collect<'v>(
    value: &'v FileValue,
    path: &mut Vec<&'v str>,
    hides: &dyn Fn(&[&str], &str) -> bool,
    found: &mut Vec<&'v str>,
) {
    for (name, inner) in value.members() {
        path.push(name);
        collect(inner, path, hides, found);
        path.pop();
    }
    value.items().iter().for_each(|item| collect(item, path, hides, found));
    found.extend(value.as_str().filter(|text| !text.is_empty() && hides(path, text)));
}
