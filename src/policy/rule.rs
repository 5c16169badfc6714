//! Rules: what they are about, as globs over upstreams, canonical names, callers and profiles, kinds and annotations, and the
//! conditions on arguments.

use std::collections::HashSet;
use std::sync::Arc;

use super::arguments::{ArgumentSpec, Conditions};
use super::uri::{Reading, read, respell};
use super::{AGAIN_RULE, Annotations, DEFAULT_RULE, DOUBT_RULE, Effect, Evidence, Hints, Kind, PolicyProblem};

mod kinds;
mod pattern;

pub(in crate::policy) use self::kinds::Kinds;
pub(in crate::policy) use self::pattern::{Glob, Pattern, is_special};

/// Longest id of a rule or limit, in bytes; ids are written to each line of the audit log.
const MAX_ID_LENGTH: usize = 64;

/// A rule as the operator wrote it.
///
/// `tools`, `prompts` and `resources` are globs over canonical names, `upstreams`, `callers` and
/// `profiles` over names. An empty list is one that was not written. Without tools, prompts and resources the
/// rule is about everything of its upstreams; without upstreams too it is about everything.
///
/// Without kinds a rule is about tools, prompts and resources and what goes with them: completions, subscriptions and tasks.
/// What servers ask for, and their launch, it is about only where `kinds` says so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RuleSpec {
    pub(crate) id: String,
    pub(crate) effect: Effect,
    pub(crate) upstreams: Vec<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) prompts: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) callers: Vec<String>,
    /// `*` is any view, that without a profile too.
    pub(crate) profiles: Vec<String>,
    pub(crate) kinds: Vec<Kind>,
    /// Effective annotations that a tool must have. Only tools have any.
    pub(crate) annotations: Hints,
    /// All must hold.
    pub(crate) arguments: Vec<ArgumentSpec>,
    /// The rule does not apply where all of these hold.
    pub(crate) unless: Vec<ArgumentSpec>,
    /// For rules that ask: the least evidence that will do, whatever the tool's annotations say.
    pub(crate) min_evidence: Option<Evidence>,
}

impl RuleSpec {
    #[cfg(test)]
    /// A rule about everything.
    pub(crate) fn new(id: &str, effect: Effect) -> Self {
        Self {
            id: id.to_owned(),
            effect,
            upstreams: Vec::new(),
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            callers: Vec::new(),
            profiles: Vec::new(),
            kinds: Vec::new(),
            annotations: Hints::default(),
            arguments: Vec::new(),
            unless: Vec::new(),
            min_evidence: None,
        }
    }

    /// Whether it names tools, prompts or resources.
    pub(in crate::policy) fn names_items(&self) -> bool {
        !(self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty())
    }

    /// Whether it looks at arguments.
    pub(in crate::policy) fn is_conditional(&self) -> bool {
        !(self.arguments.is_empty() && self.unless.is_empty())
    }
}

/// The list that a pattern stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    Upstreams,
    Tools,
    Prompts,
    Resources,
    Callers,
    Profiles,
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
            Self::Profiles => "profiles",
        }
    }
}

/// A compiled rule.
#[derive(Debug)]
pub(in crate::policy) struct Rule {
    pub(in crate::policy) id: Arc<str>,
    pub(in crate::policy) effect: Effect,
    pub(in crate::policy) target: Target,
    pub(in crate::policy) profiles: Patterns,
    pub(in crate::policy) kinds: Kinds,
    pub(in crate::policy) annotations: Hints,
    pub(in crate::policy) conditions: Option<Conditions>,
    pub(in crate::policy) min_evidence: Option<Evidence>,
}

impl Rule {
    pub(in crate::policy) fn compile(spec: &RuleSpec, index: usize, problems: &mut Problems) -> Self {
        let path = format!("policy.rules[{index}]");
        let mut list = |field, texts| Patterns::compile(&path, field, texts, problems);
        let target = Target {
            upstreams: list(Field::Upstreams, &spec.upstreams),
            tools: list(Field::Tools, &spec.tools),
            prompts: list(Field::Prompts, &spec.prompts),
            resources: list(Field::Resources, &spec.resources),
            callers: list(Field::Callers, &spec.callers),
        };
        let profiles = list(Field::Profiles, &spec.profiles);
        Self {
            id: Arc::from(spec.id.as_str()),
            effect: spec.effect,
            target,
            profiles,
            kinds: Kinds::of(spec),
            annotations: spec.annotations,
            conditions: Conditions::compile(&path, spec.effect, &spec.arguments, &spec.unless, problems),
            min_evidence: spec.min_evidence,
        }
    }

    /// Whether this is about that item, caller, profile, annotations and arguments aside.
    pub(in crate::policy) fn matches(&self, subject: &Subject<'_>) -> Truth {
        if self.kinds.has(subject.kind, subject.field) { self.target.matches(subject) } else { Truth::No }
    }

