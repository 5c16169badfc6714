//! What a call is counted by: its method and how it ended. Closed sets, so that no client makes a series.

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub(crate) enum MethodLabel {
    #[strum(serialize = "tools/call")]
    ToolsCall,
    #[strum(serialize = "prompts/get")]
    PromptsGet,
    #[strum(serialize = "resources/read")]
    ResourcesRead,
    #[strum(serialize = "completion/complete")]
    Complete,
    #[strum(serialize = "other")]
    Other,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "snake_case")]
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
    #[strum(serialize = "protocol_error")]
    Protocol,
}
