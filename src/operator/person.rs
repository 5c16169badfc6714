//! Names the person behind an operator's request, and how that person proved to be the operator.

use crate::policy::ApprovalEvidence;

/// The person behind an operator's request.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    /// Name in grants and pins.
    pub(crate) name: String,
    /// Name in the audit records of actions.
    pub(crate) recorded_as: String,
    pub(crate) evidence: ApprovalEvidence,
}

impl Person {
    /// Names a user of the admin socket.
    pub(crate) fn of_socket(name: &str) -> Self {
        Self { name: name.to_owned(), recorded_as: name.to_owned(), evidence: ApprovalEvidence::Operator }
    }

    /// Names a browser that is signed in to the console; `session` is the name of its session.
    pub(crate) fn of_console(session: &str) -> Self {
        Self { name: "console".to_owned(), recorded_as: session.to_owned(), evidence: ApprovalEvidence::Page }
    }

    /// Names the user who runs this command, for commands without a daemon.
    pub(crate) fn of_command() -> Self {
        let name = format!("uid:{}", rustix::process::getuid().as_raw());
        Self { recorded_as: format!("command:{name}"), name, evidence: ApprovalEvidence::Operator }
    }
}
