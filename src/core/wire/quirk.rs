//! Accepts messages of upstreams that break the protocol but have only one possible meaning, and
//! counts them.
//!
//! A message that could mean two things is not accepted, see [`super::unreadable`].

/// A deviation from the protocol that leaves no doubt about the meaning of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum Quirk {
    /// Members of the envelope that do not belong to the message were present as `null`.
    NullMember,
    /// The id of one of our requests, a number, came back as a string or with a fraction of zero.
    OtherId,
    /// A single message came in an array, which is a batch in 2025-03-26 only.
    Array,
    /// JSON came over HTTP with another content type, or without one.
    OtherType,
    /// A tool result of a legacy server had `structuredContent: null`; it has to be an object or
    /// absent there.
    NullContent,
    /// An optional member that no revision allows to be `null` was `null`.
    NullOptional,
    /// A required list was `null`, as some languages write an empty one.
    NullList,
    /// `nextCursor` was an empty string on the last page.
    EmptyCursor,
}

impl Quirk {
    /// Describes the quirk for the operator.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NullMember => "a member that does not belong to the message was `null`; it was taken as absent",
            Self::OtherId => "the id of a request came back as a text or a fraction; it was taken as the number sent",
            Self::Array => "one message came in an array, which is a batch of 2025-03-26; it was taken as the message",
            Self::OtherType => "JSON came without the content type `application/json`; it was read as JSON",
            Self::NullContent => {
                "a tool's result had `structuredContent: null`, which has to be an object; it was left out"
            }
            Self::NullOptional => "an optional member of a message was `null`; it was taken as absent",
            Self::NullList => "a list was `null`; it was taken as empty",
            Self::EmptyCursor => "`nextCursor` was an empty text behind the last page; it was taken as absent",
        }
    }
}
