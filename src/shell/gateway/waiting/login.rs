//! The wait of a call for a login at its upstream. The call is decided again once the upstream is
//! back, or its time is over: then it finds the upstream as it is, and is refused with
//! `needs_login`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::channel::OriginalRequest;
use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::policy::consent::PromptId;
use crate::upstream::session::handle::Handle;
use crate::upstream::session::link::LinkState;

/// How long an item may take to be listed again once its upstream has listed others. Another
/// account may not have it.
const LISTED: Duration = Duration::from_secs(2);

/// A login that an upstream wants, as a call that waits for it sees it.
pub struct PendingLogin {
    /// The approval that the call has waited for before.
    pub approval: Option<PromptId>,
    pub upstream: UpstreamName,
    /// The canonical name of the call's item, which may be gone from the lists until the upstream
    /// has listed anew.
    pub item: Arc<str>,
    /// The turn of a call whose client is led to the page: one call of an upstream at a time. Given
    /// back on drop.
    pub _page_turn: Option<OwnedSemaphorePermit>,
    /// Since when the upstream is back and has listed its items.
    pub back: Option<Instant>,
}

impl PendingLogin {
    /// Waits until there is nothing to wait for any more. The caller calls it anew for each
    /// snapshot. Cancel-safe.
    pub async fn wait_until_back(&mut self, service: &Service, request: &OriginalRequest) {
        loop {
            let snapshot = service.snapshots.load_full();
            let handle = snapshot.handles.iter().find(|handle| handle.name == self.upstream).cloned();
            let Some(handle) = handle else { return };
            let (changed, judged) = (handle.main.state_changed(), handle.health.standing_changed());
            if self.is_back(&snapshot, &handle, request) {
                return;
            }
            drop(snapshot);
            let listed = self.back.map(|back| back + LISTED).filter(|at| *at > clock::now());
            let is_ready = matches!(*handle.main.state(), LinkState::Ready(_) | LinkState::Idle);
            let look = listed.or_else(|| is_ready.then(|| clock::now() + LISTED));
            tokio::select! {
                () = changed => {}
                () = judged => {}
                () = clock::sleep_until(look) => {}
            }
        }
    }

    /// Whether the upstream takes calls, or it is not a login that it lacks.
    fn is_back(&mut self, snapshot: &Snapshot, handle: &Handle, request: &OriginalRequest) -> bool {
        if handle.health.standing().awaits_login() {
            return false;
        }
        let (starts, state) = handle.main.starts_and_state();
        let is_listed = match *state {
            LinkState::Starting => return false,
            LinkState::Down { .. } | LinkState::Stopped => return true,
            // A lazy one may be at rest again.
            LinkState::Idle => starts > 0,
            LinkState::Ready(_) => handle.main.listed.load(Ordering::Relaxed),
        };
        let view = snapshot.view(request.client.profile.as_deref());
        if view.is_none_or(|view| view.catalog.entries().iter().any(|entry| entry.canonical == self.item)) {
            return true;
        }
        is_listed && clock::now() >= *self.back.get_or_insert_with(clock::now) + LISTED
    }
}
