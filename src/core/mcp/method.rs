//! The methods of all revisions, the eras that define them, and the four lists of a server.

use crate::mcp::extension;
use crate::mcp::version::Era;

/// A request method of any revision, or an unknown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Initialize,
    Discover,
    Ping,
    ToolsList,
    ToolsCall,
    PromptsList,
    PromptsGet,
    ResourcesList,
    TemplatesList,
    ResourcesRead,
    ResourcesSubscribe,
    ResourcesUnsubscribe,
    Listen,
    Complete,
    SetLevel,
    TasksGet,
    TasksResult,
    TasksList,
    TasksCancel,
    TasksUpdate,
    Unknown,
}

/// The name of each method in messages, frequent ones first.
const NAMES: &[(&str, Method)] = &[
    ("tools/call", Method::ToolsCall),
    ("tools/list", Method::ToolsList),
    ("prompts/list", Method::PromptsList),
    ("prompts/get", Method::PromptsGet),
    ("resources/list", Method::ResourcesList),
    ("resources/templates/list", Method::TemplatesList),
    ("resources/read", Method::ResourcesRead),
    ("resources/subscribe", Method::ResourcesSubscribe),
    ("resources/unsubscribe", Method::ResourcesUnsubscribe),
    ("completion/complete", Method::Complete),
    ("initialize", Method::Initialize),
    ("server/discover", Method::Discover),
    ("ping", Method::Ping),
    ("subscriptions/listen", Method::Listen),
    ("logging/setLevel", Method::SetLevel),
    ("tasks/get", Method::TasksGet),
    ("tasks/result", Method::TasksResult),
    ("tasks/list", Method::TasksList),
    ("tasks/cancel", Method::TasksCancel),
    ("tasks/update", Method::TasksUpdate),
];

impl Method {
    pub fn parse(name: &str) -> Self {
        NAMES.iter().find(|(known, _)| *known == name).map_or(Self::Unknown, |(_, method)| *method)
    }

    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(_, method)| *method == self).map_or("unknown", |(name, _)| name)
    }

    /// Reports whether a revision of that era, or an extension of it, defines the method.
    pub fn defined_in(self, era: Era) -> bool {
        let by_revision = match self {
            Self::ToolsList
            | Self::ToolsCall
            | Self::PromptsList
            | Self::PromptsGet
            | Self::ResourcesList
            | Self::TemplatesList
            | Self::ResourcesRead
            | Self::Complete => true,
            Self::Initialize
            | Self::Ping
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe
            | Self::SetLevel
            | Self::TasksGet
            | Self::TasksResult
            | Self::TasksList
            | Self::TasksCancel => era == Era::Legacy,
            Self::Discover | Self::Listen => era == Era::Modern,
            Self::TasksUpdate | Self::Unknown => false,
        };
        by_revision || extension::any_adds(self.as_str(), era)
    }

    /// Returns the member of `params` that the header `Mcp-Name` repeats. Source: MCP 2026-07-28,
    /// streamable-http, "Request headers".
    pub fn name_member(self) -> Option<&'static str> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some("name"),
            Self::ResourcesRead => Some("uri"),
            Self::TasksGet | Self::TasksCancel | Self::TasksUpdate => Some("taskId"),
            Self::Initialize
            | Self::Discover
            | Self::Ping
            | Self::ToolsList
            | Self::PromptsList
            | Self::ResourcesList
            | Self::TemplatesList
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe
            | Self::Listen
            | Self::Complete
            | Self::SetLevel
            | Self::TasksResult
            | Self::TasksList
            | Self::Unknown => None,
        }
    }
}

/// One of the four lists of a server, numbered in the order of [`Self::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ItemList {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ItemList {
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
        }
    }

    /// Returns the member of the result that holds the definitions.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// Returns the member of a definition that identifies it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// Returns the notification for a change of the list; templates share the one of resources.
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// Returns the lists that a notification announces as changed.
    pub(crate) fn of_notification(method: &str) -> &'static [Self] {
        match method {
            "notifications/tools/list_changed" => &[Self::Tools],
            "notifications/prompts/list_changed" => &[Self::Prompts],
            "notifications/resources/list_changed" => &[Self::Resources, Self::Templates],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_reads_back_its_own_name() {
        for (name, method) in NAMES {
            assert_eq!(Method::parse(name), *method);
            assert_eq!(method.as_str(), *name);
        }
        assert_eq!(Method::parse("tools/Call"), Method::Unknown);
    }

    #[test]
    fn what_the_modern_era_removed_is_not_defined_there() {
        for name in
            ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/result"]
        {
            assert!(!Method::parse(name).defined_in(Era::Modern), "{name}");
            assert!(Method::parse(name).defined_in(Era::Legacy), "{name}");
        }
        for (name, in_legacy) in [("tasks/get", true), ("tasks/cancel", true), ("tasks/update", false)] {
            assert!(Method::parse(name).defined_in(Era::Modern), "an extension has {name}");
            assert_eq!(Method::parse(name).defined_in(Era::Legacy), in_legacy, "{name}");
        }
        assert!(!Method::Unknown.defined_in(Era::Modern) && !Method::Unknown.defined_in(Era::Legacy));
    }
}
