//! The command `headend remove`: takes the table of an upstream out of its file.

use std::path::Path;

use clap::Args;
use toml_edit::{DocumentMut, Key};

use crate::cli::exit::{CONFIG, NO};
use crate::cli::reach::source;
use crate::cli::setup::add::{confirm, secret_files};
use crate::cli::setup::edit::{FileEdit, find_daemon};
use crate::cli::setup::switch::lines_as_in;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::cli::words::screen::Screen;
use crate::config::source::guard;
use crate::operator::request::ReloadParams;
use crate::wire::foreign;

#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    /// The upstream, as its table in the configuration is called.
    name: String,
    /// Remove it without a question.
    #[arg(long)]
    yes: bool,
    /// Print what would be removed; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command. The files of secrets that `headend add` made for the upstream are removed with
/// it.
pub(in crate::cli) fn run(common: &CommonOptions, args: &RemoveArgs) -> Result<u8, CommandFailure> {
    let loaded = source::load(common, &[])?;
    let none = || CommandFailure::new(NO, "there is no configuration file; `headend init` writes one");
    let main = loaded.config.path.clone().ok_or_else(none)?;
    let daemon = find_daemon(common, &main)?;
    let mut names = Vec::new();
    for path in std::iter::once(&main).chain(&loaded.config.also) {
        let failed =
            |error: &dyn std::fmt::Display| CommandFailure::new(CONFIG, format!("{}: {error}", path.display()));
        let text = guard::read(path).map_err(|error| failed(&error))?;
        let whole: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(&error))?;
        let Some(upstreams) = whole.get("upstreams").and_then(toml::Value::as_table) else { continue };
        names.extend(upstreams.keys().cloned());
        let Some(table) = upstreams.get(&args.name) else { continue };
        let after = without(&text, &args.name).map_err(|error| failed(&error))?;
        print(&preview(path, &args.name, &text, &after, table))?;
        if args.dry_run {
            return print("nothing was changed\n");
        }
        confirm(args.yes, &format!("\nRemove {}?", args.name))?;
        let edit = FileEdit { main: &main, path, before: Some(&text), after: &after };
        let plan = edit.put_in_force(daemon, ReloadParams::default(), |_| {})?;
        secret_files::remove(&secret_files::files_of(&args.name, table));
        let plan = if plan.is_empty() { plan } else { format!("; {plan}") };
        let line = format!("removed {} from {}{plan}", args.name, path.display());
        return print(&Screen::of_stdout().paragraph(&line));
    }
    let meant = suggest_names(&args.name, names);
    let text = format!("no configuration file has an upstream `{}`{meant}", foreign::line(&args.name));
    Err(CommandFailure::new(NO, text))
}

/// Formats the lines that go, and what stays in the state directory.
fn preview(path: &Path, name: &str, before: &str, after: &str, table: &toml::Value) -> String {
    let (screen, stays) = (Screen::of_stdout(), "its pins, grants and records stay in the state directory");
    let mut out = screen.paragraph(&format!("from {}:", path.display()));
    for line in removed_lines(before, after) {
        out.push_str(&screen.folded(&format!("  - {}", foreign::line(line)), 6));
    }
    let login = table.get("url").map(|_| format!("; so does its login, which `headend logout {name}` ends first"));
    out + &screen.paragraph(&format!("{stays}{}", login.unwrap_or_default()))
}

/// Returns the lines of a text that are missing in another, which has the rest in the same order.
fn removed_lines<'t>(before: &'t str, after: &str) -> Vec<&'t str> {
    let mut left = after.lines().peekable();
    before.lines().filter(|line| left.next_if(|next| next == line).is_none()).collect()
}

/// Takes the table of an upstream, with the comment directly above it, out of a text. All other
/// bytes stay, if the table has lines of its own; else the document is written anew.
///
/// # Errors
/// The text does not parse.
fn without(text: &str, name: &str) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    if let Some(upstreams) = document.get_mut("upstreams").and_then(|item| item.as_table_like_mut()) {
        upstreams.remove(name);
    }
    let written = lines_as_in(text, document.to_string());
    let cut = without_lines(text, name);
    // Lines of a text in quotes may look like a header.
    let same = |text: &str| text.parse::<toml::Table>().ok();
    let is_right = same(&cut) == same(&written) && same(&cut).is_some();
    Ok(if is_right { cut } else { written })
}

