//! Rules as the operator writes them.

use crate::mcp::definition::annotations::Hints;
use crate::policy::effect::RuleEffect;
use crate::policy::evidence::ApprovalEvidence;
use crate::policy::kind::ActionKind;
use crate::policy::rules::arguments::ArgumentSpec;

/// Begins the id that stands for a rule if a scope is lacking. No rule's id has a `:`.
const SCOPE_PREFIX: &str = "scope:";

/// A rule as the operator wrote it.
///
/// `tools`, `prompts` and `resources` are globs over canonical names, `upstreams`, `callers`,
/// `groups` and `profiles` over names. An empty list is one that was not written. Without tools,
/// prompts and resources the rule is about everything of its upstreams; without upstreams too it is
/// about everything.
///
/// Without kinds a rule is about tools, prompts and resources and the actions that follow them:
/// completions, subscriptions and tasks. It is about servers' questions and launches only if
/// `kinds` names these.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleSpec {
    pub id: String,
    pub effect: RuleEffect,
    pub upstreams: Vec<String>,
    pub tools: Vec<String>,
    pub prompts: Vec<String>,
    pub resources: Vec<String>,
    pub callers: Vec<String>,
    /// Groups of callers; one match suffices. If a credential does not state its groups, the rule
    /// applies unless it allows.
    pub groups: Vec<String>,
    /// Profiles of clients. `*` also matches clients without a profile.
    pub profiles: Vec<String>,
    pub kinds: Vec<ActionKind>,
    /// Effective annotations that a tool must have. Only tools have any.
    pub annotations: Hints,
    /// Hints that the server must state in the tool's definition. A hint that is not stated is
    /// unknown.
    pub claims: Hints,
    /// Conditions that must all hold.
    pub arguments: Vec<ArgumentSpec>,
    /// Exceptions: the rule does not apply if all of these hold.
    pub unless: Vec<ArgumentSpec>,
    /// For rules that ask: the least evidence that suffices, for any annotations of the tool.
    pub min_evidence: Option<ApprovalEvidence>,
}

impl RuleSpec {
    /// Makes a rule about everything.
    pub fn new(id: &str, effect: RuleEffect) -> Self {
        Self {
            id: id.to_owned(),
            effect,
            upstreams: Vec::new(),
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            callers: Vec::new(),
            groups: Vec::new(),
            profiles: Vec::new(),
            kinds: Vec::new(),
            annotations: Hints::default(),
            claims: Hints::default(),
            arguments: Vec::new(),
            unless: Vec::new(),
            min_evidence: None,
        }
    }

    /// Whether the rule names tools, prompts or resources.
    pub(in crate::policy) fn names_items(&self) -> bool {
        !(self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty())
    }

    /// Whether the rule has conditions on arguments.
    pub(in crate::policy) fn is_conditional(&self) -> bool {
        !(self.arguments.is_empty() && self.unless.is_empty())
    }
}

/// A scope as the operator wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeSpec {
    pub scope: String,
    /// The items whose use needs the scope, with the matchers of a rule that denies: in doubt the
    /// scope is needed.
    pub items: RuleSpec,
}

impl ScopeSpec {
    /// Returns the id that stands for a rule if the scope is lacking.
    pub fn id(scope: &str) -> String {
        format!("{SCOPE_PREFIX}{scope}")
    }

    /// Returns the position of a scope's table in the configuration.
    pub fn path(scope: &str) -> String {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let quote = if scope.chars().all(is_bare) { "" } else { "\"" };
        format!("server.auth.scopes.{quote}{scope}{quote}")
    }

    /// Whether no matcher is written, so that the scope maps to nothing.
    pub fn names_nothing(&self) -> bool {
        let all = RuleSpec::new(&self.items.id, self.items.effect);
        self.items == all
    }
}

/// The list of a rule or limit that a pattern belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum PatternField {
    Upstreams,
    Tools,
    Prompts,
    Resources,
    Callers,
    Groups,
    Profiles,
}
