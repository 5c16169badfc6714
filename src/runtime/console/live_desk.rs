//! The gateway as the console sees it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::desk::{Approval, DecisionView, Desk, Ending, Found, GrantView, Part, PinKey, PinView, Reply, UpstreamView, Wall};
use crate::mcp::method::List;
use crate::runtime::clock;
use crate::runtime::service::Service;
use crate::runtime::upstream::handle::LinkState;

/// What there is no store of yet.
const NO_STORE: &str = "This gateway keeps no approvals.";

/// The desk of a running gateway.
#[derive(Debug)]
pub(crate) struct LiveDesk {
    service: Arc<Service>,
}

impl LiveDesk {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service }
    }
}

impl Desk for LiveDesk {
    fn now(&self) -> Wall {
        clock::unix_seconds()
    }

    fn approvals(&self) -> Vec<Approval> {
        Vec::new()
    }

    fn approval(&self, _: &str) -> Found {
        Found::Unknown
    }

    fn answer<'a>(&'a self, _: &'a str, _: Reply) -> BoxFuture<'a, Result<Ending, String>> {
        Box::pin(async { Err(NO_STORE.to_owned()) })
    }

    fn grants(&self) -> Vec<GrantView> {
        Vec::new()
    }

    fn revoke<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Err(NO_STORE.to_owned()) })
    }

    fn pins(&self) -> BoxFuture<'_, Vec<PinView>> {
        Box::pin(async { Vec::new() })
    }

    fn approve_pin<'a>(&'a self, _: &'a PinKey, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err(NO_STORE.to_owned()) })
    }

    fn reject_pin<'a>(&'a self, _: &'a PinKey, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err(NO_STORE.to_owned()) })
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let snapshot = self.service.snapshots.load_full();
        let view = |(index, handle): (usize, &Arc<crate::runtime::upstream::handle::Handle>)| {
            let state = handle.main.state();
            let mine = |lists: &[List]| {
                let entries = snapshot.whole.catalog.entries().iter();
                entries.filter(|entry| entry.upstream == index && lists.contains(&entry.list)).count()
            };
            let error = handle.last_error.load_full();
            UpstreamView {
                name: handle.name.as_str().to_owned(),
                state: state.as_str(),
                revision: match &*state {
                    LinkState::Ready(link) => Some(link.agreed().revision.as_str()),
                    LinkState::Idle | LinkState::Starting | LinkState::Down { .. } | LinkState::Stopped => None,
                },
                tools: mine(&[List::Tools]),
                prompts: mine(&[List::Prompts]),
                resources: mine(&[List::Resources, List::Templates]),
                in_flight: handle.in_flight.load(Ordering::Relaxed),
                restarts: handle.main.restarts.load(Ordering::Relaxed),
                last_error: (!error.is_empty()).then_some(error),
            }
        };
        snapshot.handles.iter().enumerate().map(view).collect()
    }

    fn decisions(&self, at_most: usize) -> Vec<DecisionView> {
        self.service.recent.last(at_most)
    }

    fn watches(&self) -> Vec<(Part, watch::Receiver<u64>)> {
        let generation = self.service.generation.clone();
        vec![(Part::Upstreams, generation)]
    }

    fn counts(&self) -> Vec<(Part, u64)> {
        // An upstream that goes down tells nobody but its own calls.
        let mut states = DefaultHasher::new();
        for handle in &self.service.snapshots.load_full().handles {
            (handle.name.as_str(), handle.main.state().as_str()).hash(&mut states);
        }
        vec![(Part::Upstreams, states.finish()), (Part::Decisions, self.service.recent.count())]
    }
}
