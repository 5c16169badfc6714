//! The person behind a request.

use crate::policy::Evidence;

/// The person behind a request, and the channel.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    /// The name in grants and pins.
    pub(crate) name: String,
    /// The name in the records of actions.
    pub(crate) recorded_as: String,
    pub(crate) evidence: Evidence,
}

impl Person {
    /// A user of the admin socket.
    pub(crate) fn of_socket(name: &str) -> Self {
        Self { name: name.to_owned(), recorded_as: name.to_owned(), evidence: Evidence::Operator }
    }

    /// A browser that is signed in to the console, by the name of its session.
    pub(crate) fn of_console(session: &str) -> Self {
        Self { name: "console".to_owned(), recorded_as: session.to_owned(), evidence: Evidence::Page }
    }

    /// The user who runs a command without a daemon.
    pub(crate) fn of_command() -> Self {
        let name = format!("uid:{}", rustix::process::getuid().as_raw());
        Self { recorded_as: format!("command:{name}"), name, evidence: Evidence::Operator }
    }
}
