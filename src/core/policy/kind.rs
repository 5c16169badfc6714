//! Kinds of actions.

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::effect::Effect;
use crate::mcp::method::{List, Method};

/// Kind of the item or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "lowercase")]
#[serde(into = "&'static str")]
pub enum Kind {
    Tool,
    Prompt,
    /// A resource or a resource template.
    Resource,
    /// Completion of an argument of a prompt or template, named by that prompt's or template's
    /// canonical name. Rules on the prompt or template apply to it.
    Completion,
    /// Word of a resource's changes, named by the resource. Rules on the resource apply to it.
    Subscription,
    /// A request about a task, named by the tool whose call became it. Rules on the tool apply to it, except those that look at
    /// arguments: the call was decided with them.
    Task,
    /// A server that asks for a completion of the client's model; named by the upstream, as are the next two.
    Sampling,
    /// A server that asks the user for input.
    Elicitation,
    /// The start of an upstream's process, or the connection to it.
    Launch,
}

impl Kind {
    /// Whether it can wait for a person's consent.
    pub const fn can_ask(self) -> bool {
        matches!(self, Self::Tool | Self::Prompt | Self::Resource)
    }

    /// The effect if no rule matches.
    pub(super) const fn otherwise(self, default: Effect) -> Effect {
        match (self, default) {
            (Self::Tool | Self::Prompt | Self::Resource, default) => default,
            (Self::Completion | Self::Subscription | Self::Task, Effect::Deny) => Effect::Deny,
            (Self::Completion | Self::Subscription | Self::Task, Effect::Allow | Effect::Ask)
            | (Self::Sampling | Self::Elicitation | Self::Launch, _) => Effect::Allow,
        }
    }

    /// What a method does with the item that it names.
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

/// The kind of calls of an item.
impl From<List> for Kind {
    fn from(list: List) -> Self {
        match list {
            List::Tools => Self::Tool,
            List::Prompts => Self::Prompt,
            List::Resources | List::Templates => Self::Resource,
        }
    }
}
