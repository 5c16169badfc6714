//! Users of room in the byte budget.

use crate::base::callers::CallerNumber;

/// The user of a piece of room, which decides the bounds that apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoomUser {
    /// The gateway itself, or an upstream.
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

    /// Returns whether the bytes count towards the limit of all messages.
    pub(super) const fn is_counted(&self) -> bool {
        !matches!(self, Self::Share(_))
    }
}
