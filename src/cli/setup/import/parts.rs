//! Normalizes one server of a host to one form: a command or a URL with its values, for all
//! spellings of hosts.

use super::bridge;
use super::host::HostEntry;
use super::value::FileValue;
use super::{secrets, stated};

/// The value of a variable or header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GivenValue {
    Text(String),
    /// Read from the variable of that name, behind a prefix.
    Variable(String, &'static str),
}

/// The way to start or reach a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaunchParts {
    /// Command line; empty for a server behind a URL.
    pub(super) words: Vec<String>,
    pub(super) env: Vec<(String, GivenValue)>,
    pub(super) cwd: Option<String>,
    pub(super) url: Option<String>,
    pub(super) headers: Vec<(String, GivenValue)>,
    pub(super) transport: Option<String>,
    pub(super) roots: Vec<String>,
    pub(super) era: Option<&'static str>,
    /// Remarks for the user.
    pub(super) notes: Vec<String>,
}

/// Keys that are read here, and keys that mean nothing to headend.
const KNOWN: &[&str] = &[
    "command",
    "cmd",
    "args",
    "env",
    "environment",
    "envs",
    "env_keys",
    "env_vars",
    "cwd",
    "workingDirectory",
    "url",
    "httpUrl",
    "serverUrl",
    "uri",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "requestOptions",
    "requestInit",
    "apiKey",
    "type",
    "transport",
    "source",
    "description",
    "name",
    "roots",
    "protocolEra",
    "bundled",
    "display_name",
    "gallery",
    "version",
    "$schema",
];

impl LaunchParts {
    /// Normalizes an entry of a host.
    pub(super) fn of(server: &HostEntry) -> Self {
        let body = &server.body;
        let mut parts = Self::default();
        let url = ["url", "httpUrl", "serverUrl", "uri"].iter().find_map(|key| body.get(key)?.as_str());
        if let Some(command) = body.get("command").or_else(|| body.get("cmd")).filter(|command| command.is_stated()) {
            parts.local(command, body);
        } else if let Some(url) = url {
            parts.url = Some(url.to_owned());
            parts.remote(body);
        }
        let transport = parts.transport.take().or_else(|| {
            let stated = body.get("type").or_else(|| body.get("transport")).and_then(FileValue::as_str);
            stated.filter(|_| parts.url.is_some()).map(str::to_owned)
        });
        parts.transport = transport;
        let uris = body.get("roots").map(FileValue::items).unwrap_or_default().iter();
        parts.roots = uris.filter_map(|root| root.get("uri").unwrap_or(root).as_str().map(str::to_owned)).collect();
        parts.era = match body.get("protocolEra").and_then(FileValue::as_str) {
            Some("legacy") => Some("legacy"),
            Some("modern" | "2026-07-28") => Some("modern"),
            _ => None,
        };
        parts.left(body);
        parts
    }

    /// Normalizes a bare command line like that of an entry.
    pub(super) fn of_words(words: Vec<String>) -> Self {
        let mut parts = Self::default();
        if !parts.bridged(&words, &[]) {
            parts.words = words;
            parts.of_env_program();
            parts.of_container();
        }
        parts
    }

    /// Adds remarks about keys that are not carried over.
    fn left(&mut self, body: &FileValue) {
        let is_known = |key: &str| KNOWN.contains(&key) || stated::KEYS.contains(&key);
        let left: Vec<&str> = body.members().iter().map(|(key, _)| key.as_str()).filter(|key| !is_known(key)).collect();
        if !left.is_empty() {
            self.notes.push(format!("Not carried over: {}.", left.join(", ")));
        }
        if left.contains(&"envFile") {
            self.notes.push("Write the variables of `envFile` into `env`: NAME = { env = \"NAME\" }.".to_owned());
        }
        if left.iter().any(|key| ["oauth", "auth", "headersHelper", "authProviderType"].contains(key)) {
            self.notes.push("The host signs in to it; for headend, `headend login` does, with its name.".to_owned());
        }
    }

    /// Reads the keys of a server that is a program.
    fn local(&mut self, command: &FileValue, body: &FileValue) {
        // Older versions of Zed have an object here, opencode an array.
        let path = command.get("path").unwrap_or(command);
        let program = path.as_str().into_iter().map(str::to_owned);
        let words = program.chain(command.items().iter().filter_map(FileValue::scalar));
        let args = [body.get("args"), command.get("args")];
        let args = args.into_iter().flatten().flat_map(FileValue::items).filter_map(FileValue::scalar);
        let words: Vec<String> = words.chain(args).collect();
        let tables = [body.get("env"), body.get("environment"), body.get("envs"), command.get("env")];
        let given: Vec<(String, FileValue)> =
            tables.into_iter().flatten().flat_map(FileValue::members).cloned().collect();
        if self.bridged(&words, &given) {
            return;
        }
        self.words = words;
        self.env = texts(given.iter());
        for list in ["env_keys", "env_vars"] {
            let named = body.get(list).map(FileValue::items).unwrap_or_default().iter();
            for name in named.filter_map(|one| one.as_str().or_else(|| one.get("name")?.as_str())) {
                self.env.retain(|(other, _)| other != name);
                self.env.push((name.to_owned(), GivenValue::Variable(name.to_owned(), "")));
            }
        }
        self.of_env_program();
        self.of_container();
        let cwd = body.get("cwd").or_else(|| body.get("workingDirectory"));
        self.cwd = cwd.and_then(FileValue::as_str).map(str::to_owned);
    }

