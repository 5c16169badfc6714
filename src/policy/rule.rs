//! Matchers: globs over upstreams, canonical names and callers.
//!
//! A glob's `*` matches any text, `/` and nothing included; `?`, `[a-z]`, `{a,b}` and `\` mean what
//! they mean in a shell. Case matters.

use std::collections::HashSet;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};

use super::uri::{Reading, read};
use super::{DEFAULT_RULE, DOUBT_RULE, Effect, Kind, PolicyProblem};

/// Longest id of a rule or limit, in bytes; ids are written to each line of the audit log.
const MAX_ID_LENGTH: usize = 64;

/// A rule as the operator wrote it.
///
/// `tools`, `prompts` and `resources` are globs over canonical names, `upstreams` and `callers`
/// over names. An empty list is one that was not written. Without tools, prompts and resources the
/// rule is about everything of its upstreams; without upstreams too it is about everything.
#[derive(Clone, Debug)]
pub(crate) struct RuleSpec {
    pub(crate) id: String,
    pub(crate) effect: Effect,
    pub(crate) upstreams: Vec<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) prompts: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) callers: Vec<String>,
}

/// The list that a pattern stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    Upstreams,
    Tools,
    Prompts,
    Resources,
    Callers,
}

impl Field {
    /// The key in the configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Upstreams => "upstreams",
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Callers => "callers",
        }
    }
}

/// A compiled rule.
#[derive(Debug)]
pub(in crate::policy) struct Rule {
    pub(in crate::policy) id: Arc<str>,
    pub(in crate::policy) effect: Effect,
    pub(in crate::policy) target: Target,
}

impl Rule {
    pub(in crate::policy) fn compile(spec: &RuleSpec, index: usize, problems: &mut Problems) -> Self {
        let path = format!("policy.rules[{index}]");
        let mut list = |field, texts| Patterns::compile(&path, field, texts, problems);
        Self {
            id: Arc::from(spec.id.as_str()),
            effect: spec.effect,
            target: Target {
                upstreams: list(Field::Upstreams, &spec.upstreams),
                tools: list(Field::Tools, &spec.tools),
                prompts: list(Field::Prompts, &spec.prompts),
                resources: list(Field::Resources, &spec.resources),
                callers: list(Field::Callers, &spec.callers),
            },
        }
    }
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(in crate::policy) struct Problems(pub(in crate::policy) Vec<PolicyProblem>);

impl Problems {
    pub(in crate::policy) fn add(&mut self, path: String, message: impl Into<String>) {
        self.0.push(PolicyProblem { path, message: message.into() });
    }

    /// Checks the ids of one array of tables.
    pub(in crate::policy) fn check_ids<'s>(&mut self, table: &str, ids: impl Iterator<Item = &'s str>) {
        let mut seen = HashSet::new();
        for (index, id) in ids.enumerate() {
            let message = if id.is_empty() {
                "must not be empty".to_owned()
            } else if MAX_ID_LENGTH < id.len() || !id.chars().all(is_id_character) {
                format!("must be up to {MAX_ID_LENGTH} letters, digits, `-`, `_` or `.`")
            } else if id == DEFAULT_RULE || id == DOUBT_RULE {
                format!("`{id}` is what the audit log says where no rule decided; choose another")
            } else if !seen.insert(id) {
                format!("`{id}` is used more than once")
            } else {
                continue;
            };
            self.add(format!("{table}[{index}].id"), message);
        }
    }
}

fn is_id_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Whether a matcher matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Truth {
    No,
    /// The same text may mean things that the patterns tell apart.
    Unknown,
    Yes,
}

/// An item in the form in which it is matched.
#[derive(Debug)]
pub(in crate::policy) struct Subject<'n> {
    upstream: &'n str,
    canonical: &'n str,
    field: Field,
    reading: Reading,
}

impl<'n> Subject<'n> {
    /// `None` when `canonical` is no name of that kind and upstream.
    pub(in crate::policy) fn new(kind: Kind, upstream: &'n str, canonical: &'n str) -> Option<Self> {
        let rest = canonical.strip_prefix(upstream).filter(|_| !upstream.is_empty())?;
        let name = rest.strip_prefix("__").filter(|name| !name.is_empty());
        let uri = rest.strip_prefix('+').filter(|uri| !uri.is_empty());
        let field = match (kind, name, uri) {
            (Kind::Tool, Some(_), _) => Field::Tools,
            (Kind::Prompt | Kind::Completion, Some(_), _) => Field::Prompts,
            (Kind::Resource | Kind::Completion, None, Some(_)) => Field::Resources,
            (Kind::Tool | Kind::Prompt | Kind::Resource | Kind::Completion, _, _) => return None,
        };
        let reading = match uri.map(read) {
            Some(Reading::Other(other)) => Reading::Other(format!("{upstream}+{other}")),
            Some(reading) => reading,
            None => Reading::Plain,
        };
        Some(Self { upstream, canonical, field, reading })
    }
}

/// What a rule or limit is about.
#[derive(Debug)]
pub(in crate::policy) struct Target {
    pub(in crate::policy) upstreams: Patterns,
    pub(in crate::policy) tools: Patterns,
    pub(in crate::policy) prompts: Patterns,
    pub(in crate::policy) resources: Patterns,
    pub(in crate::policy) callers: Patterns,
}

