//! The terms on which a server may ask people.

use std::sync::Arc;

use super::host::HostPattern;
use crate::mcp::asking::kinds::InputKinds;

/// The operator's configuration of what one upstream may ask people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElicitationSettings {
    /// Hosts whose pages the upstream may ask to open; `None` allows every public host name.
    pub hosts: Option<Vec<HostPattern>>,
    /// True if forms of the upstream may ask for passwords and other secrets.
    pub secrets: bool,
}

/// The listeners of headend, whose addresses no server may ask to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnListeners {
    /// Ports on this machine.
    pub ports: Vec<u16>,
    /// Names under which others reach headend, as in `allowed-hosts`: `host` or `host:port`.
    pub names: Vec<String>,
}

/// The terms on which an upstream may ask the client of one call.
#[derive(Clone, Debug)]
pub struct ElicitationTerms {
    pub upstream: Arc<str>,
    /// The kinds of questions that the client offered for this call.
    pub offered: InputKinds,
    pub elicit: ElicitationSettings,
    /// True if client and upstream are both on this machine, so that loopback is the same place to
    /// both.
    pub on_this_machine: bool,
    pub own: OwnListeners,
}

#[cfg(any(test, fuzzing, feature = "testing"))]
impl ElicitationTerms {
    /// Returns the terms of an upstream `git` on the machine of its client.
    pub(crate) fn for_tests(offered: InputKinds) -> Self {
        let (elicit, own) = (ElicitationSettings::default(), OwnListeners::default());
        Self { upstream: Arc::from("git"), offered, elicit, on_this_machine: true, own }
    }
}
