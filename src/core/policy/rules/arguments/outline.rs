//! The outline of arguments: which members they have, of which types, and which texts name a place,
//! that is a path on a disk or a URL on a network.
//!
//! A path in an outline is a JSON pointer in which `*` stands for every element of an array.

use std::collections::{BTreeSet, HashSet};

use super::json::LosslessJson;
use super::pointer::{ArgumentPointer, Quantifier};
use crate::policy::rules::truth::Truth;

/// Most members of an outline. Arguments with more members have no outline.
const MAX_MEMBERS: usize = 64;
/// Most bytes of all members of an outline.
const MAX_BYTES: usize = 4096;
/// Longest text that names a place, in bytes.
const MAX_PLACE: usize = 4096;
/// Argument names whose text is taken for a place, even if it does not look like one.
const PLACES: &[&str] = &[
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filenames",
    "filepath",
    "filepaths",
    "dir",
    "dirs",
    "directory",
    "directories",
    "folder",
    "folders",
    "source",
    "src",
    "destination",
    "dest",
    "dst",
    "target",
    "cwd",
    "root",
    "roots",
    "repo",
    "repository",
    "workspace",
    "url",
    "urls",
    "uri",
    "uris",
    "href",
    "link",
    "endpoint",
    "host",
    "hostname",
    "domain",
    "server",
    "proxy",
    "remote",
];
/// Names of arguments and tools that take commands, queries or code.
const COMMANDS: &[&str] = &[
    "command",
    "commands",
    "cmd",
    "cmdline",
    "shell",
    "bash",
    "sh",
    "script",
    "scripts",
    "code",
    "query",
    "queries",
    "sql",
    "exec",
    "execute",
    "eval",
    "evaluate",
    "expression",
    "expr",
    "statement",
    "statements",
    "program",
    "argv",
    "args",
    "javascript",
    "python",
    "graphql",
    "cypher",
    "mutation",
    "xpath",
    "jq",
    "run",
];

/// The members of one call's arguments, and the places that they name.
#[derive(Debug)]
pub(in crate::policy) struct ArgumentOutline<'a> {
    root: LosslessJson<'a>,
    /// `<type> <pointer>` for each member and element. The type of a boolean is its value.
    pub(in crate::policy) members: BTreeSet<String>,
    /// Pointers to texts that name a place, judged by the argument's name or by the text.
    pub(in crate::policy) places: BTreeSet<String>,
    /// The texts at these pointers, each with its pointer, once.
    pub(in crate::policy) values: BTreeSet<(String, String)>,
    /// The name of an argument that takes a command, a query or code.
    pub(in crate::policy) command: Option<String>,
    /// Length of all `members`, in bytes.
    bytes: usize,
}

impl<'a> ArgumentOutline<'a> {
    /// Reads arguments. Returns `None` if two readers may read them differently, or if they have
    /// too many members or places.
    pub(in crate::policy) fn of(json: &'a str) -> Option<Self> {
        let root = LosslessJson::read(json.as_bytes())?;
        let (members, places, values) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut outline = Self { root: LosslessJson::Null, members, places, values, command: None, bytes: 0 };
        matches!(root, LosslessJson::Object(_)).then_some(())?;
        outline.add("", "", &root)?;
        Some(Self { root, ..outline })
    }

    /// Whether each pointer leads to at least one value, and only to texts that pass the test.
    pub(in crate::policy) fn all_texts(&self, pointers: &[String], test: &dyn Fn(&str) -> bool) -> bool {
        let holds =
            |value: Option<&LosslessJson<'_>>| Truth::from(value.and_then(LosslessJson::as_text).is_some_and(test));
        pointers.iter().all(|pointer| {
            let Ok(pointer) = ArgumentPointer::parse(pointer) else { return false };
            [Quantifier::All, Quantifier::Any].iter().all(|of| pointer.evaluate(&self.root, *of, &holds) == Truth::Yes)
        })
    }

