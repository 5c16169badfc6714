//! How an upstream can misbehave without the gateway failing: one variant each, counted and logged by the shell.

/// One misbehaviour of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A line or body that is no JSON-RPC message.
    Garbage,
    /// A line over the limit; it was skipped.
    Oversize,
    /// A message that is nested too deeply or has too many values.
    Complex,
    /// An answer to a call that had ended.
    LateReply,
    /// An answer with an id that was never given out.
    UnknownReply,
    /// A response with both result and error, or with a result that is no object.
    MalformedReply,
    /// Progress for no call, or progress that does not grow.
    BadProgress,
    /// A request of the server that the gateway does not serve.
    RefusedRequest,
    /// A request of the server that may have belonged to several calls.
    AmbiguousRequest,
    /// A list that could not be read, or only in part.
    BadList,
    /// A result of a kind that was not negotiated.
    UnexpectedResultType,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::Garbage,
        Self::Oversize,
        Self::Complex,
        Self::LateReply,
        Self::UnknownReply,
        Self::MalformedReply,
        Self::BadProgress,
        Self::RefusedRequest,
        Self::AmbiguousRequest,
        Self::BadList,
        Self::UnexpectedResultType,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Oversize => "oversize",
            Self::Complex => "complex",
            Self::LateReply => "late_reply",
            Self::UnknownReply => "unknown_reply",
            Self::MalformedReply => "malformed_reply",
            Self::BadProgress => "bad_progress",
            Self::RefusedRequest => "refused_request",
            Self::AmbiguousRequest => "ambiguous_request",
            Self::BadList => "bad_list",
            Self::UnexpectedResultType => "unexpected_result_type",
        }
    }
}
