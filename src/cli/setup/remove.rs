//! The command `headend remove`: takes the table of an upstream out of its file.

use clap::Args;
use toml_edit::{DocumentMut, Key};

use crate::cli::exit::{CONFIG, NO};
use crate::cli::reach::source;
use crate::cli::setup::add::confirm;
use crate::cli::setup::edit::{FileEdit, find_daemon};
use crate::cli::setup::switch::lines_as_in;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::cli::words::screen::Screen;
use crate::config::source::guard;
use crate::wire::foreign;

#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    /// The upstream, as its table in the configuration is called.
    name: String,
    /// Remove it without a question.
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub(in crate::cli) fn run(common: &CommonOptions, args: &RemoveArgs) -> Result<u8, CommandFailure> {
    let loaded = source::load(common, &[])?;
    let none = || CommandFailure::new(NO, "there is no configuration file; `headend init` writes one");
    let main = loaded.config.path.clone().ok_or_else(none)?;
    let daemon = find_daemon(common, &main)?;
    let (mut names, shown) = (Vec::new(), foreign::line(&args.name));
    for path in std::iter::once(&main).chain(&loaded.config.also) {
        let failed =
            |error: &dyn std::fmt::Display| CommandFailure::new(CONFIG, format!("{}: {error}", path.display()));
        let text = guard::read(path).map_err(|error| failed(&error))?;
        let whole: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(&error))?;
        let Some(upstreams) = whole.get("upstreams").and_then(toml::Value::as_table) else { continue };
        names.extend(upstreams.keys().cloned());
        let Some(table) = upstreams.get(&args.name) else { continue };
        let after = without(&text, &args.name).map_err(|error| failed(&error))?;
        let gone = toml::to_string(table).map_err(|error| failed(&error))?;
        print(&format!("{}: [upstreams.{shown}]\n{}", path.display(), foreign::block(&gone)))?;
        confirm(args.yes, &format!("Remove {shown}?"))?;
        let edit = FileEdit { main: &main, path, before: Some(&text), after: &after };
        let plan = edit.put_in_force(daemon, None, |_| {})?;
        let stays = "its pins, grants and login stay in the state directory";
        let removed = Screen::of_stdout().paragraph(&format!("removed {shown} from {}{plan}", path.display()));
        return print(&format!("{removed}{stays}\n"));
    }
    let meant = suggest_names(&args.name, names);
    Err(CommandFailure::new(NO, format!("no configuration file has an upstream `{shown}`{meant}")))
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
    let parsed = |text: &str| text.parse::<toml::Table>().ok();
    Ok(if parsed(&cut) == parsed(&written) { cut } else { written })
}

/// Leaves out the lines of a table and of those below it, with the comments directly above them.
fn without_lines(text: &str, name: &str) -> String {
    let (mut out, mut comment) = (String::new(), String::new());
    let (mut is_inside, mut is_apart) = (false, false);
    for line in text.split_inclusive('\n') {
        let word = line.trim();
        if word.starts_with('#') {
            comment.push_str(line);
            continue;
        }
        // A comment between empty lines belongs to no table.
        let is_free = is_inside && is_apart && word.is_empty();
        if word.starts_with('[') {
            is_inside = is_below(word, name);
        }
        is_apart = word.is_empty();
        if !is_inside || (is_free && !comment.is_empty()) {
            out.extend([comment.as_str(), line]);
        }
        comment.clear();
    }
    if is_inside {
        let kept = out.trim_end().len();
        let kept = kept + out.get(kept..).and_then(|rest| rest.find('\n')).map_or(0, |end| end + 1);
        out.truncate(kept);
    } else {
        out.push_str(&comment);
    }
    out
}

/// Returns true for the header of the upstream's table or of one below it.
fn is_below(header: &str, name: &str) -> bool {
    let inside = header.trim_start_matches('[').split(']').next().unwrap_or_default();
    let keys = Key::parse(inside).unwrap_or_default();
    keys.iter().map(Key::get).take(2).eq(["upstreams", name])
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
