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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub(crate) enum Field {
    Upstreams,
    Tools,
    Prompts,
    Resources,
    Callers,
    Profiles,
}
