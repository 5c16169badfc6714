//! A rule as the operator wrote it.

use crate::mcp::annotations::Hints;
use crate::policy::arguments::ArgumentSpec;
use crate::policy::effect::Effect;
use crate::policy::evidence::Evidence;
use crate::policy::kind::Kind;

/// A rule as the operator wrote it.
///
/// `tools`, `prompts` and `resources` are globs over canonical names, `upstreams`, `callers` and
/// `profiles` over names. An empty list is one that was not written. Without tools, prompts and resources the
/// rule is about everything of its upstreams; without upstreams too it is about everything.
///
/// Without kinds a rule is about tools, prompts and resources and what goes with them: completions, subscriptions and tasks.
/// What servers ask for, and their launch, it is about only where `kinds` says so.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleSpec {
    pub id: String,
    pub effect: Effect,
    pub upstreams: Vec<String>,
    pub tools: Vec<String>,
    pub prompts: Vec<String>,
    pub resources: Vec<String>,
    pub callers: Vec<String>,
    /// `*` is any view, that without a profile too.
    pub profiles: Vec<String>,
    pub kinds: Vec<Kind>,
    /// Effective annotations that a tool must have. Only tools have any.
    pub annotations: Hints,
    /// Hints that the definition of a tool must have in its server's own words. What it does not say is unknown.
    pub claims: Hints,
    /// All must hold.
    pub arguments: Vec<ArgumentSpec>,
    /// The rule does not apply where all of these hold.
    pub unless: Vec<ArgumentSpec>,
    /// For rules that ask: the least evidence that will do, whatever the tool's annotations say.
    pub min_evidence: Option<Evidence>,
}

impl RuleSpec {
    /// A rule about everything, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(id: &str, effect: Effect) -> Self {
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
            claims: Hints::default(),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Field {
    Upstreams,
    Tools,
    Prompts,
    Resources,
    Callers,
    Profiles,
}
