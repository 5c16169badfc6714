//! The lists of an upstream over lines, which is a program or speaks HTTP+SSE: as everyone sees them, and as clients see them that
//! can be asked. Where clients have processes or sessions of their own, further ones of the gateway's own read the latter, one after
//! the other, whenever the lists were read: see [`super::askers`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::base::clock;
use crate::catalog::inventory::{Gap, Inventory};
use crate::config::{Target, Upstream};
use crate::engine::ask::Declared;
use crate::engine::handshake::Agreed;
use crate::engine::lists::{PATIENCE, Trouble};
use crate::mcp::input::Roots;
use crate::mcp::kinds::Kinds;
use crate::mcp::method::List;
use crate::upstream::actor::askers::{self, ForAskers, Seen, for_askers, seen, unseen};
use crate::upstream::session::handle::Handle;
use crate::upstream::session::lane::{Lane, are_owned};
use crate::upstream::state::unread::Readers;

/// How long calls of an upstream that lists first wait for what only some clients see.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Some servers add tools a moment after the handshake.
const LINGER: Duration = Duration::from_millis(200);
/// A reading that began before a change and is no older than this begins again. An older one goes on, and is followed by another.
const SETTLING: Duration = Duration::from_secs(1);
const DEBOUNCE: Duration = Duration::from_millis(250);
/// The next reading begins so many times as long later as one took: servers that change all the time must not keep processes busy.
const REST: u32 = 3;
const SHORTEST_REST: Duration = Duration::from_secs(1);
/// Waits after readings that failed; each is twice as long as the one before.
const SHORTEST_RETRY: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// The lists that were read, and when the next reading begins.
pub(super) struct Listing {
    handle: Arc<Handle>,
    /// The lists as everyone sees them.
    plain: Inventory,
    reading: Option<(Instant, BoxFuture<'static, ForAskers>)>,
    /// The lists have changed since it began.
    is_stale: bool,
    /// When the next reading begins.
    due: Option<Instant>,
    /// Not before that.
    rests_until: Option<Instant>,
    /// Calls wait for what is read until then.
    waits_until: Option<Instant>,
    failures: u32,
    /// The list whose trouble the operator was told.
    told: Option<List>,
}

impl Listing {
    pub(super) fn new(handle: &Arc<Handle>) -> Self {
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

    /// The lists as everyone sees them were read. Of the rest that is known stays until it is read again.
    pub(super) fn listed(&mut self, plain: Inventory, agreed: Agreed) -> Inventory {
        if !are_owned(&self.handle.spec.load(), agreed) {
            return plain;
        }
        self.plain = plain.clone();
        // Those that take long follow, and then everything is read once.
        if !self.plain.has_gap(Gap::Awaited) {
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

    /// Whether calls that wait for the lists have to wait for more of them.
    pub(super) fn is_awaited(&self) -> bool {
        self.waits_until.is_some()
    }

    /// Reads what is due; for ever where nothing is. Gives what is to be reported. Cancel-safe.
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

    fn begin(&mut self) {
        let (handle, plain) = (Arc::clone(&self.handle), self.plain.clone());
        self.due = None;
        let reading = async move {
            let roots = roots(&handle.spec.load());
            for_askers(&plain, &roots, 1, |kinds| seen_with(&handle, kinds, &roots)).await
        };
        self.reading = Some((clock::now(), Box::pin(reading)));
    }

    /// Calls wait no longer; the reading goes on.
    fn late(&mut self) -> Inventory {
        self.waits_until = None;
        unknown(self.plain.clone())
    }

    fn read(&mut self, shown: ForAskers, begun: Instant) -> Inventory {
        let now = clock::now();
        (self.reading, self.waits_until) = (None, None);
        self.rests_until = Some(now + (now.duration_since(begun) * REST).max(SHORTEST_REST));
        let mut news = self.plain.clone();
        let unknown = askers::add(&mut news, shown, self.handle.spec.load().max_inventory);
        let trouble = unknown.into_iter().find_map(|(list, why)| Some((list, why?)));
        let (unread, health) = (&self.handle.unread, &self.handle.health);
        let still = trouble.as_ref().map(|(list, _)| *list);
        if let Some(list) = self.told.take().filter(|list| Some(*list) != still) {
            unread.told(list, Readers::Askers, None, health);
        }
        self.due = self.rests_until.filter(|_| std::mem::take(&mut self.is_stale));
        self.failures = if let Some((list, why)) = trouble {
            let again = now + SHORTEST_RETRY.saturating_mul(1 << self.failures.min(16)).min(LONGEST_RETRY);
            let why = format!("as a client that can be asked: {why}");
            unread.told(
                list,
                Readers::Askers,
                Some(Trouble { why, attempts: self.failures.saturating_add(1), again }),
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

/// The lists without what only some clients see, which is not known.
fn unknown(mut plain: Inventory) -> Inventory {
    plain.awaits_askers = true;
    for list in List::ALL {
        plain.set_gap(list, plain.gap(list).or(Some(Gap::Askers)));
    }
    plain
}

/// The roots that a server may learn of while it only lists. A remote one serves others too, and may change for all of them what it
/// touches.
fn roots(spec: &Upstream) -> Roots {
    match spec.target {
        Target::Stdio { .. } => spec.roots.clone(),
        Target::Http { .. } => Roots::Hidden,
    }
}

/// The lists as a client with these capabilities sees them.
async fn seen_with(handle: &Arc<Handle>, kinds: Kinds, roots: &Roots) -> Seen {
    let declared = Declared::new(kinds, roots);
    let (to, mut heard) = mpsc::channel(4);
    handle.open(&Lane::listing(handle.name.clone(), declared, Arc::clone(&handle.health), to));
    // Each list that is not answered holds up the next one for a while.
    let until = clock::now() + handle.start_limit() + PATIENCE * 4;
    let mut read: Option<Inventory> = None;
    loop {
        let is_whole = read.as_ref().is_some_and(|read| !read.has_gap(Gap::Awaited));
        let wait = if is_whole { clock::now() + LINGER } else { until };
        match tokio::time::timeout_at(wait.into(), heard.recv()).await {
            Ok(Some(Ok(inventory))) => read = Some(inventory),
            Ok(Some(Err(why))) if read.is_none() => return unseen(Some(&why)),
            // It has ended, or says no more.
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    read.map_or_else(
        || unseen(Some("not answered within `start-timeout`")),
        |read| seen(&read, |_| "not read".to_owned()),
    )
}
