//! Label values of calls and logins. The sets are closed, so that no client can create a series.

/// The label for the method of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub enum MethodLabel {
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

/// The label for the outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum OutcomeLabel {
    Ok,
    /// A result with `isError`.
    ToolError,
    /// The call continues after the client has given its input.
    InputRequired,
    /// The call continues as a task, which the client polls.
    Task,
    /// A JSON-RPC error from the upstream.
    Error,
    Denied,
    Limited,
    /// A person has to approve the call first.
    AwaitingApproval,
    /// The upstream waits for a login.
    NeedsLogin,
    /// The audit log could not take the record.
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

/// The label for the outcome of an attempt to renew a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum RenewalLabel {
    Renewed,
    /// The server could not be asked, or gave no usable answer; the login stays valid.
    Failed,
    /// The server has ended the login.
    Expired,
}
