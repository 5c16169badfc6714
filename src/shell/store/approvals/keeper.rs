//! Names the gateways whose setting for the operator's commands is kept in the store.

/// Beginning of a daemon's name among the owners of open approvals.
pub const DAEMON: &str = "daemon-";

/// A gateway whose setting is kept. A command without a daemon goes by the stricter of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub enum Keeper {
    #[strum(serialize = "operator")]
    Daemon,
    /// One of `headend stdio`.
    #[strum(serialize = "operator_alone")]
    Alone,
}
