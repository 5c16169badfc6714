//! Owners of sessions with an upstream: everybody, a caller, or one client.

use std::sync::{Arc, Weak};

use crate::config::{Instance, Target, Upstream};
use crate::engine::ask::Declared;
use crate::engine::handshake::Agreed;
use crate::mcp::kinds::Kinds;
use crate::mcp::version::Era;
use crate::policy::Caller;
use crate::upstream::session_news::ClientTag;

/// Owner of a session.
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
    /// Input that this client can give.
    pub offered: Kinds,
}

/// Owner of a session, and the input that its client can give.
pub(super) type Key = (Owner, Kinds);

/// A lane's place in the table, and the client whose end is its end.
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
    /// The caller, where there is no client below it.
    Client,
}

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

/// Whether clients of such an upstream have lanes of their own, which show them what their capabilities are enough for.
pub(in crate::upstream) fn are_owned(spec: &Upstream, agreed: Agreed) -> bool {
    sharing(spec, agreed) != Sharing::Everybody
}

/// The place of this client's lane; `None` for the main lane.
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
