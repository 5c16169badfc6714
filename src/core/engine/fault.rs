//! Protocol faults of upstreams that the gateway survives. The shell counts and logs each of them.

use crate::mcp::asking::input::InputError;

/// One misbehaviour of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum ProtocolFault {
    /// A line or body that is no JSON-RPC message.
    Garbage,
    /// A message that breaks the protocol but can be read in one way only, and was read so.
    Lenient,
    /// A line over the size limit, which was skipped.
    Oversize,
    /// A message that is nested too deeply or has too many values.
    Complex,
    /// A response to a call that had ended.
    LateReply,
    /// A response with an id that was never given out.
    UnknownReply,
    /// A response with both result and error, or with a result that is no object.
    MalformedReply,
    /// Progress for no call, or progress that does not grow.
    BadProgress,
    /// A request of the server that the gateway refuses.
    RefusedRequest,
    /// A request of the server that may have belonged to several calls.
    AmbiguousRequest,
    /// A list that could not be read, or only in part.
    BadList,
    /// A result of a kind that was not negotiated.
    UnexpectedResultType,
    /// A question that imitates one of the gateway's own, or whose text cannot be shown as it is.
    ForgedQuestion,
    /// A question for a password or another secret.
    SecretQuestion,
    /// A question to open a page at an address that is not allowed.
    UnsafeUrl,
}

impl From<InputError> for ProtocolFault {
    fn from(why: InputError) -> Self {
        match why {
            InputError::Malformed | InputError::NotOffered => Self::UnexpectedResultType,
            InputError::Imitates | InputError::Unreadable => Self::ForgedQuestion,
            InputError::Secret => Self::SecretQuestion,
            InputError::Address(_) => Self::UnsafeUrl,
        }
    }
}
