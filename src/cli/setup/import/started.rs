//! Lists the servers that hosts on this machine start or reach themselves, for `headend doctor`.

use std::path::{Path, PathBuf};

use super::parts::{GivenValue, LaunchParts};
use super::{HostText, ServerDraft, drafts, find, host, template};

/// A server that is on in a host.
#[derive(Clone, Debug)]
pub(in crate::cli) struct HostServerEntry {
    pub(in crate::cli) file: PathBuf,
    /// The host's name for the server.
    pub(in crate::cli) name: String,
    /// Command line; empty for a server behind a URL.
    pub(in crate::cli) words: Vec<String>,
    pub(in crate::cli) url: Option<String>,
    /// Value of its `Authorization` header, if it is written in the file.
    pub(in crate::cli) authorization: Option<String>,
    /// Whether the host fills a variable into that value.
    pub(in crate::cli) is_filled_in: bool,
}

/// Lists the servers of this user's hosts, and of the project in the working directory. Files that
/// cannot be read are skipped.
pub(in crate::cli) fn started() -> Vec<HostServerEntry> {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let of_user = home.as_deref().map(|home| find::of_user(Path::new(home), config.as_deref())).unwrap_or_default();
    let of_project = std::env::current_dir().map(|here| find::of_project(&here)).unwrap_or_default();
    let others: Vec<PathBuf> = of_project.into_iter().filter(|path| !of_user.contains(path)).collect();
    of_user.iter().chain(&others).filter_map(|path| of_file(path, home.as_deref())).flatten().collect()
}

/// Lists the servers of one file that are on; `None` if it cannot be read.
fn of_file(path: &Path, home: Option<&str>) -> Option<Vec<HostServerEntry>> {
    let given = HostText::read(path, home.map(Path::new)).ok()?;
    let file = host::read(&given.path, &given.text).ok()?;
    let drafts = drafts(&given, &file, 0, home).ok()?;
    let is_on = |draft: &ServerDraft| draft.stated.off.is_none();
    let started = |draft: ServerDraft| {
        let place = template::TemplateContext { folder: draft.folder.as_deref(), home, syntax: file.host.syntax() };
        let (authorization, is_filled_in) = match header(&draft.parts, "authorization") {
            Some(GivenValue::Text(text)) => (Some(text.clone()), !template::variables(text, &place).is_empty()),
            Some(GivenValue::Variable(..)) => (None, true),
            None => (None, false),
        };
        let LaunchParts { words, url, .. } = draft.parts;
        HostServerEntry { file: path.to_owned(), name: draft.name, words, url, authorization, is_filled_in }
    };
    Some(drafts.into_iter().filter(is_on).map(started).collect())
}

/// Finds a header by name.
fn header<'p>(parts: &'p LaunchParts, wanted: &str) -> Option<&'p GivenValue> {
    parts.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
}

/// Normalizes a command line like those of hosts: returns the words behind `env`, or the URL behind
/// a bridge.
pub(in crate::cli) fn in_one_form(words: Vec<String>) -> (Vec<String>, Option<String>) {
    let parts = LaunchParts::of_words(words);
    (parts.words, parts.url)
}
