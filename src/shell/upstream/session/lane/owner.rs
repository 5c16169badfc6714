//! Owners of sessions with an upstream: all clients together, one caller, or one client.

use std::sync::{Arc, Weak};

use crate::config::{Instance, Target, Upstream};
use crate::engine::ask::Declared;
use crate::engine::handshake::Agreed;
use crate::mcp::kinds::Kinds;
use crate::mcp::version::Era;
use crate::policy::Caller;
use crate::upstream::session_news::ClientTag;

/// The owner of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Caller(Caller),
    Client(u64),
    /// The gateway, which reads the lists as clients with some capabilities see them.
    Gateway,
}

/// The client of a call that needs a session.
#[derive(Clone, Debug)]
pub struct Wants {
    pub caller: Caller,
    pub client: Option<Arc<ClientTag>>,
    /// Kinds of input that this client can give.
    pub offered: Kinds,
}

/// The owner of a session, and the input that its client can give.
pub(super) type Key = (Owner, Kinds);

/// The key of a lane in the table, and the client whose end is the lane's end.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) key: Key,
    pub(super) client: Option<Weak<ClientTag>>,
}

/// The kind of session that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Everybody,
    Caller,
    /// A session for one client, or for the caller if the call has no client.
    Client,
}

/// Returns which sessions the calls of an upstream use.
fn sharing(spec: &Upstream, agreed: Agreed) -> Sharing {
    if agreed.revision.era() == Era::Modern {
        return Sharing::Everybody;
    }
    match (spec.instance, &spec.target) {
        (Instance::Shared, _) | (Instance::Auto, Target::Stdio { .. }) => Sharing::Everybody,
        (Instance::Auto, Target::Http { .. }) | (Instance::PerSession, _) => Sharing::Client,
        (Instance::PerCaller, _) => Sharing::Caller,
    }
}

/// Returns whether clients of the upstream have lanes of their own, which show them the items that
/// their capabilities allow.
pub(in crate::upstream) fn are_owned(spec: &Upstream, agreed: Agreed) -> bool {
    sharing(spec, agreed) != Sharing::Everybody
}

/// Returns the key of this client's lane and its client; `None` for the main lane.
pub(super) fn place<'w>(
    spec: &Upstream,
    agreed: Agreed,
    wants: &'w Wants,
) -> Option<(Key, Option<&'w Arc<ClientTag>>)> {
    let client = match sharing(spec, agreed) {
        Sharing::Everybody => return None,
        Sharing::Caller => None,
        Sharing::Client => wants.client.as_ref(),
    };
    let owner = client.map_or_else(|| Owner::Caller(wants.caller.clone()), |tag| Owner::Client(tag.number()));
    Some(((owner, Declared::new(wants.offered, &spec.roots).kinds), client))
}
