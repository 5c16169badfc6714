//! The commands `headend enable NAME` and `headend disable NAME`: set the key `enabled` in the
//! upstream's file, then reload the daemon.

use toml_edit::{DocumentMut, TableLike, value};

use crate::cli::exit::CONFIG;
use crate::cli::reach::operator;
use crate::cli::setup::edit::{FileEdit, UpstreamFile};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print};
use crate::operator::request::ReloadParams;
use crate::policy::OperatorAction;
use crate::wire::foreign;

/// Enables or disables an upstream in the file that contains its table, and reloads the daemon if
/// one runs. Restores the file if the new configuration is refused.
pub(in crate::cli) fn run(common: &CommonOptions, name: &str, on: bool) -> Result<u8, CommandFailure> {
    let UpstreamFile { main, path, text, daemon, .. } = UpstreamFile::find(common, name)?;
    let failed = |error: &dyn std::fmt::Display| CommandFailure::new(CONFIG, format!("{}: {error}", path.display()));
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| failed(&error))?;
    let upstreams = document.get_mut("upstreams").and_then(|item| item.as_table_like_mut());
    let table = upstreams.and_then(|upstreams| upstreams.get_mut(name)?.as_table_like_mut());
    let table = table.ok_or_else(|| failed(&"the upstream has no table"))?;
    let (shown, word) = (foreign::line(name), if on { "enabled" } else { "disabled" });
    if table.get("enabled").and_then(|item| item.as_bool()).unwrap_or(true) == on {
        return print(&format!("{shown} is {word} already\n"));
    }
    set_enabled(table, on);
    let edited = lines_as_in(&text, document.to_string());
    let action = Some(if on { "enable" } else { "disable" }.to_owned());
    let params = ReloadParams { action, name: Some(name.to_owned()), ..ReloadParams::default() };
    let edit = FileEdit { main: &main, path: &path, before: Some(&text), after: &edited };
    let plan = edit.put_in_force(daemon, Some(params), |outcome| record(common, &[name], on, outcome))?;
    print(&format!("{shown}: {word} in {}{plan}\n", path.display()))
}

/// Records the switch of upstreams in the audit log of the store, if there is one. A failure is
/// only reported: nothing else in the store changes without a daemon.
pub(super) fn record(common: &CommonOptions, names: &[&str], on: bool, outcome: Result<&str, &str>) {
    let action = if on { OperatorAction::Enable } else { OperatorAction::Disable };
    let store = operator::open_store(common).map_err(|failure| failure.text);
    let written = store.and_then(|mut alone| names.iter().try_for_each(|name| alone.record(action, name, outcome)));
    if let Err(why) = written {
        complain(&format!("not recorded in the audit log: {why}"));
    }
}

/// Returns a text with the key set for those of the named upstreams that it has.
///
/// # Errors
/// The text does not parse.
pub(super) fn switched(text: &str, names: &[&str], on: bool) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let is_on = |table: &dyn TableLike| table.get("enabled").and_then(|item| item.as_bool()).unwrap_or(true);
    let mut is_changed = false;
    if let Some(upstreams) = document.get_mut("upstreams").and_then(|item| item.as_table_like_mut()) {
        for name in names {
            let table = upstreams.get_mut(name).and_then(|item| item.as_table_like_mut());
            if let Some(table) = table.filter(|table| is_on(&**table) != on) {
                set_enabled(table, on);
                is_changed = true;
            }
        }
    }
    Ok(if is_changed { lines_as_in(text, document.to_string()) } else { text.to_owned() })
}

/// Sets the key in place and keeps the comments around it.
fn set_enabled(table: &mut dyn TableLike, on: bool) {
    match table.get_mut("enabled").and_then(|item| item.as_value_mut()) {
        Some(known) => {
            let decor = known.decor().clone();
            *known = on.into();
            *known.decor_mut() = decor;
        }
        None => drop(table.insert("enabled", value(on))),
    }
}

/// Converts the line ends of the edited text to those of the file.
pub(super) fn lines_as_in(before: &str, after: String) -> String {
    if before.contains("\r\n") { after.replace("\r\n", "\n").replace('\n', "\r\n") } else { after }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(text: &str, name: &str, on: bool) -> String {
        let mut document: DocumentMut = text.parse().unwrap();
        let upstreams = document.get_mut("upstreams").unwrap().as_table_like_mut().unwrap();
        set_enabled(upstreams.get_mut(name).unwrap().as_table_like_mut().unwrap(), on);
        lines_as_in(text, document.to_string())
    }

    #[test]
    fn several_upstreams_are_switched_and_a_text_without_them_stays() {
        let text = "[upstreams.a]\ncommand = [\"/a\"]\n[upstreams.b]\ncommand = [\"/b\"]\nenabled = false\n";
        let off = super::switched(text, &["a", "b", "elsewhere"], false).unwrap();
        assert_eq!(off, text.replace("\"/a\"]\n", "\"/a\"]\nenabled = false\n"));
        let odd = "x   =  1\n";
        assert_eq!(super::switched(odd, &["a"], false).unwrap(), odd);
        assert!(super::switched("[", &["a"], false).is_err());
    }

    #[test]
    fn only_the_key_changes_and_comments_stay() {
        let text = "# head\n[upstreams.a] # of a\ncommand = [\"/a\"] # its program\n\n# of b\n[upstreams.b]\ncommand = [\"/b\"]\n";
        let off = switched(text, "a", false);
        assert_eq!(off, text.replace("# its program\n", "# its program\nenabled = false\n"));
        assert_eq!(switched(&off, "a", true), off.replace("enabled = false", "enabled = true"));
        let noted = "[upstreams.a]\nenabled = false # too slow\ncommand = [\"/a\"]\n";
        assert_eq!(switched(noted, "a", true), noted.replace("false", "true"));
        let inline = "upstreams = { a = { command = [\"/a\"] } }\n";
        assert_eq!(switched(inline, "a", false), "upstreams = { a = { command = [\"/a\"] , enabled = false } }\n");
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(switched(&crlf, "a", false), off.replace('\n', "\r\n"));
    }
}
