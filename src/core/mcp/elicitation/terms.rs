//! The terms on which a server may ask people.

use std::sync::Arc;

use super::host::HostPattern;
use crate::mcp::kinds::Kinds;

/// The operator's word on what one upstream may ask people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elicit {
    /// Hosts whose pages it may have opened; `None` is every public host by name.
    pub hosts: Option<Vec<HostPattern>>,
    /// Whether its forms may ask for passwords and the like.
    pub secrets: bool,
}

/// Our own listeners, which no server may have opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// On this machine.
    pub ports: Vec<u16>,
    /// Names under which others reach us, as in `allowed-hosts`: `host` or `host:port`.
    pub names: Vec<String>,
}

/// The terms on which an upstream asks the client of one call.
#[derive(Clone, Debug)]
pub struct Terms {
    pub upstream: Arc<str>,
    /// What the client offered for this call.
    pub offered: Kinds,
    pub elicit: Elicit,
    /// Client and upstream are both on this machine, so loopback is the same place to both.
    pub on_this_machine: bool,
    pub own: Own,
}

#[cfg(any(test, fuzzing, feature = "testing"))]
impl Terms {
    /// Those of an upstream `git` on the machine of its client.
    pub(crate) fn for_tests(offered: Kinds) -> Self {
        let (elicit, own) = (Elicit::default(), Own::default());
        Self { upstream: Arc::from("git"), offered, elicit, on_this_machine: true, own }
    }
}
