//! The wait of a call for a login at its upstream. It ends when the upstream is back or the time is
//! over. The call is then decided again, finds the upstream as it is, and is refused with
//! `needs_login` if the login is still missing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::channel::OriginalRequest;
use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::policy::consent::ApprovalId;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::link::LinkState;

/// How long to wait for the call's item once its upstream has listed others. A new account may not
/// have the item.
const LISTED: Duration = Duration::from_secs(2);

/// A login that an upstream needs, seen from the call that waits for it.
pub struct PendingLogin {
    /// The approval that the call has waited for before.
    pub approval: Option<ApprovalId>,
    pub upstream: UpstreamName,
    /// Canonical name of the call's item, which may be unlisted until the upstream has listed anew.
    pub item: Arc<str>,
    /// The turn of a call whose client is led to the page; one call of an upstream has it at a
    /// time. Released on drop.
    pub _page_turn: Option<OwnedSemaphorePermit>,
    /// Time at which the upstream was found back, with its items listed.
    pub back: Option<Instant>,
}

impl PendingLogin {
    /// Waits until the upstream is back or gone. The caller starts this anew for each snapshot.
    /// Cancel-safe.
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

    /// Whether the wait is over: the upstream lists the call's item, or listed without it for
    /// [`LISTED`], or is down for another reason than a login.
    fn is_back(&mut self, snapshot: &Snapshot, handle: &UpstreamHandle, request: &OriginalRequest) -> bool {
        if handle.health.standing().awaits_login() {
            return false;
        }
        let (starts, state) = handle.main.starts_and_state();
        let is_listed = match *state {
            LinkState::Starting => return false,
            LinkState::Down { .. } | LinkState::Stopped => return true,
            // A lazy upstream may be idle again.
            LinkState::Idle => starts > 0,
            LinkState::Ready(_) => handle.main.listed.load(Ordering::Relaxed),
        };
        let view = snapshot.view(request.client.profile.as_deref());
        if view.is_none_or(|view| view.catalog.all_entries().iter().any(|entry| entry.canonical == self.item)) {
            return true;
        }
        is_listed && clock::now() >= *self.back.get_or_insert_with(clock::now) + LISTED
    }
}
