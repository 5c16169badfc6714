//! Import of the server lists of known hosts: Claude Desktop, Claude Code, Cursor, VS Code, Zed.
//!
//! Their JSON (with comments and trailing commas) becomes a configuration that `load` accepts: an
//! entry that would be refused stands in the text as a comment with the reason. Values that look
//! secret are not copied; the text names the variables to export.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::output::{Failure, print};
use super::{CONFIG, USAGE};
use crate::config;
use crate::wire::foreign;

mod entry;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod host;
mod template;

use self::entry::Block;

/// Why nothing could be imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}:{line}: not JSON: {message}", path.display())]
    Json { path: PathBuf, line: usize, message: String },
    #[error("{}: neither `mcpServers` nor `servers` nor `context_servers` is in it", path.display())]
    NoServers { path: PathBuf },
}

pub(super) fn run(files: &[PathBuf]) -> Result<u8, Failure> {
    let mut texts = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(USAGE, format!("{}: {error}", path.display())))?;
        texts.push((path.clone(), text));
    }
    print(&convert(&texts).map_err(|error| Failure::new(CONFIG, error))?)
}

/// Turns the files of hosts, path and text each, into the text of one configuration.
///
/// # Errors
/// A file that is not JSON or has no list of servers.
pub(crate) fn convert(files: &[(PathBuf, String)]) -> Result<String, ImportError> {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
    convert_for(files, home.as_deref())
}

/// As [`convert`], for the user of a home directory.
fn convert_for(files: &[(PathBuf, String)], home: Option<&str>) -> Result<String, ImportError> {
    let mut names = Names::default();
    let mut blocks = String::new();
    for (path, text) in files {
        let file = host::read(path, text)?;
        let folder = project(path);
        for server in &file.servers {
            let block =
                Block::new(server, &mut names, &template::Place { folder: folder.as_deref(), home }, &file.inputs);
            blocks.push('\n');
            blocks.push_str(&comment(&format!("{:?} of {}{}", server.name, path.display(), server.scope)));
            blocks.push_str(&accepted(&block));
        }
    }
    let mut out = String::new();
    let from: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    out.push_str(&comment(&format!("Imported from {}.", from.join(", "))));
    if !names.exports.is_empty() {
        out.push_str(&comment(
            "Secrets were not copied. Export these variables where headend runs, or write { file = \"/path\" }:",
        ));
        for (name, about) in &names.exports {
            out.push_str(&comment(&format!("  {name}: {about}")));
        }
    }
    out.push('\n');
    out.push_str(&comment(
        "A host has no policy of its own, so everything is allowed, as before. Consider \"deny\" and rules.",
    ));
    out.push_str("[policy]\ndefault = \"allow\"\n");
    out.push_str(&blocks);
    Ok(out)
}

/// The block as it is, or as a comment with the reasons why it would be refused.
fn accepted(block: &Block) -> String {
    let text = format!("[policy]\ndefault = \"allow\"\n{}", block.text);
    // Every secret is there: which ones the user has exported is told by `check`.
    let checked = config::parse(&text, "", &|_| Some("x".to_owned()), &|_| Ok("x".to_owned()));
    let mut reasons = block.reasons.clone();
    if let Err(problems) = checked {
        reasons.extend(problems.0.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)));
    }
    let mut out: String = block.notes.iter().map(|note| comment(note)).collect();
    if reasons.is_empty() {
        return out + &block.text;
    }
    out.extend(reasons.iter().map(|reason| comment(&format!("Off: {reason}"))));
    out.extend(block.text.lines().map(comment));
    out
}

/// One comment line. What stands in a host's file can never end it.
fn comment(text: &str) -> String {
    format!("# {}\n", foreign::line(text).trim_end())
}

/// The directory that a project's file is about.
fn project(path: &Path) -> Option<PathBuf> {
    let dir = path.parent()?;
    let own = dir.file_name().is_some_and(|name| name == ".vscode" || name == ".cursor" || name == ".zed");
    let dir = if own { dir.parent()? } else { dir };
    dir.is_absolute().then(|| dir.to_owned())
}

/// Names given so far: of upstreams, and of the variables that hold secrets.
#[derive(Debug, Default)]
struct Names {
    upstreams: Vec<String>,
    /// Variable and the secret it stands for.
    secrets: HashMap<String, String>,
    /// Variable and what it is, in order.
    exports: Vec<(String, String)>,
}

impl Names {
    /// A name for an upstream: possible and not given before.
    fn upstream(&mut self, wanted: &str) -> String {
        let mut name = String::new();
        for c in wanted.chars().map(|c| c.to_ascii_lowercase()) {
            match c {
                'a'..='z' | '0'..='9' => name.push(c),
                _ if name.is_empty() || name.ends_with('-') => {}
                _ => name.push('-'),
            }
        }
        name.truncate(MAX_NAME);
        let stem = match name.trim_end_matches('-') {
            "" => "upstream",
            stem => stem,
        };
        let mut name = stem.to_owned();
        for number in 2.. {
            if !self.upstreams.contains(&name) {
                break;
            }
            name = format!("{stem}-{number}");
        }
        self.upstreams.push(name.clone());
        name
    }

    /// A variable for a secret of an upstream. Two secrets never share one.
    fn variable(&mut self, upstream: &str, wanted: &str, secret: &str, about: &str) -> String {
        let long = variable_name(&format!("{upstream}_{wanted}"));
        let numbered = (2..).map(|number| format!("{long}_{number}"));
        let mut candidates = [variable_name(wanted), long.clone()].into_iter().chain(numbered);
        let free = |name: &String| self.secrets.get(name).is_none_or(|other| other == secret);
        let name = candidates.find(free).unwrap_or(long);
        self.secrets.insert(name.clone(), secret.to_owned());
        self.export(&name, about);
        name
    }

    fn export(&mut self, name: &str, about: &str) {
        if !self.exports.iter().any(|(other, _)| other == name) {
            self.exports.push((name.to_owned(), about.to_owned()));
        }
    }
}

/// Leaves room for `-` and a number below the 31 characters of an upstream's name.
const MAX_NAME: usize = 27;

/// A name that shells can export.
fn variable_name(text: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = text.chars().map(fit).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests;
