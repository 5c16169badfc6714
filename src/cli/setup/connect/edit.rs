//! Edits a host's list of servers in place: JSON with comments, and TOML. Each edit is checked by
//! reading the new text: it must mean the same as the old one but for the edited servers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::cli::setup::import::{FileValue, read_value};

mod json;
#[cfg(test)]
mod tests;
mod text;
mod toml;

pub(super) use self::text::{EntryMembers, EntryText};

/// The text of a host's file while its list of servers is edited.
#[derive(Clone, Debug)]
pub(super) struct ListText {
    path: PathBuf,
    keys: Vec<&'static str>,
    text: String,
    has_bom: bool,
    /// The file as it was read.
    before: FileValue,
    /// Names of the servers, in order.
    names: Vec<String>,
    /// Names whose entries were removed or added.
    edited: Vec<String>,
}

/// The byte order mark.
const BOM: char = '\u{feff}';

impl ListText {
    /// Reads the text of a file; `keys` lead to its list. A missing or empty file has no servers.
    ///
    /// # Errors
    /// The file does not parse, or its list cannot be told.
    pub(super) fn new(path: &Path, text: &str, keys: &[&'static str]) -> Result<Self, String> {
        let plain = text.strip_prefix(BOM).unwrap_or(text);
        let mut list = Self {
            path: path.to_owned(),
            keys: keys.to_vec(),
            text: plain.to_owned(),
            has_bom: plain.len() < text.len(),
            before: FileValue::Object(Vec::new()),
            names: Vec::new(),
            edited: Vec::new(),
        };
        list.before = list.value()?;
        list.names = list.read_names()?;
        Ok(list)
    }

    fn is_toml(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "toml")
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn value(&self) -> Result<FileValue, String> {
        if self.is_empty() {
            return Ok(FileValue::Object(Vec::new()));
        }
        read_value(&self.path, &self.text).map_err(|error| error.to_string())
    }

    fn failed(&self, why: &str) -> String {
        format!("{}: {why}; edit it by hand", self.path.display())
    }

    fn read_names(&self) -> Result<Vec<String>, String> {
        let names = match (self.is_empty(), self.is_toml()) {
            (true, _) => Ok(Vec::new()),
            (_, true) => toml::names(&self.text, &self.keys),
            (_, false) => json::names(&self.text, &self.keys),
        };
        names.map_err(|why| self.failed(&why))
    }

    /// Returns the names of the servers, in order.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Removes an entry and returns it; `None` if there is none of that name.
    pub(super) fn remove(&mut self, name: &str) -> Result<Option<EntryText>, String> {
        let removed = match (self.names.iter().any(|other| other == name), self.is_toml()) {
            (false, _) => Ok(None),
            (_, true) => toml::remove(&self.text, &self.keys, name),
            (_, false) => json::remove(&self.text, &self.keys, name),
        };
        let Some((text, entry)) = removed.map_err(|why| self.failed(&why))? else { return Ok(None) };
        self.text = text;
        self.names.retain(|other| other != name);
        self.edited.push(name.to_owned());
        Ok(Some(entry))
    }

    /// Puts an entry behind the one named `after`, or first without one. In TOML it is put last.
    pub(super) fn insert(&mut self, name: &str, after: Option<&str>, entry: &EntryText) -> Result<(), String> {
        let text = if self.is_toml() {
            Ok(toml::insert(&self.text, entry))
        } else {
            self.with_list().and_then(|text| json::insert(&text, &self.keys, after, entry))
        };
        self.text = text.map_err(|why| self.failed(&why))?;
        self.names.push(name.to_owned());
        self.edited.push(name.to_owned());
        Ok(())
    }

    /// Formats an entry as this file is written, and puts it in the place of one of the same name,
    /// or last.
    pub(super) fn put(&mut self, name: &str, value: &EntryMembers) -> Result<(), String> {
        let json = serde_json::to_string(value).map_err(|error| error.to_string())?;
        let present = self.before.at(&self.keys).and_then(|list| list.get(name));
        let own = read_value(Path::new(""), &json).map_err(|error| error.to_string())?;
        // What else the user wrote into the entry stays.
        if present.is_some_and(|present| own.members().iter().all(|(key, value)| present.get(key) == Some(value))) {
            return Ok(());
        }
        let place = self.names.iter().position(|other| other == name).unwrap_or(self.names.len());
        let after = place.checked_sub(1).and_then(|at| self.names.get(at)).cloned();
        self.remove(name)?;
        let entry = if self.is_toml() {
            toml::table(&self.keys, name, value)
        } else {
            let text = self.with_list();
            let entry = text.and_then(|text| json::member(&text, &self.keys, name, value));
            entry.map_err(|why| self.failed(&why))?
        };
        self.insert(name, after.as_deref(), &entry)
    }

    /// Returns the text with a list of servers, which is made if it is missing.
    fn with_list(&self) -> Result<Cow<'_, str>, String> {
        if self.had_list() {
            return Ok(Cow::Borrowed(&self.text));
        }
        json::with_list(&self.text, &self.keys).map(Cow::Owned)
    }

    /// Returns true if the file had a list of servers, also an empty one.
    pub(super) fn had_list(&self) -> bool {
        self.before.at(&self.keys).is_some()
    }

    /// Removes the list itself if it is empty.
    pub(super) fn remove_empty_list(&mut self) -> Result<(), String> {
        if !self.is_toml()
            && self.names.is_empty()
            && let Some((last, outer)) = self.keys.clone().split_last()
            && let Some((text, _)) = json::remove(&self.text, outer, last).map_err(|why| self.failed(&why))?
        {
            self.text = text;
        }
        Ok(())
    }

    /// Returns the edited text, after a check that it has the servers that it should have, and that
    /// everything but the edited ones means what it meant before.
    pub(super) fn finish(mut self) -> Result<String, String> {
        let parts = |mut rest: FileValue| {
            let mut list = Vec::new();
            take_list(&mut rest, &self.keys, &mut list);
            list.retain(|(name, _)| !self.edited.contains(name));
            (rest, list)
        };
        let is_kept = self.value().is_ok_and(|after| parts(after) == parts(self.before.clone()));
        let mut names = self.read_names().unwrap_or_default();
        names.sort_unstable();
        self.names.sort_unstable();
        if !is_kept || names != self.names {
            return Err(self.failed("it is written in a way that cannot be edited safely"));
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

/// The substitute for a secret in a text that is shown.
const DOTS: &str = "•••••";

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
        let (escaped, literal) = (serde_json::Value::from(secret).to_string(), format!("'{secret}'"));
        out = out.replace(&escaped, &format!("\"{DOTS}\"")).replace(&literal, &format!("'{DOTS}'"));
    }
    let (value, mut left) = (read_value(path, &out).ok()?, Vec::new());
    collect(&value, &mut Vec::new(), hides, &mut left);
    left.iter().all(|text| *text == DOTS).then_some(out)
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
