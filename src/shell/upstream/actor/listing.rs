//! The lists of an upstream over lines (a program, or HTTP+SSE), as everyone sees them and as
//! clients see them that can be asked for input. If clients have processes or sessions of their
//! own, further ones of the gateway read the latter, one after the other, whenever the lists were
//! read: see [`super::askers`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::base::clock;
use crate::catalog::inventory::{Inventory, ListGap};
use crate::config::{UpstreamSettings, UpstreamTarget};
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::handshake::HandshakeAgreement;
use crate::engine::lists::{ListTrouble, PATIENCE};
use crate::mcp::asking::input::Roots;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::method::ItemList;
use crate::upstream::actor::askers::{self, AskerItems, VisibleLists, for_askers, seen, unseen};
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::{Lane, are_owned};
use crate::upstream::state::unread::ListReaders;

/// How long calls of an upstream that lists first wait for items that only some clients see.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long to wait for more tools: some servers add tools a moment after the handshake.
const LINGER: Duration = Duration::from_millis(200);
/// A reading that began before a change and is no older than this starts again. An older one
/// continues, and is followed by another.
const SETTLING: Duration = Duration::from_secs(1);
const DEBOUNCE: Duration = Duration::from_millis(250);
/// The pause after a reading is this many times its duration: servers that change all the time must
/// not keep processes busy.
const REST: u32 = 3;
const SHORTEST_REST: Duration = Duration::from_secs(1);
/// Waits after failed readings; each is twice as long as the one before.
const SHORTEST_RETRY: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// The lists that were read, and the time of the next reading.
pub(super) struct LineLists {
    handle: Arc<UpstreamHandle>,
    /// The lists as everyone sees them.
    plain: Inventory,
    reading: Option<(Instant, BoxFuture<'static, AskerItems>)>,
    /// True if the lists have changed since the reading began.
    is_stale: bool,
    /// Time of the next reading.
    due: Option<Instant>,
    /// Earliest time of the next reading.
    rests_until: Option<Instant>,
    /// Time until which calls wait for the reading.
    waits_until: Option<Instant>,
    failures: u32,
    /// The list whose failure was reported to the operator.
    told: Option<ItemList>,
}

impl LineLists {
    pub(super) fn new(handle: &Arc<UpstreamHandle>) -> Self {
        Self {
            handle: Arc::clone(handle),
            plain: Inventory::default(),
            reading: None,
            is_stale: false,
            due: None,
            rests_until: None,
            waits_until: None,
            failures: 0,
            told: None,
        }
    }

    /// Records the lists as everyone sees them, and schedules the next reading. Items that only
    /// some clients see stay as known until they are read again.
    pub(super) fn listed(&mut self, plain: Inventory, agreed: HandshakeAgreement) -> Inventory {
        if !are_owned(&self.handle.spec.load(), agreed) {
            return plain;
        }
        self.plain = plain.clone();
        // Lists that take long follow, and then everything is read once.
        if !self.plain.has_gap(ListGap::Awaited) {
            let now = clock::now();
            self.is_stale = self.reading.as_ref().is_some_and(|(begun, _)| now.duration_since(*begun) > SETTLING);
            if !self.is_stale {
                let begun = self.reading.take();
                let soon = if begun.is_some() { now + DEBOUNCE } else { now };
                self.due = Some(self.rests_until.map_or(soon, |until| until.max(soon)));
            }
            self.waits_until.get_or_insert(now + LONGEST_WAIT);
        }
        unknown(plain)
    }

    /// Returns whether calls that wait for the lists have to wait for more of them.
    pub(super) fn is_awaited(&self) -> bool {
        self.waits_until.is_some()
    }

    /// Reads lists as they are due, and returns those to report; never resolves if nothing is due.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Inventory {
        loop {
            let waits_until = self.waits_until;
            let Some((begun, reading)) = &mut self.reading else {
                if self.due.is_none() {
                    return std::future::pending().await;
                }
                tokio::select! {
                    () = clock::sleep_until(self.due) => self.begin(),
                    () = self.handle.unread.now_for_askers.notified() => self.begin(),
                    () = clock::sleep_until(waits_until), if waits_until.is_some() => return self.late(),
                }
                continue;
            };
            tokio::select! {
                shown = reading => {
                    let begun = *begun;
                    return self.read(shown, begun);
                }
                () = clock::sleep_until(waits_until), if waits_until.is_some() => return self.late(),
            }
        }
    }

