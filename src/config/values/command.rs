//! The `command` of an upstream: the program and its arguments.

use super::container::ContainerRun;
use crate::source::expand::VariableText;
use crate::source::file::ConfigNode;
use crate::source::secret;
use crate::source::secret::MissingSecrets;

/// The text of the warning about a package without a version.
pub const UNPINNED: &str = "has no version, so what runs can change at any start";

/// Reads the command, with warnings about what is probably not meant; `None` if it cannot be used.
pub(crate) fn command(node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Option<Vec<VariableText>> {
    if let Some(line) = node.as_str() {
        let words = line.split_whitespace().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        let shell = line.contains(['|', '&', ';', '<', '>', '$', '`', '"', '\'', '\\', '*']);
        let write = if shell { "[\"program\", \"argument\"]".to_owned() } else { format!("[{words}]") };
        node.problem(format!("must be an array of the program and its arguments, there is no shell; write {write}"));
        return None;
    }
    let items = node.items("an array of the program and its arguments")?;
    let words: Vec<String> = items.iter().map(ConfigNode::string).collect::<Option<_>>()?;
    for (item, _) in items.iter().zip(&words).filter(|(_, word)| word.contains('\0')) {
        item.problem("must not contain a NUL character");
    }
    match words.first().map(String::as_str) {
        None => node.problem("must not be empty; write the program and its arguments"),
        Some("") => node.problem("the program must not be empty"),
        Some(program) if program.contains(char::is_whitespace) && words.len() == 1 && !program.starts_with('/') => {
            node.warning("the program's name contains spaces; arguments are elements of their own");
        }
        Some(program) if program.contains('/') && !program.starts_with(['/', '$']) => {
            node.warning("a relative program is looked up in the upstream's working directory; write an absolute path");
        }
        Some(_) => {}
    }
    let places = secret::find_in_arguments(&words);
    let is_literal = |word: &str, at: usize| word.get(at..).is_some_and(|secret| !secret::is_variable(secret));
    let found = items.iter().zip(&words).zip(places);
    for ((item, _), _) in found.filter(|((_, word), place)| place.is_some_and(|at| is_literal(word, at))) {
        item.warning("looks like a secret, and every user of this machine can read a command line; pass it in `env`");
    }
    let missing = ContainerRun::of(&words).map(ContainerRun::missing).unwrap_or_default();
    if !missing.is_empty() {
        let missing = missing.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(" and ");
        node.warning(format!(
            "runs a container without {missing}: --rm removes it when it ends, --init lets it end on a signal; write both behind `run`"
        ));
    }
    if let Some(package) = unversioned_package(&words) {
        node.warning(format!("`{package}` {UNPINNED}; write `{}`", with_version(&words, package, "VERSION")));
    }
    words.first().is_some_and(|program| !program.is_empty()).then_some(())?;
    if lacks.expands.is_none() && words.iter().any(|word| word.contains("${")) {
        node.warning(
            "`${` stays as it is in a command; write `expand = true` to have variables put in, or `expand = false` where it is meant so",
        );
    }
    let expand = |(item, word): (&ConfigNode<'_>, String)| {
        if lacks.expands != Some(true) {
            return VariableText::plain(word);
        }
        let template = lacks.expand(item, word);
        if template.has_variables() {
            item.warning("every user of this machine can read what is put into a command line; pass it in `env` where the server can");
        }
        template
    };
    Some(items.iter().zip(words).map(expand).collect())
}

/// Returns the package that a runner would fetch in its newest version; `None` if the version is
/// fixed.
pub fn unversioned_package(command: &[String]) -> Option<&str> {
    let program = command.first()?.rsplit('/').next()?;
    let arguments = command.get(1..)?;
    let package = match program {
        "npx" | "bunx" | "pnpx" | "uvx" => arguments.iter().find(|word| !word.starts_with('-'))?,
        _ => return None,
    };
    // A scope begins with @ too; paths and URLs are not looked up by version.
    let version = package.get(1..)?.contains(['@', '=', '<', '>', '~']);
    let local = package.contains("://") || package.starts_with(['.', '/']);
    (!version && !local).then_some(package)
}

/// Writes a package with its version in the syntax of this command's runner.
pub fn with_version(command: &[String], package: &str, version: &str) -> String {
    let is_python = command.first().is_some_and(|program| program.ends_with("uvx"));
    let between = if is_python { "==" } else { "@" };
    format!("{package}{between}{version}")
}