    /// Reads a command line that is nothing but a bridge as the server behind it. Returns false for
    /// any other command line.
    fn bridged(&mut self, words: &[String], given: &[(String, FileValue)]) -> bool {
        let Some(bridge::BridgedServer { url, headers, transport }) = bridge::remote(words, given) else {
            return false;
        };
        self.url = Some(url);
        self.headers = headers.into_iter().map(|(name, value)| (name, GivenValue::Text(value))).collect();
        self.transport = Some(transport.unwrap_or("auto").to_owned());
        self.notes.push("The host starts the bridge mcp-remote; headend speaks to the server itself.".to_owned());
        true
    }

    /// Moves the variables of `env NAME=value program` from the command line to the environment,
    /// where they can be secrets.
    fn of_env_program(&mut self) {
        let is_env = self.words.first().is_some_and(|word| word == "env" || word.ends_with("/env"));
        let is_pair = |word: &&String| word.split_once('=').is_some_and(|(name, _)| is_variable(name));
        let pairs = self.words.iter().skip(1).take_while(is_pair).count();
        let plain = self.words.get(pairs + 1).is_some_and(|word| !word.starts_with('-'));
        if is_env && pairs > 0 && plain {
            let pairs: Vec<String> = self.words.drain(..=pairs).skip(1).collect();
            for (name, value) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
                self.env.retain(|(other, _)| other != name);
                self.env.push((name.to_owned(), GivenValue::Text(value.to_owned())));
            }
        }
    }

    /// Moves secrets of `docker run -e NAME=value` to the environment: with the name alone, docker
    /// takes the value from its own environment.
    fn of_container(&mut self) {
        let program = self.words.first().map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
        let is_run = self.words.get(1).is_some_and(|word| word == "run");
        if !is_run || !program.is_some_and(|program| ["docker", "podman", "nerdctl"].contains(&program.as_str())) {
            return;
        }
        let mut before = String::new();
        for word in &mut self.words {
            let (option, pair) = match word.split_once('=') {
                Some(("--env", pair)) => ("--env=", pair.to_owned()),
                Some(_) if before == "-e" || before == "--env" => ("", word.clone()),
                _ => {
                    before.clone_from(word);
                    continue;
                }
            };
            let secret = |(name, value): &(&str, &str)| is_variable(name) && secrets::is_secret(name, value);
            if let Some((name, value)) = pair.split_once('=').filter(secret) {
                // If names are equal, the container takes the last one.
                self.env.retain(|(other, _)| other != name);
                self.env.push((name.to_owned(), GivenValue::Text(value.to_owned())));
                *word = format!("{option}{name}");
            }
            before.clear();
        }
    }

    /// Reads the headers of a server behind a URL.
    fn remote(&mut self, body: &FileValue) {
        let tables = [
            body.get("headers"),
            body.get("http_headers"),
            body.at(&["requestOptions", "headers"]),
            body.at(&["requestInit", "headers"]),
        ];
        self.headers = texts(tables.into_iter().flatten().flat_map(FileValue::members));
        let mut header = |name: &str, given: GivenValue| {
            self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            self.headers.push((name.to_owned(), given));
        };
        for (name, variable) in body.get("env_http_headers").map(FileValue::members).unwrap_or_default() {
            if let Some(variable) = variable.as_str() {
                header(name, GivenValue::Variable(variable.to_owned(), ""));
            }
        }
        if let Some(variable) = body.get("bearer_token_env_var").and_then(FileValue::as_str) {
            header("Authorization", GivenValue::Variable(variable.to_owned(), "Bearer "));
        }
        if let Some(key) = body.get("apiKey").and_then(FileValue::as_str) {
            header("Authorization", GivenValue::Text(format!("Bearer {key}")));
        }
    }
}

/// Returns true for a valid name of an environment variable.
fn is_variable(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns names with their texts; if names are equal, the last one counts.
fn texts<'j>(members: impl Iterator<Item = &'j (String, FileValue)>) -> Vec<(String, GivenValue)> {
    let mut pairs: Vec<(String, GivenValue)> = Vec::new();
    for (name, value) in members {
        let Some(value) = value.scalar() else { continue };
        pairs.retain(|(other, _)| other != name);
        pairs.push((name.clone(), GivenValue::Text(value)));
    }
    pairs
}
