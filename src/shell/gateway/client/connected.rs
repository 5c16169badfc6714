//! The connected clients, by the names they gave themselves, for `status`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::mcp::client_name::ClientName;
use crate::policy::Caller;

/// A client's caller, and the name that the client gave itself, if any.
pub type NamedClient = (Caller, Option<ClientName>);

/// The clients on pipes and on HTTP connections of the modern era. Bounded by the number of
/// connections. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct ConnectedClients(Arc<Mutex<HashMap<u64, NamedClient, RandomState>>>);

impl ConnectedClients {
    /// Adds a client until the returned value is dropped.
    pub fn enter(&self, caller: &Caller, name: Option<ClientName>) -> ConnectedClient {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.lock().insert(number, (caller.clone(), name));
        ConnectedClient { clients: self.clone(), number }
    }

    /// Counts the clients and `others` by caller and name, ordered by name and then caller.
    pub fn counted(&self, others: Vec<NamedClient>) -> Vec<(String, String, usize)> {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (caller, name) in self.0.lock().values().cloned().chain(others) {
            let name = name.map(|name| name.to_string()).unwrap_or_default();
            *counts.entry((name, caller.name().to_owned())).or_default() += 1;
        }
        counts.into_iter().map(|((name, caller), count)| (caller, name, count)).collect()
    }
}

/// The entry of one connected client; removed on drop.
#[derive(Debug)]
pub struct ConnectedClient {
    clients: ConnectedClients,
    number: u64,
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_by_name_while_they_are_connected() {
        let clients = ConnectedClients::default();
        let named = |name: &str| Some(ClientName { name: Arc::from(name), version: None });
        let [local, ci] = ["local", "ci"].map(Caller::named);
        let kept = [clients.enter(&local, named("b")), clients.enter(&local, named("b"))];
        drop(clients.enter(&local, named("gone")));
        let _nameless = clients.enter(&ci, None);
        let told = |others| {
            let counted = clients.counted(others).into_iter();
            counted.map(|(caller, name, count)| format!("{caller}/{name}/{count}")).collect::<Vec<_>>()
        };
        assert_eq!(told(vec![(local.clone(), named("a"))]), ["ci//1", "local/a/1", "local/b/2"]);
        drop(kept);
        assert_eq!(told(Vec::new()), ["ci//1"]);
    }
}