    /// Adds a value and everything in it; `None` if the arguments cannot have an outline.
    fn add(&mut self, pointer: &str, name: &str, value: &LosslessJson<'_>) -> Option<()> {
        let kind = match value {
            LosslessJson::Null => "null",
            LosslessJson::Boolean(true) => "true",
            LosslessJson::Boolean(false) => "false",
            LosslessJson::Number(_) => "number",
            LosslessJson::Text(_) => "text",
            LosslessJson::List(_) => "list",
            LosslessJson::Object(_) => "object",
        };
        let member = format!("{kind} {pointer}");
        let length = member.len();
        if self.members.insert(member) {
            self.bytes += length;
        }
        if self.members.len() > MAX_MEMBERS || self.bytes > MAX_BYTES {
            return None;
        }
        match value {
            LosslessJson::Text(text) if is_named(name, PLACES) || looks_like_place(text) => {
                self.places.insert(pointer.to_owned());
                self.values.insert((pointer.to_owned(), text.clone().into_owned()));
                (self.values.len() <= MAX_MEMBERS && text.len() <= MAX_PLACE).then_some(())
            }
            LosslessJson::List(items) => {
                items.iter().try_for_each(|item| self.add(&format!("{pointer}/*"), name, item))
            }
            LosslessJson::Object(members) => {
                let mut seen = HashSet::new();
                members.iter().try_for_each(|(key, value)| {
                    // Some readers take keys that differ in case alone for one key.
                    if **key == *"*" || !seen.insert(key.to_lowercase()) {
                        return None;
                    }
                    if is_named(key, COMMANDS) {
                        self.command = Some(key.clone().into_owned());
                    }
                    self.add(&format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), key, value)
                })
            }
            LosslessJson::Null | LosslessJson::Boolean(_) | LosslessJson::Number(_) | LosslessJson::Text(_) => Some(()),
        }
    }
}

/// Whether the name of an argument or a tool says that it takes a command, a query or code.
pub(in crate::policy) fn is_command(name: &str) -> bool {
    is_named(name, COMMANDS)
}

/// Whether a word of the name is one of `words`, or ends in one of at least four letters:
/// `fileName`, `FILE-name2` and `logfile` have `file`.
pub(in crate::policy) fn is_named(name: &str, words: &[&str]) -> bool {
    const MIN_ENDING: usize = 4;
    let letters: Vec<char> = name.chars().collect();
    let mut spaced = String::new();
    for (at, c) in letters.iter().enumerate() {
        let next_is_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let begins = before.is_some_and(|before| before.is_lowercase() || (before.is_uppercase() && next_is_small));
        if !c.is_alphabetic() || (c.is_uppercase() && begins) {
            spaced.push(' ');
        }
        if c.is_alphabetic() {
            spaced.extend(c.to_lowercase());
        }
    }
    let is_one =
        |word: &str| words.iter().any(|known| word == *known || (known.len() >= MIN_ENDING && word.ends_with(known)));
    spaced.split(' ').any(is_one)
}

/// Whether a text looks like a path or a URL: it begins like one, or has a `..` segment. A text of
/// several lines counts only if it begins with a URL.
fn looks_like_place(text: &str) -> bool {
    let is_around = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '\u{feff}');
    let text = text.trim_matches(is_around);
    let is_url = text.split_whitespace().next().is_some_and(|word| word.contains("://"));
    if text.contains(['\n', '\r']) {
        return is_url;
    }
    let parts = || text.split(['/', '\\']);
    let is_drive = text.chars().nth(1) == Some(':') && text.starts_with(|c: char| c.is_ascii_alphabetic());
    text.starts_with(['/', '\\', '~'])
        || parts().any(|part| part == "..")
        || parts().next() == Some(".")
        || is_drive
        || is_url
        || ["file:", "data:"].iter().any(|scheme| text.to_ascii_lowercase().starts_with(scheme))
}
