//! Secrets: their sources and their redaction.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::file::{ConfigNode, ConfigTable};

/// The text that is shown in place of a secret.
pub(crate) const REDACTED: &str = "***";

/// A value that is never shown. Only [`Secret::expose`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    value: String,
    /// The text in the file, if it has variables.
    written: Option<String>,
}

impl Secret {
    pub const fn new(value: String) -> Self {
        Self { value, written: None }
    }

    /// Marks the secret as the value of a text with variables.
    pub(crate) fn written_as(self, written: String) -> Self {
        Self { written: Some(written), ..self }
    }

    /// Returns the value, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// Reports whether the value comes from a text with variables.
    pub(crate) const fn has_variables(&self) -> bool {
        self.written.is_some()
    }

    /// Returns the text in the file, with its variables: the part of a launch that does not change
    /// with the environment.
    pub(crate) fn before_expansion(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.value)
    }
}

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// A secret, and whether the file itself contains it.
pub(crate) struct ConfiguredSecret {
    pub(crate) secret: Secret,
    pub(crate) literal: bool,
}

/// Reads a string, or one of `{ env }`, `{ file }`, `{ credential }`, each with an optional
/// `prefix` before the value (`"Bearer "`). A missing secret is a problem.
pub(crate) fn read(node: &ConfigNode<'_>) -> Option<ConfiguredSecret> {
    read_with(node, &mut |node, message| node.problem(message))
}

/// The missing secrets and variables without which one upstream is not started.
pub(crate) struct MissingSecrets {
    /// A sentence for each missing secret or variable, with its remedy.
    pub(crate) found: Vec<String>,
    /// True if the upstream is enabled, so that each of them is worth a warning.
    told: bool,
    /// The value of the upstream's key `expand`.
    pub(crate) expands: Option<bool>,
    /// Names and values of the variables that its texts use.
    pub(crate) expanded: Vec<(String, Secret)>,
}

impl MissingSecrets {
    pub(crate) fn new(enabled: bool, expands: Option<bool>) -> Self {
        Self { found: Vec::new(), told: enabled, expands, expanded: Vec::new() }
    }

    /// Adds a missing secret or variable. This is only a warning, since all other upstreams are
    /// served.
    pub(crate) fn add(&mut self, node: &ConfigNode<'_>, message: String) {
        self.warn(node, &message);
        self.found.push(message);
    }

    /// Does what [`Self::add`] does, with the key in front of the sentence; the warning names the
    /// key already.
    pub(crate) fn add_of(&mut self, node: &ConfigNode<'_>, key: &str, message: &str) {
        self.warn(node, message);
        self.found.push(format!("{key}: {message}"));
    }

    fn warn(&self, node: &ConfigNode<'_>, message: &str) {
        if self.told {
            node.warning(message.to_owned());
        }
    }
}

/// Reads a secret of one upstream as [`read`] does, but a missing one is added to what the upstream
/// `lacks`.
pub(crate) fn read_or_lack(node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Option<ConfiguredSecret> {
    read_with(node, &mut |node, message| lacks.add(node, message))
}

/// A callback for a missing secret.
type OnMissingSecret<'a> = dyn FnMut(&ConfigNode<'_>, String) + 'a;

/// Reads a secret, and passes a missing one to `absent`.
fn read_with(node: &ConfigNode<'_>, absent: &mut OnMissingSecret<'_>) -> Option<ConfiguredSecret> {
    if let Some(text) = node.as_str() {
        return Some(ConfiguredSecret { secret: Secret::new(text.to_owned()), literal: true });
    }
    let Some(mut table) = node.clone().table() else {
        node.problem(
            "write a string or where to find it: { env = \"NAME\" }, { file = \"/path\" } or { credential = \"name\" }",
        );
        return None;
    };
    let prefix = table.string("prefix").unwrap_or_default();
    let value = resolve(node, &mut table, absent);
    table.finish();
    Some(ConfiguredSecret { secret: Secret::new(prefix + &value?), literal: false })
}

/// Reads the value from the one source that the table names.
fn resolve(node: &ConfigNode<'_>, table: &mut ConfigTable<'_>, absent: &mut OnMissingSecret<'_>) -> Option<String> {
    let sources = (table.take("env"), table.take("file"), table.take("credential"));
    match sources {
        (Some(env), None, None) => from_env(&env, absent),
        (None, Some(file), None) => {
            let path = PathBuf::from(file.string()?);
            if !path.is_absolute() {
                file.problem("must be an absolute path");
                return None;
            }
            from_file(&file, &path, absent)
        }
        (None, None, Some(credential)) => from_credential(&credential, absent),
        _ => {
            node.problem("needs exactly one of `env`, `file` and `credential`");
            None
        }
    }
}

fn from_env(node: &ConfigNode<'_>, absent: &mut OnMissingSecret<'_>) -> Option<String> {
    let name = node.string()?;
    let value = (node.source.env)(&name).filter(|value| !value.is_empty());
    if value.is_none() {
        let message = format!(
            "the environment variable `{name}` is not set; export it, or write {{ file = \"/path\" }} or {{ credential = \"name\" }}"
        );
        absent(node, message);
    }
    value
}

