//! Messages of upstreams that break the protocol and have one reading all the same: they are read so, and counted.
//!
//! Nothing here makes two readings one. A message that could mean two things is refused, see [`super::unreadable`].

/// A way in which a message broke the protocol without a doubt about its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum Quirk {
    /// Members of the envelope that do not belong to the message were there and `null`.
    NullMember,
    /// The id of one of our requests, which is a number, came back as a text or with a fraction of nought.
    OtherId,
    /// One message stood in an array, which is a batch in 2025-03-26 alone.
    Array,
    /// JSON came over HTTP with another content type, or without one.
    OtherType,
    /// A tool's result of a legacy server had `structuredContent: null`, which is an object or absent there.
    NullContent,
    /// An optional member that no revision allows to be `null` was `null`.
    NullOptional,
    /// A list that has to be there was `null`, as some languages write an empty one.
    NullList,
    /// `nextCursor` was an empty text behind the last page.
    EmptyCursor,
}

impl Quirk {
    /// The quirk, for the operator.
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