/// Leaves out the lines of a table, of those below it, of the comments directly above and below
/// each, and the empty lines before.
fn without_lines(text: &str, name: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_comment = |line: &&&str| line.trim_start().starts_with('#');
    let is_empty = |line: &&str| line.trim().is_empty();
    let headers = lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with('['));
    // A table begins with the comment directly above its header.
    let begin = |at: usize| at - lines.iter().take(at).rev().take_while(is_comment).count();
    let tables: Vec<(usize, &str)> = headers.map(|(at, line)| (begin(at), *line)).collect();
    let ends = tables.iter().skip(1).map(|(start, _)| *start).chain([lines.len()]);
    let first = tables.first().map_or(lines.len(), |(start, _)| *start);
    let mut kept: Vec<&str> = lines.iter().take(first).copied().collect();
    for ((start, header), end) in tables.iter().zip(ends) {
        let table = lines.get(*start..end).unwrap_or_default();
        if !is_below(header.trim(), name) {
            kept.extend(table);
            continue;
        }
        let last = table.iter().rposition(|line| !is_comment(&line) && !is_empty(line)).map_or(0, |at| at + 1);
        let last = last + table.iter().skip(last).take_while(is_comment).count();
        let mut below = table.get(last..).unwrap_or_default();
        if below.first().map_or(end == lines.len(), is_empty) {
            while kept.pop_if(|line| is_empty(&*line)).is_some() {}
        }
        while let Some((_, more)) = below.split_first().filter(|(line, _)| kept.is_empty() && is_empty(line)) {
            below = more;
        }
        kept.extend(below);
    }
    kept.concat()
}

/// Returns true for the header of the upstream's table or of one below it.
fn is_below(header: &str, name: &str) -> bool {
    let inside = header.trim_start_matches('[').split(']').next().unwrap_or_default();
    let keys = Key::parse(inside).unwrap_or_default();
    let mut keys = keys.iter().map(Key::get);
    keys.next() == Some("upstreams") && keys.next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_with_its_comment_and_nothing_else_changes() {
        let head = "# The servers.\n\n# of a\n[upstreams.a]\ncommand = [\"/a\"] # its program\n\n";
        let b =
            "# of b\n[upstreams.b]\ncommand = [\"/b\"]\n#env = {}\n[upstreams.b.env]\nX = \"\"\"\n[policy]\n\"\"\"\n\n";
        let rest = "# ---- rules ----\n\n[policy]\ndefault = \"ask\"\n";
        let text = format!("{head}{b}{rest}");
        let plain = text.replace("\n[policy]\n\"\"\"", "1\"\"\"");
        assert_eq!(without(&plain, "b").unwrap(), format!("{head}{rest}"));
        assert_eq!(without(&plain, "a").unwrap(), plain.replace(&head["# The servers.\n\n".len()..], ""));
        let crlf = plain.replace('\n', "\r\n");
        assert_eq!(without(&crlf, "b").unwrap(), format!("{head}{rest}").replace('\n', "\r\n"));
        // A text that looks like a header, and tables without lines of their own.
        for (text, name) in [
            (text.as_str(), "b"),
            ("upstreams = { a = { command = [\"/a\"] }, b = { command = [\"/b\"] } }\n", "a"),
            ("[upstreams]\na.command = [\"/a\"]\n# of b\nb.command = [\"/b\"]\n", "a"),
        ] {
            let after: toml::Table = without(text, name).unwrap().parse().unwrap();
            let upstreams = after["upstreams"].as_table().unwrap();
            assert!(!upstreams.contains_key(name) && upstreams.len() == 1, "{after:?}");
        }
        // The last table, and the only one.
        let first = "[policy]\ndefault = \"ask\"\n";
        let added = format!("{first}\n# Added from here.\n[upstreams.x]\ncommand = [\"/x\"]\n");
        assert_eq!(without(&added, "x").unwrap(), first);
        assert_eq!(without("[upstreams.x]\ncommand = [\"/x\"]\n", "x").unwrap(), "");
    }
}