    /// Starts a reading.
    fn begin(&mut self) {
        let (handle, plain) = (Arc::clone(&self.handle), self.plain.clone());
        self.due = None;
        let reading = async move {
            let roots = roots(&handle.spec.load());
            for_askers(&plain, &roots, 1, |kinds| seen_with(&handle, kinds, &roots)).await
        };
        self.reading = Some((clock::now(), Box::pin(reading)));
    }

    /// Lets calls continue without the reading, which goes on.
    fn late(&mut self) -> Inventory {
        self.waits_until = None;
        unknown(self.plain.clone())
    }

    /// Adds the result of a reading to the lists, and schedules the next one. Reports failures.
    fn read(&mut self, shown: AskerItems, begun: Instant) -> Inventory {
        let now = clock::now();
        (self.reading, self.waits_until) = (None, None);
        self.rests_until = Some(now + (now.duration_since(begun) * REST).max(SHORTEST_REST));
        let mut news = self.plain.clone();
        let unknown = askers::add(&mut news, shown, self.handle.spec.load().max_inventory);
        let trouble = unknown.into_iter().find_map(|(list, why)| Some((list, why?)));
        let (unread, health) = (&self.handle.unread, &self.handle.health);
        let still = trouble.as_ref().map(|(list, _)| *list);
        if let Some(list) = self.told.take().filter(|list| Some(*list) != still) {
            unread.told(list, ListReaders::Askers, None, health);
        }
        self.due = self.rests_until.filter(|_| std::mem::take(&mut self.is_stale));
        self.failures = if let Some((list, why)) = trouble {
            let again = now + SHORTEST_RETRY.saturating_mul(1 << self.failures.min(16)).min(LONGEST_RETRY);
            let why = format!("as a client that can be asked: {why}");
            unread.told(
                list,
                ListReaders::Askers,
                Some(ListTrouble { why, attempts: self.failures.saturating_add(1), again }),
                health,
            );
            (self.due, self.told) = (Some(again), Some(list));
            self.failures.saturating_add(1)
        } else {
            0
        };
        news
    }
}

/// Returns the lists with the mark that items for some clients are unknown.
fn unknown(mut plain: Inventory) -> Inventory {
    plain.awaits_askers = true;
    for list in ItemList::ALL {
        plain.set_gap(list, plain.gap(list).or(Some(ListGap::Askers)));
    }
    plain
}

/// Returns the roots that a server may learn while it only lists. A remote server serves others
/// too, and could change for all of them what it accesses.
fn roots(spec: &UpstreamSettings) -> Roots {
    match spec.target {
        UpstreamTarget::Stdio { .. } => spec.roots.clone(),
        UpstreamTarget::Http { .. } => Roots::Hidden,
    }
}

/// Reads the lists as a client with these capabilities sees them, in a session of its own.
async fn seen_with(handle: &Arc<UpstreamHandle>, kinds: InputKinds, roots: &Roots) -> VisibleLists {
    let declared = DeclaredCapabilities::new(kinds, roots).with_apps(handle.spec.load().own_apps());
    let (to, mut heard) = mpsc::channel(4);
    handle.open(&Lane::listing(handle.name.clone(), declared, Arc::clone(&handle.health), to));
    // Each list that is not answered delays the next one for a while.
    let until = clock::now() + handle.start_limit() + PATIENCE * 4;
    let mut read: Option<Inventory> = None;
    loop {
        let is_whole = read.as_ref().is_some_and(|read| !read.has_gap(ListGap::Awaited));
        let wait = if is_whole { clock::now() + LINGER } else { until };
        match tokio::time::timeout_at(wait.into(), heard.recv()).await {
            Ok(Some(Ok(inventory))) => read = Some(inventory),
            Ok(Some(Err(why))) if read.is_none() => return unseen(Some(&why)),
            // The session has ended, or sends no more.
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    read.map_or_else(
        || unseen(Some("not answered within `start-timeout`")),
        |read| seen(&read, |_| "not read".to_owned()),
    )
}