impl Target {
    /// Whether this is about that item, the caller aside.
    pub(in crate::policy) fn matches(&self, subject: &Subject<'_>) -> Truth {
        if !self.upstreams.is_empty() && !self.upstreams.matches(subject.upstream) {
            return Truth::No;
        }
        if self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty() {
            return Truth::Yes;
        }
        match subject.field {
            Field::Tools => self.tools.truth(subject),
            Field::Prompts => self.prompts.truth(subject),
            Field::Resources => self.resources.truth(subject),
            Field::Upstreams | Field::Callers => Truth::No,
        }
    }

    /// Whether this is about that caller.
    pub(in crate::policy) fn covers(&self, caller: &str) -> bool {
        self.callers.is_empty() || self.callers.matches(caller)
    }

    /// All patterns with the list they stand in.
    pub(in crate::policy) fn patterns(&self) -> impl Iterator<Item = (Field, &Pattern)> {
        let lists = [
            (Field::Upstreams, &self.upstreams),
            (Field::Tools, &self.tools),
            (Field::Prompts, &self.prompts),
            (Field::Resources, &self.resources),
            (Field::Callers, &self.callers),
        ];
        lists.into_iter().flat_map(|(field, list)| list.0.iter().map(move |pattern| (field, pattern)))
    }
}

/// A list of patterns; matches when one of them does.
#[derive(Debug, Default)]
pub(in crate::policy) struct Patterns(Box<[Pattern]>);

impl Patterns {
    /// Compiles a list; patterns with problems are listed and left out.
    pub(in crate::policy) fn compile(
        path: &str,
        field: Field,
        texts: &[String],
        problems: &mut Problems,
    ) -> Self {
        let mut patterns = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            match Pattern::compile(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(message) => {
                    problems.add(format!("{path}.{}[{index}]", field.as_str()), message);
                }
            }
        }
        Self(patterns.into_boxed_slice())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(text))
    }

    fn truth(&self, subject: &Subject<'_>) -> Truth {
        match &subject.reading {
            Reading::Plain if self.matches(subject.canonical) => Truth::Yes,
            Reading::Plain => Truth::No,
            Reading::Other(other) => match (self.matches(subject.canonical), self.matches(other)) {
                (true, true) => Truth::Yes,
                (false, false) => Truth::No,
                (true, false) | (false, true) => Truth::Unknown,
            },
            Reading::Unclear if self.0.iter().any(|p| p.covers_all_of(subject.upstream)) => Truth::Yes,
            Reading::Unclear if self.0.iter().any(|p| p.may_touch(subject.upstream)) => Truth::Unknown,
            Reading::Unclear => Truth::No,
        }
    }
}

/// One compiled glob. The usual forms cost a comparison, the rest a regular expression.
#[derive(Debug)]
pub(in crate::policy) struct Pattern {
    text: Box<str>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// `*`.
    Any,
    /// No special characters: the text itself.
    Literal,
    /// Special only in one `*` at the end: what stands before it.
    Prefix(Box<str>),
    Glob(GlobMatcher),
}

impl Pattern {
    /// Compiles a glob, or says what is wrong with it.
    pub(in crate::policy) fn compile(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty; write \"*\" for everything".to_owned());
        }
        let form = match text.strip_suffix('*') {
            Some("") => Form::Any,
            Some(prefix) if is_literal(prefix) => Form::Prefix(Box::from(prefix)),
            None if is_literal(text) => Form::Literal,
            Some(_) | None => {
                let glob = GlobBuilder::new(text).literal_separator(false).backslash_escape(true);
                let glob = glob.build().map_err(|e| format!("`{text}` is not a glob: {}", e.kind()));
                Form::Glob(glob?.compile_matcher())
            }
        };
        Ok(Self { text: Box::from(text), form })
    }

    /// The pattern as written.
    pub(in crate::policy) fn text(&self) -> &str {
        &self.text
    }

    pub(in crate::policy) fn matches(&self, text: &str) -> bool {
        match &self.form {
            Form::Any => true,
            Form::Literal => *text == *self.text,
            Form::Prefix(prefix) => text.starts_with(&**prefix),
            Form::Glob(glob) => glob.is_match(text),
        }
    }

    /// Whether this matches each resource of the upstream, by its form.
    fn covers_all_of(&self, upstream: &str) -> bool {
        match &self.form {
            Form::Any => true,
            Form::Prefix(prefix) => is_prefix_of_uris(prefix, upstream),
            Form::Literal | Form::Glob(_) => false,
        }
    }

    /// Whether this can match any resource of the upstream, judged by what stands before the first
    /// special character.
    fn may_touch(&self, upstream: &str) -> bool {
        let head = self.text.split(is_special).next().unwrap_or_default();
        let whole = head.len() == self.text.len();
        let inside = head.strip_prefix(upstream).is_some_and(|rest| rest.starts_with('+'));
        inside || (!whole && is_prefix_of_uris(head, upstream))
    }
}

/// Whether `text` is a beginning of `<upstream>+`.
fn is_prefix_of_uris(text: &str, upstream: &str) -> bool {
    text.strip_suffix('+').map_or_else(|| upstream.starts_with(text), |name| name == upstream)
}

fn is_literal(text: &str) -> bool {
    !text.contains(is_special)
}

const fn is_special(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\')
}

#[cfg(test)]
mod tests;
