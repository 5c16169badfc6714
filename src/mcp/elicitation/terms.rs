//! The terms on which a server may ask people.

use std::sync::Arc;

use super::host::HostPattern;
use crate::mcp::input::kinds::Kinds;

/// The operator's word on what one upstream may ask people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elicit {
    /// Hosts whose pages it may have opened; `None` is every public host by name.
    pub(crate) hosts: Option<Vec<HostPattern>>,
    /// Whether its forms may ask for passwords and the like.
    pub(crate) secrets: bool,
}

/// Our own listeners, which no server may have opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// On this machine.
    pub(crate) ports: Vec<u16>,
    /// Names under which others reach us, as in `allowed-hosts`: `host` or `host:port`.
    pub(crate) names: Vec<String>,
}

/// The terms on which an upstream asks the client of one call.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) upstream: Arc<str>,
    /// What the client offered for this call.
    pub(crate) offered: Kinds,
    pub(crate) elicit: Elicit,
    /// Client and upstream are both on this machine, so loopback is the same place to both.
    pub(crate) on_this_machine: bool,
    pub(crate) own: Own,
}

#[cfg(any(test, fuzzing))]
impl Terms {
    /// Those of an upstream `git` on the machine of its client.
    pub(crate) fn for_tests(offered: Kinds) -> Self {
        let (elicit, own) = (Elicit::default(), Own::default());
        Self { upstream: Arc::from("git"), offered, elicit, on_this_machine: true, own }
    }
}
