//! The command `headend remove`: takes the table of an upstream out of its file.

use clap::Args;
use toml_edit::{DocumentMut, Key};

use crate::cli::exit::CONFIG;
use crate::cli::setup::add::confirm;
use crate::cli::setup::edit::{FileEdit, UpstreamFile};
use crate::cli::setup::switch::lines_as_in;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::cli::words::screen::Screen;
use crate::config::show;
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
    let UpstreamFile { main, path, text, config, daemon } = UpstreamFile::find(common, &args.name)?;
    let (shown, at) = (foreign::line(&args.name), path.display());
    let failed = |error: &dyn std::fmt::Display| CommandFailure::new(CONFIG, format!("{at}: {error}"));
    let after = without(&text, &args.name).map_err(|error| failed(&error))?;
    let whole: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(&error))?;
    let stated = whole.get("upstreams").and_then(|upstreams| upstreams.get(&args.name)?.as_table());
    let mut known = config.upstreams.iter().chain(&config.disabled);
    let known = known.find(|upstream| upstream.name.as_str() == args.name);
    let table = known.zip(stated).map_or_else(String::new, |(known, stated)| show::stated(known, stated));
    print(&format!("{}\n{}", foreign::line(&at.to_string()), foreign::block(&table)))?;
    confirm(args.yes, &format!("Remove {shown}?"))?;
    let edit = FileEdit { main: &main, path: &path, before: Some(&text), after: &after };
    let plan = edit.put_in_force(daemon, None, |_| {})?;
    let screen = Screen::of_stdout();
    let stays = "its pins, grants and login stay in the state directory";
    print(&(screen.paragraph(&format!("removed {shown} from {at}{plan}")) + &screen.paragraph(stays)))
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
