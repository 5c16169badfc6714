//! The purposes for which room in the byte budget is taken.

use crate::base::callers::CallerNumber;

/// The purpose of a piece of room in the byte budget, with the caller that it is charged to. It
/// decides the limit, and whether the bytes count towards all messages or towards the caller's
/// share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoomUser {
    /// A message of the gateway itself or of an upstream; no caller's share is charged.
    Gateway,
    /// A caller's request.
    Request(CallerNumber),
    /// An answer that is being read. The caller is `None` if only the end of the answer tells whose
    /// it is.
    Answer(Option<CallerNumber>),
    /// An answer for a caller whose bytes hold room already: it counts only towards the caller's
    /// share.
    Share(CallerNumber),
}

impl RoomUser {
    pub(super) const fn caller(&self) -> Option<&CallerNumber> {
        match self {
            Self::Request(caller) | Self::Share(caller) => Some(caller),
            Self::Answer(caller) => caller.as_ref(),
            Self::Gateway => None,
        }
    }

    /// Returns whether the bytes count towards the limit of all messages; only `Share` does not.
    pub(super) const fn is_counted(&self) -> bool {
        !matches!(self, Self::Share(_))
    }
}
