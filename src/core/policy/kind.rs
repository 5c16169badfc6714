//! The kinds of actions that a policy decides.

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::effect::RuleEffect;
use crate::mcp::method::{ItemList, Method};

/// The kind of an action: of the item, or of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum ActionKind {
    Tool,
    Prompt,
    /// A resource or a resource template.
    Resource,
    /// A completion of an argument of a prompt or template, with the canonical name of that prompt
    /// or template. Rules on the prompt or template apply to it.
    Completion,
    /// A subscription to updates of a resource, with the name of the resource. Rules on the
    /// resource apply to it.
    Subscription,
    /// A request about a task, with the name of the tool whose call became the task. Rules on the
    /// tool apply to it, except rules on arguments: the call was decided with them.
    Task,
    /// A server's request for a completion by the client's model, with the name of the upstream,
    /// like the next two.
    Sampling,
    /// A server's request for input from the user.
    Elicitation,
    /// The start of an upstream's process, or the connection to it.
    Launch,
}

impl ActionKind {
    /// Whether such an action can wait for an approval.
    pub const fn can_ask(self) -> bool {
        matches!(self, Self::Tool | Self::Prompt | Self::Resource)
    }

    /// Returns the effect if no rule matches.
    pub(super) const fn otherwise(self, default: RuleEffect) -> RuleEffect {
        match (self, default) {
            (Self::Tool | Self::Prompt | Self::Resource, default) => default,
            (Self::Completion | Self::Subscription | Self::Task, RuleEffect::Deny) => RuleEffect::Deny,
            (Self::Completion | Self::Subscription | Self::Task, RuleEffect::Allow | RuleEffect::Ask)
            | (Self::Sampling | Self::Elicitation | Self::Launch, _) => RuleEffect::Allow,
        }
    }

    /// Returns the kind of action that a request with this method is.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only methods that name an item come here")]
    pub fn of(method: Method) -> Self {
        match method {
            Method::ToolsCall => Self::Tool,
            Method::PromptsGet => Self::Prompt,
            Method::Complete => Self::Completion,
            Method::ResourcesSubscribe => Self::Subscription,
            _ => Self::Resource,
        }
    }
}

/// Returns the kind of action that calls of a list's items are.
impl From<ItemList> for ActionKind {
    fn from(list: ItemList) -> Self {
        match list {
            ItemList::Tools => Self::Tool,
            ItemList::Prompts => Self::Prompt,
            ItemList::Resources | ItemList::Templates => Self::Resource,
        }
    }
}