    /// Whether this is about that caller, in that view, and a tool with these annotations.
    pub(in crate::policy) fn covers(&self, caller: &str, profile: &str, annotations: &Annotations) -> bool {
        let Hints { read_only, destructive, idempotent, open_world } = self.annotations;
        let agrees = |wanted: Option<bool>, value: bool| wanted.is_none_or(|wanted| wanted == value);
        self.target.covers(caller)
            && (self.profiles.is_empty() || self.profiles.matches(profile))
            && agrees(read_only, annotations.read_only)
            && agrees(destructive, annotations.destructive)
            && agrees(idempotent, annotations.idempotent)
            && agrees(open_world, annotations.open_world)
    }

    /// All patterns with the list they stand in.
    pub(in crate::policy) fn patterns(&self) -> impl Iterator<Item = (Field, &Pattern)> {
        self.target.patterns().chain(self.profiles.0.iter().map(|pattern| (Field::Profiles, pattern)))
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
            } else if [DEFAULT_RULE, DOUBT_RULE, AGAIN_RULE].contains(&id) {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::policy) enum Truth {
    No,
    /// The same text may mean things that the matchers tell apart.
    Unknown,
    Yes,
}

impl Truth {
    pub(in crate::policy) const fn not(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
            Self::Yes => Self::No,
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::Yes } else { Self::No }
    }
}

/// An item in the form in which it is matched.
#[derive(Debug)]
pub(in crate::policy) struct Subject<'n> {
    upstream: &'n str,
    canonical: &'n str,
    kind: Kind,
    /// `None` for what is about a whole upstream.
    field: Option<Field>,
    reading: Reading,
}

impl<'n> Subject<'n> {
    /// `None` when `canonical` is no name of that kind and upstream.
    pub(in crate::policy) fn new(kind: Kind, upstream: &'n str, canonical: &'n str) -> Option<Self> {
        let rest = canonical.strip_prefix(upstream).filter(|_| !upstream.is_empty())?;
        let name = rest.strip_prefix("__").filter(|name| !name.is_empty());
        let uri = rest.strip_prefix('+').filter(|uri| !uri.is_empty());
        let field = match (kind, name, uri) {
            (Kind::Tool | Kind::Task, Some(_), _) => Some(Field::Tools),
            (Kind::Prompt | Kind::Completion, Some(_), _) => Some(Field::Prompts),
            (Kind::Resource | Kind::Subscription | Kind::Completion, None, Some(_)) => Some(Field::Resources),
            (Kind::Sampling | Kind::Elicitation | Kind::Launch, None, None) if rest.is_empty() => None,
            (_, _, _) => return None,
        };
        let reading = match uri.map(read) {
            Some(Reading::Other(other)) => Reading::Other(format!("{upstream}+{other}")),
            Some(reading) => reading,
            None => Reading::Plain,
        };
        Some(Self { upstream, canonical, kind, field, reading })
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
            Some(Field::Tools) => self.tools.truth(subject),
            Some(Field::Prompts) => self.prompts.truth(subject),
            Some(Field::Resources) => self.resources.truth(subject),
            Some(Field::Upstreams | Field::Callers | Field::Profiles) | None => Truth::No,
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
    pub(in crate::policy) fn compile(path: &str, field: Field, texts: &[String], problems: &mut Problems) -> Self {
        let mut patterns = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let also = if field == Field::Resources { respell(text) } else { None };
            match Pattern::compile(text, also.as_deref()) {
                Ok(pattern) => patterns.push(pattern),
                Err(message) => {
                    problems.add(format!("{path}.{}[{index}]", field.as_str()), message);
                }
            }
        }
        Self(patterns.into_boxed_slice())
    }

    pub(in crate::policy) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::policy) fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(text))
    }

    fn truth(&self, subject: &Subject<'_>) -> Truth {
        let Subject { upstream, canonical, reading, .. } = subject;
        let any = |test: &dyn Fn(&Pattern) -> bool| self.0.iter().any(test);
        let (sure, possible) = match reading {
            // Who wrote out this very text meant it, whatever the server makes of it.
            Reading::Other(_) | Reading::Unclear if any(&|p| *p.text() == **canonical) => (true, true),
            Reading::Plain => (self.matches(canonical), false),
            Reading::Other(other) => {
                let (this, that) = (self.matches(canonical), any(&|p| p.matches_respelled(other)));
                (this && that, this || that)
            }
            Reading::Unclear => (any(&|p| p.covers_all_of(upstream)), any(&|p| p.may_touch(upstream))),
        };
        match (sure, possible) {
            (true, _) => Truth::Yes,
            (false, true) => Truth::Unknown,
            (false, false) => Truth::No,
        }
    }
}

#[cfg(test)]
mod tests;
