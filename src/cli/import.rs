//! Import of the server lists of known hosts: Claude Desktop, Claude Code, Cursor, VS Code, Zed.
//!
//! Their JSON (with comments and trailing commas) becomes a configuration that `load` accepts: an entry that `load`
//! would refuse becomes a comment with the reason. Values that look secret are not copied; the text names the variables
//! to export.

use std::path::{Path, PathBuf};

use super::exit::{CONFIG, USAGE};
use super::output::{Failure, print};
use crate::config;
use crate::wire::foreign;

mod entry;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod host;
mod names;
mod template;

use self::entry::Block;
use self::host::ImportError;
use self::names::Names;

pub(super) fn run(files: &[PathBuf]) -> Result<u8, Failure> {
    let mut texts = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(USAGE, format!("{}: {error}", path.display())))?;
        texts.push((path.clone(), text));
    }
    print(&convert(&texts).map_err(|error| Failure::new(CONFIG, error))?)
}

/// Converts the files of hosts, path and text each, to the text of one configuration.
///
/// # Errors
/// A file that is not JSON or has no list of servers.
pub(crate) fn convert(files: &[(PathBuf, String)]) -> Result<String, ImportError> {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
    convert_for(files, home.as_deref())
}

/// Like [`convert`], for the user of a home directory.
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
        "Hosts have no policy, so everything stays allowed. Consider \"ask\" or \"deny\", and rules.",
    ));
    out.push_str("[policy]\ndefault = \"allow\"\n");
    out.push_str(&blocks);
    Ok(out)
}

/// The block unchanged, or as a comment with the reasons why `load` would refuse it.
fn accepted(block: &Block) -> String {
    let text = format!("[policy]\ndefault = \"allow\"\n{}", block.text);
    // Assume every secret: `check` reports which ones the user has not exported.
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

/// One comment line. No text of a host's file can end it.
fn comment(text: &str) -> String {
    format!("# {}\n", foreign::line(text).trim_end())
}

/// The project directory of a host's file.
fn project(path: &Path) -> Option<PathBuf> {
    let dir = path.parent()?;
    let own = dir.file_name().is_some_and(|name| name == ".vscode" || name == ".cursor" || name == ".zed");
    let dir = if own { dir.parent()? } else { dir };
    dir.is_absolute().then(|| dir.to_owned())
}

#[cfg(test)]
mod tests;
