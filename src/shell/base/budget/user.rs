//! The users of room in the byte budget.

use crate::base::callers::CallerNumber;

/// The user of some room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The gateway itself, or a server.
    Gateway,
    /// A caller's request.
    Request(CallerNumber),
    /// An answer that is being read; the caller is `None` if the answer says whose it is only at
    /// its end.
    Answer(Option<CallerNumber>),
    /// An answer for a caller, which has room already: it counts towards the caller's share alone.
    Share(CallerNumber),
}

impl User {
    pub(super) const fn caller(&self) -> Option<&CallerNumber> {
        match self {
            Self::Request(caller) | Self::Share(caller) => Some(caller),
            Self::Answer(caller) => caller.as_ref(),
            Self::Gateway => None,
        }
    }

    /// Whether its bytes count towards the limit of all messages.
    pub(super) const fn is_counted(&self) -> bool {
        !matches!(self, Self::Share(_))
    }
}
