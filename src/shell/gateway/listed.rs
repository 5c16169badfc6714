//! The tools that the lists of each client have shown lately, for calls of tools that are gone since.
//!
//! A list adds to it, and a call that finds no tool looks into it; a call that finds its tool does neither. A legacy session and a
//! pipe have lists of their own, which are forgotten with them. Clients without a session share what all of their caller were shown
//! in the same view.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::catalog::listed::{Names, Pages, Shown};
use crate::gateway::client::ClientContext;
use crate::mcp::kinds::Kinds;
use crate::policy::Caller;

/// Views of callers without a session that are remembered. The one that was listed longest ago gives way.
const MAX_VIEWS: usize = 1024;

/// Caller, profile, and the input that the client offers.
type ViewOf = (Caller, Option<Arc<str>>, Kinds);

/// The tools that the lists of all clients have shown.
#[derive(Debug, Default)]
pub struct Listed {
    pages: Mutex<Pages>,
    stateless: Mutex<HashMap<ViewOf, Shown, RandomState>>,
}

impl Listed {
    /// A client is given a page of its list of tools. `now` is the time since the process started.
    pub fn show(&self, client: &ClientContext, names: &Arc<Names>, now: Duration) {
        let Some(tag) = &client.tag else {
            let view = view_of(client);
            let mut stateless = self.stateless.lock();
            if stateless.len() >= MAX_VIEWS && !stateless.contains_key(&view) {
                let oldest = stateless.iter().min_by_key(|(_, shown)| shown.last()).map(|(view, _)| view.clone());
                oldest.map(|oldest| stateless.remove(&oldest));
            }
            return self.pages.lock().show(stateless.entry(view).or_default(), names, now);
        };
        self.pages.lock().show(&mut tag.shown.lock(), names, now);
    }

    /// Whether a list of this client had that tool within the last hour. Does not look whether there is such a tool.
    pub fn showed(&self, client: &ClientContext, name: &str, now: Duration) -> bool {
        match &client.tag {
            Some(tag) => self.pages.lock().showed(&tag.shown.lock(), name, now),
            None => {
                let stateless = self.stateless.lock();
                let shown = stateless.get(&view_of(client));
                self.pages.lock().showed(shown.unwrap_or(&Shown::default()), name, now)
            }
        }
    }
}

fn view_of(client: &ClientContext) -> ViewOf {
    (client.caller.clone(), client.profile.clone(), client.offered)
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::base::access::Access;
    use crate::catalog::listed::LIFE;
    use crate::mcp::version::{Era, Revision};
    use crate::upstream::session_news::ClientTag;

    const NOW: Duration = Duration::from_secs(7);

    fn client(caller: &str, profile: Option<&str>) -> ClientContext {
        let access = Access::new(&CancellationToken::new());
        ClientContext::new(Caller::named(caller), access, profile.map(Arc::from), Revision::preferred(Era::Modern))
    }

    #[test]
    fn a_list_counts_for_the_client_that_it_was_for() {
        let listed = Listed::default();
        let names = Arc::new(Names::of(["a"].into_iter()));
        let with_session = |caller: &str| ClientContext { tag: Some(ClientTag::new()), ..client(caller, None) };
        let forms = Kinds { form: true, ..Kinds::default() };
        // A session has its list with it, so each round has clients of its own.
        let clients = || {
            [
                client("one", None),
                client("two", None),
                client("one", Some("few")),
                ClientContext { offered: forms, ..client("one", None) },
                with_session("one"),
                with_session("one"),
            ]
        };
        for at in 0..clients().len() {
            let (listed, clients) = (Listed::default(), clients());
            let own = &clients[at];
            listed.show(own, &names, NOW);
            let showed = clients.iter().map(|other| listed.showed(other, "a", NOW + LIFE / 2));
            assert!(showed.enumerate().all(|(other, showed)| showed == (other == at)), "client {at}");
            assert!(!listed.showed(own, "b", NOW) && !listed.showed(own, "a", NOW + LIFE));
        }
        let again = client("one", None);
        listed.show(&client("one", None), &names, NOW);
        assert!(listed.showed(&again, "a", NOW), "without a session the caller is the client");
    }

    #[test]
    fn callers_beyond_the_bound_push_out_the_one_that_listed_first() {
        let listed = Listed::default();
        let names = Arc::new(Names::of(["a"].into_iter()));
        let nth = |n: usize| client(&format!("caller-{n}"), None);
        for n in 0..=MAX_VIEWS {
            listed.show(&nth(n), &names, NOW + Duration::from_millis(n as u64));
        }
        let now = NOW + Duration::from_secs(10);
        assert_eq!(listed.stateless.lock().len(), MAX_VIEWS);
        assert!(!listed.showed(&nth(0), "a", now) && listed.showed(&nth(1), "a", now));
        assert!(listed.showed(&nth(MAX_VIEWS), "a", now));
    }
}
