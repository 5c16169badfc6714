//! Converts one server of a host to a table of the configuration.

use std::time::Duration;

use crate::config::show::{array, inline, key, quoted};

use super::names::ImportNames;
use super::parts::{GivenValue, LaunchParts};
use super::secrets::{self, KnownSecrets, SecretSpan};
use super::stated::HostServerSettings;
use super::template::{TemplateContext, TemplatePiece, pieces, variables};

/// A table of the configuration, with remarks and the reasons why headend would refuse it.
#[derive(Debug, Default)]
pub(super) struct UpstreamBlock {
    /// Name of the upstream.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) notes: Vec<String>,
    /// Reason why the host does not start the server.
    pub(super) off: Option<String>,
    /// True for a server behind a URL without a credential.
    pub(super) may_want_login: bool,
    /// Reasons why headend would refuse the table.
    pub(super) reasons: Vec<String>,
    /// Variables that the user has to set, with their descriptions.
    pub(super) exports: Vec<(String, String)>,
    /// Whether the host has any rule about which calls need approval.
    pub(super) says: bool,
    /// Whether the host lets every call run without approval.
    pub(super) unasked_all: bool,
    /// Patterns over canonical names of tools that the host lets run without approval.
    pub(super) unasked: Vec<String>,
}

/// Joins the names of blocks for a sentence.
pub(super) fn names_of<'b>(blocks: impl Iterator<Item = &'b UpstreamBlock>) -> String {
    blocks.map(|block| block.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The settings of one host's server from which a block is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSource<'a> {
    pub(super) parts: &'a LaunchParts,
    pub(super) stated: &'a HostServerSettings,
    pub(super) place: TemplateContext<'a>,
    pub(super) inputs: &'a [(String, String)],
    pub(super) known: &'a KnownSecrets,
}

/// Builds the block of one server.
struct BlockWriter<'a> {
    from: BlockSource<'a>,
    names: &'a mut ImportNames,
    block: UpstreamBlock,
    /// True if a text converted since the last command contains a variable, which needs `expand`.
    expands: bool,
}

impl UpstreamBlock {
    pub(super) fn new(wanted: &str, from: BlockSource<'_>, names: &mut ImportNames) -> Self {
        let name = names.upstream(wanted);
        let block = Self { name, ..Self::default() };
        let mut writer = BlockWriter { from, names, block, expands: false };
        writer.write();
        writer.block
    }
}

impl BlockWriter<'_> {
    /// Writes the whole table.
    fn write(&mut self) {
        let BlockSource { parts, stated, .. } = self.from;
        self.block.text = format!("[upstreams.{}]\n", self.block.name);
        self.block.off.clone_from(&stated.off);
        self.block.notes.extend(parts.notes.iter().cloned());
        if self.block.off.is_some() {
            self.line("enabled", "false");
        }
        match &parts.url {
            Some(url) => {
                self.block.may_want_login =
                    url.starts_with("https://") && parts.headers.is_empty() && secrets::in_text(url).is_empty();
                self.remote(url);
            }
            None if parts.words.is_empty() => self.block.reasons.push("it has neither `command` nor `url`".to_owned()),
            None => self.local(),
        }
        if !parts.roots.is_empty() {
            self.line("roots", &array(&parts.roots));
        }
        if let Some(era) = parts.era {
            self.line("era", &quoted(era));
        }
        self.tools();
        self.time("call-timeout", stated.call_timeout);
        self.time("start-timeout", stated.start_timeout);
        self.unasked();
    }

    /// Writes the keys of a server that is a program.
    fn local(&mut self) {
        let parts = self.from.parts;
        let spans = secrets::in_words(&parts.words);
        let words = parts.words.iter().zip(spans).enumerate();
        let words: Vec<String> =
            words.map(|(at, (word, spans))| self.text(word, spans, &format!("argument {at}"))).collect();
        if std::mem::take(&mut self.expands) {
            self.line("command", &array(&words));
            self.line("expand", "true");
        } else {
            // Without any variable, `expand` stays off, and `${` in a command is plain text.
            let words: Vec<String> = words.iter().map(|word| word.replace("$${", "${")).collect();
            self.line("command", &array(&words));
        }
        let env = self.values(&parts.env, false);
        if !env.is_empty() {
            self.line("env", &inline(&env));
        }
        let is_relative = |word: &String| word.starts_with("./") || word.starts_with("../");
        let project = self.from.place.folder.filter(|_| parts.words.iter().any(is_relative));
        let project = project.map(|folder| folder.display().to_string());
        if let Some(cwd) = parts.cwd.as_ref().or(project.as_ref()) {
            let cwd = self.text(cwd, secrets::in_text(cwd), "cwd");
            let below_home = cwd.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let cwd = match (below_home, self.from.place.home, self.from.place.folder) {
                (Some(rest), Some(home), _) => format!("{home}{rest}"),
                (None, _, Some(folder)) => folder.join(&cwd).display().to_string(),
                (Some(_), None, _) | (None, _, None) => cwd,
            };
            self.line("cwd", &quoted(&cwd));
        }
    }

    /// Writes the keys of a server behind a URL.
    fn remote(&mut self, url: &str) {
        let url = self.text(url, secrets::in_text(url), "url");
        self.line("url", &quoted(&url));
        match self.from.parts.transport.as_deref() {
            Some("sse") => self.line("transport", &quoted("sse")),
            Some("ws" | "websocket") => self.block.reasons.push("headend does not speak WebSocket".to_owned()),
            _ => {}
        }
        let headers = self.values(&self.from.parts.headers, true);
        if !headers.is_empty() {
            self.line("headers", &inline(&headers));
        }
    }

    /// Adds a line with one key and its TOML value to the table.
    fn line(&mut self, key: &str, value: &str) {
        self.block.text.push_str(&format!("{key} = {value}\n"));
    }

    /// Writes the lists of tools that the host offers and hides.
    fn tools(&mut self) {
        let HostServerSettings { include, exclude, .. } = self.from.stated;
        let mut lists = Vec::new();
        let mut deny: Vec<String> = exclude.iter().map(|name| wide(name)).collect();
        if let Some(include) = include {
            let (good, bad): (Vec<&String>, Vec<&String>) = include.iter().partition(|name| is_name(name));
            if !bad.is_empty() {
                self.block.notes.push(
                    "Tools with other characters than letters, digits, `_`, `-`, `.` and `/` are left out.".to_owned(),
                );
            }
            if good.is_empty() {
                deny.insert(0, "*".to_owned());
            } else {
                lists.push(("allow".to_owned(), array(&good.into_iter().cloned().collect::<Vec<_>>())));
            }
        }
        if !deny.is_empty() {
            lists.push(("deny".to_owned(), array(&deny)));
        }
        if !lists.is_empty() {
            self.line("tools", &inline(&lists));
        }
    }

    /// Writes a time-out, or a remark if the configuration does not allow it.
    fn time(&mut self, key: &str, time: Option<Duration>) {
        let Some(time) = time else { return };
        if (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time) {
            let millis = time.as_millis();
            let text = if millis % 1000 == 0 { format!("{}s", millis / 1000) } else { format!("{millis}ms") };
            self.line(key, &quoted(&text));
        } else {
            self.block.notes.push(format!("Not carried over: a time-out that {key} cannot have."));
        }
    }

    /// Collects the patterns of tools that run without approval in the host. Adds a remark about
    /// tools whose names no rule can have.
    fn unasked(&mut self) {
        let stated = self.from.stated;
        let all = stated.unasked_all;
        (self.block.says, self.block.unasked_all) = (stated.says, all);
        if all {
            return;
        }
        let (good, bad): (Vec<&String>, Vec<&String>) =
            stated.unasked.iter().partition(|name| is_name(name.strip_suffix('*').unwrap_or(name)));
        if !bad.is_empty() {
            self.block.notes.push(
                "Tools that the host lets run, with names that no rule here can have, need a question.".to_owned(),
            );
        }
        for name in good {
            let pattern = format!("{}__{name}", self.block.name);
            if !self.block.unasked.contains(&pattern) {
                self.block.unasked.push(pattern);
            }
        }
    }

    /// Converts a text of the host for a key that only takes plain text. Each secret becomes a
    /// reference to a variable, which is listed among those that the user has to set; the host's
    /// own variables are converted as by [`Self::piece`]. `what` describes the text to the user.
    fn text(&mut self, raw: &str, spans: Vec<SecretSpan>, what: &str) -> String {
        let mut cuts: Vec<(std::ops::Range<usize>, TextCut)> = Vec::new();
        let found = variables(raw, &self.from.place);
        for span in self.from.known.and(raw, spans) {
            // If a span contains nothing but variables, it is a reference already.
            let inside = found.iter().filter(|(range, _)| range.start < span.range.end && span.range.start < range.end);
            let mut left = raw.get(span.range.clone()).unwrap_or_default().to_owned();
            let mut whole: Option<std::ops::Range<usize>> = None;
            for (range, _) in inside {
                left = left.replacen(raw.get(range.clone()).unwrap_or_default(), "", 1);
                let before = whole.unwrap_or_else(|| span.range.clone());
                // The default of a variable can be a secret too; then the whole variable is
                // replaced.
                whole = Some(before.start.min(range.start)..before.end.max(range.end));
            }
            let is_scheme = ["", "bearer", "basic", "token"].contains(&left.trim().to_ascii_lowercase().as_str());
            if whole.is_none() || !is_scheme {
                cuts.push((whole.unwrap_or(span.range), TextCut::Secret(span.name)));
            }
        }
        let free: Vec<_> = found
            .into_iter()
            .filter(|(range, _)| cuts.iter().all(|(other, _)| range.end <= other.start || other.end <= range.start))
            .collect();
        cuts.extend(free.into_iter().map(|(range, piece)| (range, TextCut::Piece(piece))));
        cuts.sort_by_key(|(range, _)| range.start);
        let mut out = String::new();
        let mut at = 0;
        for (range, cut) in cuts {
            // A variable may reach beyond the span before it, and is replaced with it.
            out.push_str(&literal(raw.get(at..range.start).unwrap_or_default()));
            at = at.max(range.end);
            match cut {
                TextCut::Piece(piece) => out.push_str(&self.piece(&piece)),
                TextCut::Secret(name) => {
                    let about = if name.is_empty() { what.to_owned() } else { format!("{name} in {what}") };
                    let name = if name.is_empty() { what } else { name.as_str() };
                    let wanted = format!("{}_{name}", self.block.name);
                    let secret = raw.get(range).unwrap_or_default();
                    let variable = self.variable(&wanted, secret, &format!("{about} of {}", self.block.name));
                    out.push_str(&format!("${{{variable}}}"));
                    self.expands = true;
                }
            }
        }
        out.push_str(&literal(raw.get(at..).unwrap_or_default()));
        out
    }

    /// Converts one piece of a host's text to headend's notation. A variable or an input is listed
    /// among those that the user has to set, unless it has a default; a file or an unknown variable
    /// adds a reason to refuse the table.
    fn piece(&mut self, piece: &TemplatePiece) -> String {
        let unknown = |inside: &str| format!("`${{{inside}}}` is not replaced here; write the value in its place");
        match piece {
            TemplatePiece::Text(text) => literal(text),
            TemplatePiece::Variable { name, default } => {
                self.expands = true;
                if default.is_none() {
                    self.export(name, &format!("for {}", self.block.name));
                }
                let default = default.as_ref().map(|default| format!(":-{default}")).unwrap_or_default();
                format!("${{{name}{default}}}")
            }
            TemplatePiece::Input(id) => {
                self.expands = true;
                let variable = self.input(id, &format!("for {}", self.block.name));
                format!("${{{variable}}}")
            }
            TemplatePiece::File(path) => {
                self.block.reasons.push(format!("the content of {path} is not read here; write it in its place"));
                format!("{{file:{path}}}")
            }
            TemplatePiece::Unknown(inside) => {
                self.block.reasons.push(unknown(inside));
                format!("${{{inside}}}")
            }
        }
    }

    /// Converts environment variables or headers to pairs of name and TOML value. Secrets become
    /// references to variables, which are listed among those that the user has to set.
    fn values(&mut self, given: &[(String, GivenValue)], headers: bool) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (name, given) in given {
            let what = if headers { "header" } else { "environment" };
            let about = format!("{name}, {what} of {}", self.block.name);
            let value = match given {
                GivenValue::Variable(variable, prefix) => {
                    self.export(variable, &about);
                    reference("env", variable, prefix)
                }
                GivenValue::Text(text) => {
                    let secret =
                        if headers { secrets::is_secret_header(name, text) } else { secrets::is_secret(name, text) };
                    let secret = secret || !self.from.known.spans(text).is_empty();
                    // Header names are the same for all upstreams, so the variable contains the
                    // upstream's name too.
                    let variable = if headers { format!("{}_{name}", self.block.name) } else { name.clone() };
                    self.value(&SecretCandidate { name, text, variable, about }, secret)
                }
            };
            pairs.push((name.clone(), value));
        }
        pairs
    }

    /// Converts a value to TOML: plain text as it is, and a secret, a variable, an input or a file
    /// as a reference. Variables are listed among those that the user has to set.
    fn value(&mut self, value: &SecretCandidate<'_>, secret: bool) -> String {
        let cut = pieces(value.text, &self.from.place);
        let (prefix, last) = match cut.as_slice() {
            [] => return quoted(""),
            [TemplatePiece::Text(text)] if !secret => return quoted(&literal(text)),
            [TemplatePiece::Text(text)] => return self.whole(value, text),
            [one] => ("", one),
            [TemplatePiece::Text(prefix), last] if !self.hides(prefix) => (prefix.as_str(), last),
            _ => return self.whole(value, value.text),
        };
        match last {
            TemplatePiece::Variable { default: Some(default), .. } if !secret => {
                self.block.notes.push(format!("{} was {}; its default is written.", value.name, value.text));
                quoted(&literal(&format!("{prefix}{default}")))
            }
            TemplatePiece::Variable { name, .. } => {
                self.export(name, &value.about);
                reference("env", name, prefix)
            }
            TemplatePiece::Input(id) => {
                let variable = self.input(id, &value.about);
                reference("env", &variable, prefix)
            }
            TemplatePiece::File(path) => match self.file(path) {
                Some(path) => reference("file", &path, prefix),
                None => self.whole(value, value.text),
            },
            TemplatePiece::Text(_) | TemplatePiece::Unknown(_) => self.whole(value, value.text),
        }
    }

    /// Returns true if the text before a variable is secret, and not just the name of a scheme.
    fn hides(&self, prefix: &str) -> bool {
        let scheme = ["bearer", "basic", "token"].contains(&prefix.trim().to_ascii_lowercase().as_str());
        !scheme && (!secrets::in_text(prefix).is_empty() || !self.from.known.spans(prefix).is_empty())
    }

    /// Returns the absolute path of a file that the host names; `None` if the folder that it is
    /// relative to is unknown.
    fn file(&self, path: &str) -> Option<String> {
        let place = self.from.place;
        if let Some(below) = path.strip_prefix("~/") {
            return place.home.map(|home| format!("{home}/{below}"));
        }
        let absolute = place.folder.map_or_else(|| path.into(), |folder| folder.join(path));
        absolute.is_absolute().then(|| absolute.display().to_string())
    }

    /// Returns the TOML of a reference to an environment variable that stands for the whole secret,
    /// and lists the variable among those that the user has to set. A scheme such as `Bearer` stays
    /// in the reference as a prefix.
    fn whole(&mut self, value: &SecretCandidate<'_>, secret: &str) -> String {
        let schemes = ["Bearer ", "Basic ", "Token ", "token "];
        let prefix = schemes.into_iter().find(|scheme| secret.starts_with(scheme)).unwrap_or_default();
        let secret = secret.strip_prefix(prefix).unwrap_or(secret);
        let variable = self.variable(&value.variable, secret, &value.about);
        reference("env", &variable, prefix)
    }

    /// Returns the name of the environment variable that stands for an input (`${input:id}`) of the
    /// host's file, and lists it among those that the user has to set. Its description is the
    /// host's own text for the input, with `about` behind it, or only `about`.
    fn input(&mut self, id: &str, about: &str) -> String {
        let asked = self.from.inputs.iter().find(|(other, _)| other == id);
        let about = asked.map_or_else(|| about.to_owned(), |(_, description)| format!("{description} ({about})"));
        self.variable(id, &format!("${{input:{id}}}"), &about)
    }

    /// Returns the name of the environment variable that stands for a secret, made from `wanted`,
    /// and lists it among those that the user has to set.
    fn variable(&mut self, wanted: &str, secret: &str, about: &str) -> String {
        let name = self.names.variable(&self.block.name, wanted, secret);
        self.export(&name, about);
        name
    }

    /// Lists a variable among those that the user has to set, once.
    fn export(&mut self, name: &str, about: &str) {
        if !self.block.exports.iter().any(|(other, _)| other == name) {
            self.block.exports.push((name.to_owned(), about.to_owned()));
        }
    }
}

