//! Reasons to refuse a server's request for input.

/// The reason why a request for input is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("The server's request for input is malformed.")]
    Malformed,
    #[error("The server asked for input that the client did not offer.")]
    NotOffered,
    #[error("The server asked for input in the gateway's name.")]
    Imitates,
    #[error("The server asked for a password or another secret.")]
    Secret,
    #[error("The server asked with text that cannot be shown as it is.")]
    Unreadable,
    #[error("The server asked to open an address that headend refuses: {0}.")]
    Address(BadAddress),
}

impl InputError {
    /// Reports whether the server is told that the person declined. Otherwise it asked for what it
    /// could know to be impossible.
    pub fn is_declined(self) -> bool {
        match self {
            Self::Malformed | Self::NotOffered => false,
            Self::Imitates | Self::Secret | Self::Unreadable | Self::Address(_) => true,
        }
    }
}

/// The reason why an address is shown to no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("it is no absolute URL, or one that readers understand differently")]
    Malformed,
    #[error("only https is opened, and http on this machine")]
    Scheme,
    #[error("it has a user name or a password in it")]
    UserInfo,
    #[error("its host is a number instead of a name")]
    Number,
    #[error("its host is no public one")]
    Private,
    #[error("it is on this machine, and the client or the server is not")]
    Loopback,
    #[error("it is the gateway's own")]
    Own,
    #[error("its host is none of `elicit-hosts`")]
    Host,
}
