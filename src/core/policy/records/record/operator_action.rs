//! Actions of operators that are recorded in the audit log.

/// An action of an operator that is more than a look, by its word in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum OperatorAction {
    /// Open approvals are answered with a yes.
    Approve,
    /// Open approvals are answered with a no.
    Deny,
    /// Grants are revoked.
    Revoke,
    /// Grants and tokens are reviewed after the restore of a backup.
    Review,
    /// A block on calls ends before its time.
    Unblock,
    /// Definitions or launches are approved.
    PinsApprove,
    /// Definitions or launches are rejected.
    PinsReject,
    /// An upstream is restarted.
    Restart,
    /// An upstream is switched on.
    Enable,
    /// An upstream is switched off.
    Disable,
    /// The configuration is reloaded.
    Reload,
    /// A login at an upstream begins.
    LoginBegin,
    /// A browser opens the page of a login, which belongs to it from then on.
    LoginOpen,
    /// A login at an upstream ends, with tokens or without.
    LoginEnd,
    /// The login at an upstream is dropped.
    Logout,
    /// A link that signs in to the console is made.
    ConsoleLink,
    /// A browser signs in to the console.
    SignIn,
    /// A browser signs out of the console.
    SignOut,
    /// A sign-in to the console was refused because its token or link is wrong.
    WrongSignIn,
    /// A wrong code was typed on a terminal.
    WrongCode,
    /// A token of a client is added.
    TokenAdd,
    /// A token of a client is revoked.
    TokenRevoke,
    /// A test notice of an open approval is sent.
    Notify,
    /// The sealed values of the store are sealed anew with the present key.
    Rekey,
}

impl OperatorAction {
    /// Whether the action withdraws something or adopts a file. Such an action takes effect at once
    /// and its record waits for room in the log; every other action waits for that room first.
    pub const fn is_immediate(self) -> bool {
        match self {
            Self::Deny
            | Self::Revoke
            | Self::PinsReject
            | Self::Disable
            | Self::Reload
            | Self::Logout
            | Self::SignOut
            | Self::TokenRevoke
            | Self::WrongSignIn
            | Self::WrongCode => true,
            Self::Approve
            | Self::Review
            | Self::Unblock
            | Self::PinsApprove
            | Self::Restart
            | Self::Enable
            | Self::LoginBegin
            | Self::LoginOpen
            | Self::LoginEnd
            | Self::ConsoleLink
            | Self::SignIn
            | Self::TokenAdd
            | Self::Notify
            | Self::Rekey => false,
        }
    }

    /// Whether the action opens something, so that it is refused while the log takes no records.
    pub const fn opens(self) -> bool {
        match self {
            Self::Approve
            | Self::Unblock
            | Self::PinsApprove
            | Self::Restart
            | Self::Enable
            | Self::LoginBegin
            | Self::LoginEnd
            | Self::TokenAdd => true,
            Self::Deny
            | Self::Revoke
            | Self::Review
            | Self::PinsReject
            | Self::Disable
            | Self::Reload
            | Self::LoginOpen
            | Self::Logout
            | Self::ConsoleLink
            | Self::SignIn
            | Self::SignOut
            | Self::TokenRevoke
            | Self::WrongSignIn
            | Self::WrongCode
            | Self::Notify
            | Self::Rekey => false,
        }
    }
}
