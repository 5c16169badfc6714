//! The pin registry: the approved text of each definition and launch, shared by all upstreams.
//!
//! The pins are in memory, and in the store if there is a state directory. Processes that share a
//! store agree: every step is one database operation on the stored records, and a process reads the
//! others' writes when the stored number of changes differs from its own. An item whose pin cannot
//! be written stays hidden.
//!
//! One lock guards the table of pins for one operation, and is never held across an await.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::base::clock;
use crate::mcp::definition::item::Definition;
use crate::policy::{ChangePolicy, Digest, PinState, UpstreamTrust};
use crate::store::db::{Db, DbError};
use crate::store::pin_record::{PinKey, PinRecord, PinStep};
use crate::store::port::{PinStepResult, PinStepResults, PinTable};

mod announce;
mod apps;
mod book;
mod error;
mod instructions;
mod judge;
mod launch;
mod many;
mod news;
mod standing;
mod texts;
mod view;

pub use self::apps::SeenApp;
pub use self::error::PinError;
pub use self::judge::ListedItems;
pub use self::launch::{LaunchGate, LaunchProgram, find_program, program_of, searched_folders};
pub use self::many::{PinDecision, compile_pattern};
pub use self::news::{PinHook, PinNews};
pub use self::view::PinView;
pub use crate::store::pin_record::PinKind;

use self::book::PinRecords;
use self::news::StoredPin;

/// The trust in an upstream's definitions, and the bound on their number.
#[derive(Clone, Copy, Debug)]
pub struct PinTier {
    pub trust: UpstreamTrust,
    pub on_change: ChangePolicy,
    /// Most pins of each kind, including those of items that are gone.
    pub most: usize,
}

/// The verdict on a listed item.
#[derive(Clone, Debug)]
pub enum ItemVerdict {
    /// Clients see the item as it is listed.
    Shown,
    /// Clients see the item in this form, which was pinned: it differs from the listed one by order
    /// or repairs only.
    AsPinned(Box<Definition>),
    /// The item is hidden.
    Away(HiddenReason),
}

/// The reason why an item is hidden from clients.
#[derive(Clone, Debug)]
pub struct HiddenReason {
    pub why: String,
    /// State of the item's pin, if it has one.
    pub state: Option<PinState>,
    /// True if the item has no pin yet because the store could not take one.
    pub is_unkept: bool,
}

impl HiddenReason {
    /// Returns true if the item waits for the operator's approval.
    pub fn waits(&self) -> bool {
        matches!(self.state, Some(PinState::Changed | PinState::Quarantined))
    }
}

/// The pin registry; clones share it.
#[derive(Clone)]
pub struct PinRegistry(Arc<PinRegistryState>);

struct PinRegistryState {
    book: Mutex<PinRecords>,
    db: Option<Db>,
    hook: OnceLock<PinHook>,
    changed: watch::Sender<u64>,
    /// Notified after a step of an app's pin.
    apps: Notify,
}

impl std::fmt::Debug for PinRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pins({})", if self.0.db.is_some() { "kept" } else { "in memory" })
    }
}

impl PinRegistry {
    /// Creates a registry in memory, which ends with the process.
    pub fn memory() -> Self {
        Self::new(PinRecords::default(), None)
    }

