//! One server of a host as a table of the configuration.

use crate::config::secret::{is_secret_name, is_token};
use crate::config::show::{array, inline, quoted};

use super::host::{Json, Server};
use super::names::Names;
use super::template::{Piece, Place, pieces, plain};

/// Keys that the import reads, and keys without a meaning here.
const KNOWN: &[&str] = &[
    "command",
    "args",
    "env",
    "environment",
    "cwd",
    "url",
    "httpUrl",
    "serverUrl",
    "headers",
    "type",
    "transport",
    "disabled",
    "enabled",
    "source",
    "description",
    "name",
];

/// A table, remarks about it, and the reasons why it cannot be used unchanged.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) text: String,
    pub(super) notes: Vec<String>,
    pub(super) reasons: Vec<String>,
}

/// Writes the values of one server.
struct Writer<'a> {
    upstream: String,
    names: &'a mut Names,
    place: &'a Place<'a>,
    inputs: &'a [(String, String)],
    block: Block,
}

impl Block {
    pub(super) fn new(server: &Server, names: &mut Names, place: &Place<'_>, inputs: &[(String, String)]) -> Self {
        let upstream = names.upstream(&server.name);
        let mut writer = Writer { upstream, names, place, inputs, block: Self::default() };
        writer.write(&server.body);
        writer.block
    }
}

impl Writer<'_> {
    fn write(&mut self, body: &Json) {
        self.block.text = format!("[upstreams.{}]\n", self.upstream);
        if body.get("disabled") == Some(&Json::Bool(true)) || body.get("enabled") == Some(&Json::Bool(false)) {
            self.block.reasons.push("the host has disabled it".to_owned());
        }
        let url = ["url", "httpUrl", "serverUrl"].iter().find_map(|key| body.get(key)?.as_str());
        match (body.get("command"), url) {
            (Some(command), _) => self.local(command, body),
            (None, Some(url)) => self.remote(url, body),
            (None, None) => self.block.reasons.push("it has neither `command` nor `url`".to_owned()),
        }
        let left: Vec<&str> =
            body.members().iter().map(|(key, _)| key.as_str()).filter(|key| !KNOWN.contains(key)).collect();
        if !left.is_empty() {
            self.block.notes.push(format!("Not carried over: {}.", left.join(", ")));
        }
    }

    fn local(&mut self, command: &Json, body: &Json) {
        // An older form of Zed has an object here, opencode an array.
        let path = command.get("path").unwrap_or(command);
        let program = path.as_str().into_iter().map(str::to_owned);
        let words = program.chain(command.items().iter().filter_map(Json::scalar));
        let args = [body.get("args"), command.get("args")];
        let args = args.into_iter().flatten().flat_map(Json::items).filter_map(Json::scalar);
        let words: Vec<String> = words.chain(args).map(|word| self.plain(&word)).collect();
        self.line("command", &array(&words));
        let tables = [body.get("env"), body.get("environment"), command.get("env")];
        let env = self.secrets(tables.into_iter().flatten().flat_map(Json::members), false);
        if !env.is_empty() {
            self.line("env", &inline(&env));
        }
        if let Some(cwd) = body.get("cwd").and_then(Json::as_str) {
            let cwd = self.plain(cwd);
            let cwd = self.place.folder.map(|folder| folder.join(&cwd).display().to_string()).unwrap_or(cwd);
            self.line("cwd", &quoted(&cwd));
        }
    }

    fn remote(&mut self, url: &str, body: &Json) {
        let url = self.plain(url);
        self.line("url", &quoted(&url));
        match body.get("type").or(body.get("transport")).and_then(Json::as_str) {
            Some("sse") => self.line("transport", &quoted("sse")),
            Some("ws" | "websocket") => self.block.reasons.push("headend does not speak WebSocket".to_owned()),
            _ => {}
        }
        let headers = self.secrets(body.get("headers").map(Json::members).unwrap_or_default().iter(), true);
        if !headers.is_empty() {
            self.line("headers", &inline(&headers));
        }
    }

    fn line(&mut self, key: &str, value: &str) {
        self.block.text.push_str(&format!("{key} = {value}\n"));
    }

    fn plain(&mut self, text: &str) -> String {
        plain(text, self.place).unwrap_or_else(|reason| {
            self.block.reasons.push(reason);
            text.to_owned()
        })
    }

    /// Writes names with their values as TOML; of equal names, the last counts.
    fn secrets<'j>(
        &mut self,
        members: impl Iterator<Item = &'j (String, Json)>,
        headers: bool,
    ) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in members {
            let Some(value) = value.scalar() else { continue };
            let what = if headers { "header" } else { "environment" };
            let about = format!("{name}, {what} of {}", self.upstream);
            // Header names are the same everywhere, so the variable has the upstream's name too.
            let variable = if headers { format!("{}_{name}", self.upstream) } else { name.clone() };
            let value = self.secret(&Value { name, text: &value, variable, about });
            pairs.retain(|(other, _)| other != name);
            pairs.push((name.clone(), value));
        }
        pairs
    }

    /// A value that may be secret, as TOML.
    fn secret(&mut self, value: &Value<'_>) -> String {
        let cut = pieces(value.text, self.place);
        let secret = is_secret_name(value.name) || is_token(value.text);
        let (prefix, last) = match cut.as_slice() {
            [] => return quoted(""),
            [Piece::Text(text)] if !secret => return quoted(text),
            [one] => ("", one),
            [Piece::Text(prefix), last] => (prefix.as_str(), last),
            _ => return self.whole(value),
        };
        let variable = match last {
            Piece::Variable { default: Some(default), .. } if !secret => {
                self.block.notes.push(format!("{} was {}; its default is written.", value.name, value.text));
                return quoted(&format!("{prefix}{default}"));
            }
            Piece::Variable { name, .. } => {
                self.names.export(name, &value.about);
                name.clone()
            }
            Piece::Input(id) => {
                let asked = self.inputs.iter().find(|(other, _)| other == id);
                let about = asked.map(|(_, description)| format!("{description} ({})", value.about));
                let about = about.as_ref().unwrap_or(&value.about);
                self.names.variable(&self.upstream, id, &format!("${{input:{id}}}"), about)
            }
            Piece::Text(_) | Piece::Unknown(_) => return self.whole(value),
        };
        let mut pairs = vec![("env".to_owned(), quoted(&variable))];
        if !prefix.is_empty() {
            pairs.push(("prefix".to_owned(), quoted(prefix)));
        }
        inline(&pairs)
    }

    /// A variable of its own for the whole value.
    fn whole(&mut self, value: &Value<'_>) -> String {
        let variable = self.names.variable(&self.upstream, &value.variable, value.text, &value.about);
        inline(&[("env".to_owned(), quoted(&variable))])
    }
}

/// One environment variable or header.
struct Value<'a> {
    name: &'a str,
    text: &'a str,
    /// Name of the variable that holds the value if it is secret.
    variable: String,
    /// Description for the user.
    about: String,
}