fn from_credential(node: &ConfigNode<'_>, absent: &mut OnMissingSecret<'_>) -> Option<String> {
    let name = node.string()?;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        node.problem("must be the name of a credential, as in the unit's LoadCredential=");
        return None;
    }
    let Some(dir) = (node.source.env)("CREDENTIALS_DIRECTORY") else {
        let message = format!(
            "$CREDENTIALS_DIRECTORY is not set: the credential needs `LoadCredential={name}:/path` in the systemd unit"
        );
        absent(node, message);
        return None;
    };
    from_file(node, &Path::new(&dir).join(name), absent)
}

fn from_file(node: &ConfigNode<'_>, path: &Path, absent: &mut OnMissingSecret<'_>) -> Option<String> {
    let text = match (node.source.read)(path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("read {}: {error}", path.display());
            if error.kind() == io::ErrorKind::NotFound {
                absent(node, message);
            } else {
                // For example a file that other users may write.
                node.problem(message);
            }
            return None;
        }
    };
    // Editors and `echo` end the last line with a newline; tokens contain none.
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        absent(node, format!("{} is empty", path.display()));
        return None;
    }
    Some(value.to_owned())
}

/// Words in the name of a variable, option or header that mark its value as a secret.
const SECRET_WORDS: &[&str] =
    &["key", "token", "secret", "password", "passwd", "credential", "authorization", "cookie", "auth"];

/// Endings of names whose value only tells where a secret is.
const HARMLESS_ENDS: &[&str] = &["file", "path", "dir", "url", "id", "name", "env", "type"];

/// Prefixes of well-known tokens.
const TOKENS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "hf_",
    "npm_",
    "Bearer ",
    "eyJhbGci",
];

/// Reports whether a name marks its value as a secret: `GITHUB_TOKEN`, `--api-key`, `X-Api-Key`.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['_', '-']).next().unwrap_or_default();
    SECRET_WORDS.iter().any(|word| name.contains(word)) && !HARMLESS_ENDS.contains(&last)
}

/// Reports whether a value begins like a well-known kind of token, or is a URL with a password.
pub fn is_token(value: &str) -> bool {
    let authority = value.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty());
    password || TOKENS.iter().any(|start| value.len() > start.len() && value.starts_with(start))
}

/// Returns for each word of a command line the position in it where a secret seems to begin, if
/// any.
pub(crate) fn find_in_arguments(command: &[String]) -> Vec<Option<usize>> {
    let mut follows = false;
    let mut places = Vec::with_capacity(command.len());
    for word in command {
        let option = word.starts_with('-');
        let secret = match word.split_once('=') {
            Some((name, value)) if is_secret_name(name) && !value.is_empty() => Some(name.len() + 1),
            Some((name, value)) if is_token(value) => Some(name.len() + 1),
            _ if is_token(word) || (follows && !option) => Some(0),
            _ => None,
        };
        follows = option && !word.contains('=') && is_secret_name(word);
        places.push(secret);
    }
    places
}

/// Reports whether a secret is a variable, alone or after the name of a scheme.
pub(crate) fn is_variable(secret: &str) -> bool {
    let schemes = ["Bearer ", "Basic ", "Token "];
    schemes.iter().find_map(|scheme| secret.strip_prefix(scheme)).unwrap_or(secret).starts_with("${")
}

/// Returns a command line without the secrets that seem to be in it.
pub(crate) fn redact_command(command: &[String]) -> Vec<String> {
    let shown = |(word, place): (&String, Option<usize>)| match place.and_then(|at| word.split_at_checked(at)) {
        Some((start, secret)) if !is_variable(secret) => format!("{start}{REDACTED}"),
        Some(_) | None => word.clone(),
    };
    command.iter().zip(find_in_arguments(command)).map(shown).collect()
}

/// Warns of a secret in the file itself, which works, but ends up in backups and repositories.
pub(crate) fn warn_of_literal(node: &ConfigNode<'_>) {
    node.warning(
        "a secret in the file itself; write { env = \"NAME\" }, { file = \"/path\" } or { credential = \"name\" }",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", Secret::new("hunter2".to_owned())), "***");
    }

    #[test]
    fn secrets_on_a_command_line_are_found_and_redacted() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["srv", "--token=abc"], &["srv", "--token=***"]),
            (&["srv", "--api-key", "abc", "x"], &["srv", "--api-key", "***", "x"]),
            (&["srv", "ghp_0123"], &["srv", "***"]),
            (&["env", "API_KEY=abc", "srv"], &["env", "API_KEY=***", "srv"]),
            (&["srv", "postgres://me:pw@db/x"], &["srv", "***"]),
            (&["srv", "postgres://me@db:5432/x"], &["srv", "postgres://me@db:5432/x"]),
            (&["srv", "--header=Bearer abc"], &["srv", "--header=***"]),
            (&["srv", "--token-file=/run/t"], &["srv", "--token-file=/run/t"]),
            (&["srv", "--token", "--verbose"], &["srv", "--token", "--verbose"]),
            (&["npx", "-y", "pkg", "/srv/keys"], &["npx", "-y", "pkg", "/srv/keys"]),
        ];
        for (command, shown) in cases {
            let command: Vec<String> = command.iter().map(ToString::to_string).collect();
            assert_eq!(redact_command(&command), *shown);
        }
    }

    #[test]
    fn names_say_whether_their_value_is_secret() {
        for name in ["GITHUB_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD", "Authorization", "X-Api-Key", "secret"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["NODE_ENV", "TOKEN_FILE", "AWS_ACCESS_KEY_ID", "SSH_KEY_PATH", "REGION"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