    /// Reads the registry of the state directory. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(db: Db) -> Result<Self, DbError> {
        let book = build_table(db.open_pins()?);
        Ok(Self::new(book, Some(db)))
    }

    fn new(book: PinRecords, db: Option<Db>) -> Self {
        let shared = PinRegistryState {
            book: Mutex::new(book),
            db,
            hook: OnceLock::new(),
            changed: watch::channel(0).0,
            apps: Notify::new(),
        };
        Self(Arc::new(shared))
    }

    fn book(&self) -> MutexGuard<'_, PinRecords> {
        self.0.book.lock()
    }

    /// Returns true if pins of new and changed items can be stored.
    pub fn takes_writes(&self) -> bool {
        self.0.db.as_ref().is_none_or(|db| db.health().is_writable())
    }

    /// Returns a receiver of changes by other processes, for stores that are told of them.
    pub fn store_changes(&self) -> Option<watch::Receiver<u64>> {
        self.0.db.as_ref().map(|db| db.health().changes())
    }

    /// Sets the hook that is called for every change. Only the first call has an effect.
    pub fn on_change(&self, hook: PinHook) {
        // A second hook would be a bug in the program's wiring, but no reason to stop.
        drop(self.0.hook.set(hook));
    }

    /// Returns a receiver that changes with every change of a pin.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Applies steps, in the store first, and announces the changes to the log and the hook. Blocks
    /// if there is a store.
    fn take_now(&self, steps: Vec<(PinKey, PinStep)>) -> Result<Vec<PinStepResult>, DbError> {
        let (stepped, stored) = self.store_now(steps, &[])?;
        self.tell(&stored, None, None);
        Ok(stepped)
    }

    /// Removes the pins in `forget` and applies steps, without announcing the changes. Blocks if
    /// there is a store.
    fn store_now(
        &self,
        steps: Vec<(PinKey, PinStep)>,
        forget: &[PinKey],
    ) -> Result<(Vec<PinStepResult>, Vec<StoredPin>), DbError> {
        let now = clock::unix_seconds();
        let taken = match &self.0.db {
            Some(db) => db.take_steps(steps, forget.to_vec(), now).run_now()?,
            None => self.take_in_memory(steps, now),
        };
        let stored = self.put(&taken, forget);
        Ok((taken.stepped, stored))
    }

    /// Computes the results of steps for a registry without a store.
    fn take_in_memory(&self, steps: Vec<(PinKey, PinStep)>, now: u64) -> PinStepResults {
        let book = self.book();
        let take = |(key, step): (PinKey, PinStep)| {
            let after = PinRecord::step(book.of(&key), book.launch_of_tool(&key), &step, now);
            (key, after)
        };
        PinStepResults { stepped: steps.into_iter().map(take).collect(), before: book.epoch, after: book.epoch }
    }

    /// Puts stored records into the table of pins; returns each with the record before it.
    fn put(&self, taken: &PinStepResults, forget: &[PinKey]) -> Vec<StoredPin> {
        let mut book = self.book();
        forget.iter().for_each(|key| book.remove(key));
        // If the table had every change before these steps, it is now complete up to them and need
        // not be read again.
        if book.epoch == taken.before {
            book.epoch = taken.after;
        }
        let records = taken.stepped.iter().filter_map(|(key, after)| Some((key, after.as_ref().ok()?)));
        records
            .map(|(key, record)| {
                let old = book.put(key.clone(), record.clone());
                StoredPin { key: key.clone(), old, new: record.clone() }
            })
            .collect()
    }

    /// Reads and announces changes that other processes wrote. Returns true if there were any.
    ///
    /// # Errors
    /// When the store cannot be read; the table stays as it is.
    pub async fn refresh(&self) -> Result<bool, DbError> {
        let Some(db) = &self.0.db else { return Ok(false) };
        let known = self.book().epoch;
        let Some(table) = db.pins_changed(known).run().await? else { return Ok(false) };
        let news = {
            let mut book = self.book();
            let old = std::mem::replace(&mut *book, build_table(table));
            let stored = book.iter().map(|(key, record)| {
                let (old, new) = (old.of(&key).cloned(), record.clone());
                StoredPin { key, old, new }
            });
            stored.collect::<Vec<_>>()
        };
        self.tell(&news, None, None);
        Ok(true)
    }

    /// Lists all pins, ordered by upstream, kind and name.
    pub fn list(&self) -> Vec<PinView> {
        let book = self.book();
        let mut rows: Vec<(PinKey, &PinRecord)> = book.iter().collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows.iter().map(|(key, record)| PinView::new(key, record, book.launch_of_tool(key))).collect()
    }

    /// Finds the pin with that canonical name. If several kinds of items have the name, the only
    /// one of them that waits or was rejected is meant. Instructions are found only by their kind.
    ///
    /// # Errors
    /// [`PinError`], if there is none, or several.
    pub fn find(&self, name: &str, kind: Option<PinKind>) -> Result<PinView, PinError> {
        let book = self.book();
        self.named(&book, name, kind).map(|(key, record)| PinView::new(&key, record, book.launch_of_tool(&key)))
    }

    fn named<'b>(
        &self,
        book: &'b PinRecords,
        name: &str,
        kind: Option<PinKind>,
    ) -> Result<(PinKey, &'b PinRecord), PinError> {
        let mut found: Vec<(PinKey, &PinRecord)> = book
            .iter()
            .filter(|(key, _)| {
                key.canonical() == name && kind.map_or(key.kind != PinKind::Instructions, |kind| kind == key.kind)
            })
            .collect();
        if found.len() > 1 {
            found.retain(|(_, record)| record.pin.state() != PinState::Pinned);
        }
        match found.len() {
            0 | 1 => found.pop().ok_or_else(|| PinError::Unknown(name.to_owned())),
            _ => Err(PinError::Several(name.to_owned())),
        }
    }

    /// Approves the shown text of a pin for the person `by`. `shown` is the digest of the text that
    /// the operator saw: a later change is not approved.
    ///
    /// # Errors
    /// [`PinError`]; then nothing has changed.
    pub async fn approve(
        &self,
        name: &str,
        kind: Option<PinKind>,
        shown: Digest,
        by: &str,
    ) -> Result<PinView, PinError> {
        self.decide(name, kind, PinStep::Approve { shown, by: Arc::from(by) }).await
    }

    /// Rejects the shown text of a pin for the person `by`; the item stays hidden until it changes
    /// again.
    ///
    /// # Errors
    /// [`PinError`]; then nothing has changed.
    pub async fn reject(
        &self,
        name: &str,
        kind: Option<PinKind>,
        shown: Digest,
        by: &str,
    ) -> Result<PinView, PinError> {
        self.decide(name, kind, PinStep::Reject { shown, by: Arc::from(by) }).await
    }

    /// Reads the latest records, applies one decision, announces it, and returns the pin after it.
    async fn decide(&self, name: &str, kind: Option<PinKind>, step: PinStep) -> Result<PinView, PinError> {
        self.refresh().await?;
        let key = self.named(&self.book(), name, kind)?.0;
        let (now, by) = (clock::unix_seconds(), step.by().cloned());
        let steps = vec![(key.clone(), step)];
        let taken = match &self.0.db {
            Some(db) => db.take_steps(steps, Vec::new(), now).run().await?,
            None => self.take_in_memory(steps, now),
        };
        self.tell(&self.put(&taken, &[]), by.as_ref(), None);
        for (_, after) in taken.stepped {
            drop(after?);
        }
        self.find(name, Some(key.kind))
    }
}

/// Builds the table of pins from stored rows.
fn build_table((epoch, rows): PinTable) -> PinRecords {
    let mut book = PinRecords::default();
    book.epoch = epoch;
    for (key, record) in rows {
        book.put(key, record);
    }
    book
}

#[cfg(test)]
mod tests;
