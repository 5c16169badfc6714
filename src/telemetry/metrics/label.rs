//! What a call is counted by: its method and how it ended. Closed sets, so that no client makes a series.

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodLabel {
    ToolsCall,
    PromptsGet,
    ResourcesRead,
    Complete,
    Other,
}

impl MethodLabel {
    pub(super) const ALL: [Self; 5] = [Self::ToolsCall, Self::PromptsGet, Self::ResourcesRead, Self::Complete, Self::Other];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ToolsCall => "tools/call",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesRead => "resources/read",
            Self::Complete => "completion/complete",
            Self::Other => "other",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeLabel {
    Ok,
    /// A result with `isError`.
    ToolError,
    /// The call goes on when the client has given its input.
    InputRequired,
    /// The call goes on as a task, which the client asks after.
    Task,
    /// A JSON-RPC error of the upstream.
    Error,
    Denied,
    Limited,
    /// A person has to agree first.
    AwaitingApproval,
    /// It could not be recorded.
    Unrecorded,
    Busy,
    Timeout,
    Cancelled,
    UpstreamDown,
    Crashed,
    /// The upstream broke the protocol.
    Protocol,
}

impl OutcomeLabel {
    pub(super) const ALL: [Self; 15] = [
        Self::Ok,
        Self::ToolError,
        Self::InputRequired,
        Self::Task,
        Self::Error,
        Self::Denied,
        Self::Limited,
        Self::AwaitingApproval,
        Self::Unrecorded,
        Self::Busy,
        Self::Timeout,
        Self::Cancelled,
        Self::UpstreamDown,
        Self::Crashed,
        Self::Protocol,
    ];

    /// Word for metric labels and the audit log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::InputRequired => "input_required",
            Self::Task => "task",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Unrecorded => "unrecorded",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::UpstreamDown => "upstream_down",
            Self::Crashed => "crashed",
            Self::Protocol => "protocol_error",
        }
    }
}