/// A part of a text that is replaced.
enum TextCut {
    Piece(TemplatePiece),
    /// A secret, with the name of its option, parameter or header.
    Secret(String),
}

/// An environment variable or header of a host's entry.
struct SecretCandidate<'a> {
    name: &'a str,
    text: &'a str,
    /// Name of the variable that holds the value if it is secret.
    variable: String,
    /// Description for the user.
    about: String,
}

/// Escapes a text so that headend replaces nothing in it.
fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// Builds the TOML of a reference to a variable or file.
fn reference(kind: &str, name: &str, prefix: &str) -> String {
    let mut pairs = vec![(key(kind), quoted(name))];
    if !prefix.is_empty() {
        pairs.push(("prefix".to_owned(), quoted(prefix)));
    }
    inline(&pairs)
}

/// Returns true if a tool's name, used as a pattern, matches only itself.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'))
}

/// Builds a pattern for a tool that is off. Unusual characters become `?`: the pattern is rather
/// too wide than too narrow.
fn wide(name: &str) -> String {
    let good = |c: char| c == '*' || is_name(c.encode_utf8(&mut [0; 4]));
    let wide: String = name.chars().map(|c| if good(c) { c } else { '?' }).collect();
    if wide.is_empty() { "*".to_owned() } else { wide }
}
