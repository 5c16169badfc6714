//! The `command` of an upstream: the program and its arguments.

use super::container::ContainerRun;
use crate::source::expand::VariableText;
use crate::source::file::ConfigNode;
use crate::source::secret;
use crate::source::secret::MissingSecrets;

/// The text of the warning about a package whose version is open.
pub const UNPINNED: &str = "has no exact version, so what runs can change at any start";

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
    if let Some(image) = ContainerRun::of(&words).and_then(ContainerRun::untagged_image) {
        node.warning(format!(
            "the image `{image}` has no tag, so what runs can change at any start; write `{image}:VERSION` or `{image}@sha256:DIGEST`"
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

/// Options of package runners that have a value, except those whose value is the package.
const VALUE_OPTIONS: &str = "--cache --cache-dir --default-index --directory --env-file --extra-index-url --find-links --index \
     --index-url --prefix --project --python --registry --userconfig --with --with-editable --with-requirements -f -i -w";

/// Returns the program that knows the versions of the package that a command fetches and runs
/// (`npm` for `npx`), and the package as the command names it.
pub fn fetched_package(command: &[String]) -> Option<(&'static str, &str)> {
    let tool = match command.first()?.rsplit('/').next()? {
        "npx" => "npm",
        "pnpx" => "pnpm",
        "bunx" => "bun",
        "uvx" => "uv",
        _ => return None,
    };
    let has_value =
        |option: &str| VALUE_OPTIONS.split(' ').any(|known| known == option) || (tool, option) == ("uv", "-p");
    let mut before = "";
    for word in command.iter().skip(1) {
        let stated = ["--package=", "--from="].iter().find_map(|option| word.strip_prefix(option));
        if let Some(package) = stated.or(Some(word.as_str()).filter(|_| !word.starts_with('-') && !has_value(before))) {
            return Some((tool, package));
        }
        before = word;
    }
    None
}

/// Returns the package of which a runner would choose the version at each start, with its tag or
/// range if it has one (`name@latest`, `name@^1`); `None` if the version is fixed.
pub fn unversioned_package(command: &[String]) -> Option<&str> {
    let (tool, package) = fetched_package(command)?;
    let (name, rest) = split_package(package);
    let version = rest.trim_start_matches(['@', '=', 'v']);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_exact = match tool {
        // `1.2` stands for 1.2.0 in Python, and for any 1.2 in npm.
        "uv" => rest.starts_with("==") || rest.starts_with('@'),
        _ => {
            version.splitn(3, '.').filter(|part| is_number(part.split(['-', '+']).next().unwrap_or(part))).count() == 3
        }
    };
    let is_exact = is_exact && version.starts_with(|c: char| c.is_ascii_digit()) && !version.contains(['*', ' ', ',']);
    // Paths, URLs and repositories are not looked up by version.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/._~-[],".contains(c);
    let is_scoped = name.starts_with('@') || !name.contains('/');
    let local =
        !is_scoped || name.starts_with(['.', '/', '-']) || !name.chars().all(is_plain) || rest.contains([':', '/']);
    (!is_exact && !local).then_some(package)
}

/// Splits a package at its version or tag, which begins at the second part. A scope begins with @
/// too.
pub fn split_package(package: &str) -> (&str, &str) {
    let at = package.char_indices().skip(1).find(|(_, c)| ['@', '=', '<', '>', '~'].contains(c));
    package.split_at(at.map_or(package.len(), |(at, _)| at))
}

/// Writes a package with its version in the syntax of this command's runner.
pub fn with_version(command: &[String], package: &str, version: &str) -> String {
    let is_python = fetched_package(command).is_some_and(|(tool, _)| tool == "uv");
    let between = if is_python { "==" } else { "@" };
    format!("{}{between}{version}", split_package(package).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_package_without_a_version_is_found_behind_the_options_of_each_runner() {
        for (line, pinned) in [
            ("npx -y @x/files /srv", "@x/files@1.2.0"),
            ("/usr/bin/npx files@latest", "files@1.2.0"),
            ("npx -y -p @x/files files-server", "@x/files@1.2.0"),
            ("npx --package=@x/files files-server", "@x/files@1.2.0"),
            ("npx --prefix /opt/servers files", "files@1.2.0"),
            ("uvx mcp-server-time --local-timezone=UTC", "mcp-server-time==1.2.0"),
            ("uvx -p 3.12 --with requests mcp[cli]", "mcp[cli]==1.2.0"),
            ("uvx --from mcp-server-time@latest server", "mcp-server-time==1.2.0"),
            ("npx files@1", "files@1.2.0"),
            ("npx files@1.2", "files@1.2.0"),
            ("npx files@1.x", "files@1.2.0"),
            ("npx files@^1.2.0", "files@1.2.0"),
            ("npx files@>=1.2.0", "files@1.2.0"),
            ("npx @x/files@~1.2.0", "@x/files@1.2.0"),
            ("uvx mcp>=1.0", "mcp==1.2.0"),
            ("uvx mcp==1.*", "mcp==1.2.0"),
            ("uvx mcp~=1.0", "mcp==1.2.0"),
        ] {
            let command = words(line);
            let package = unversioned_package(&command);
            assert_eq!(
                package.map(|package| with_version(&command, package, "1.2.0")).as_deref(),
                Some(pinned),
                "{line}"
            );
        }
        for line in [
            "npx -y files@1.2.0",
            "npx @x/files@v1.2.0",
            "npx files@1.2.0-beta.1",
            "npx files@npm:other@1",
            "npx --package=--registry=http://x files",
            "npx --package=-x files",
            "npx ./files",
            "npx github:a/b",
            "npx a/b",
            "uvx mcp==1",
            "uvx mcp@1.2",
            "uvx --from=-e server",
            "uvx --from git+https://example.com/a@main a",
            "npm exec files",
            "node files",
            "uv tool run files",
        ] {
            assert_eq!(unversioned_package(&words(line)), None, "{line}");
        }
    }
}
