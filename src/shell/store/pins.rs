//! The pin registry: the approved text of each definition and launch, shared by all upstreams.
//!
//! In memory, and in the store if there is a state directory. Processes that share one agree: every step is one
//! operation on the records on disk, and a process reads the others' writes when the number of changes differs. An item
//! whose pin cannot be written stays hidden.
//!
//! The lock guards the table of pins, one operation at a time, never across an await.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::base::clock;
use crate::mcp::item::Definition;
use crate::policy::{Digest, OnChange, PinState, Trust};
use crate::store::db::{Db, DbError};
use crate::store::pin_record::{PinKey, Record, Step};
use crate::store::port::{PinTable, Stepped, Taken};

mod announce;
mod book;
mod error;
mod judge;
mod launch;
mod many;
mod news;
mod standing;
mod view;

pub use self::error::PinError;
pub use self::judge::ListedItems;
pub use self::launch::{Found, LaunchGate, program_of, searched};
pub use self::many::{Decision, matcher};
pub use self::news::{PinHook, PinNews};
pub use self::view::PinView;
pub use crate::store::pin_record::PinKind;

use self::book::Book;
use self::news::Stored;

/// Trust in an upstream's definitions.
#[derive(Clone, Copy, Debug)]
pub struct Tier {
    pub trust: Trust,
    pub on_change: OnChange,
    /// Pins of one kind, those of items that are gone included.
    pub most: usize,
}

/// The verdict about a listed item.
#[derive(Clone, Debug)]
pub enum Judged {
    /// Clients may see it as it is.
    Shown,
    /// They may see it in this form, which was pinned.
    AsPinned(Box<Definition>),
    Away(Away),
}

/// Why an item is hidden from clients.
#[derive(Clone, Debug)]
pub struct Away {
    pub why: String,
    /// The state of its pin, if it has one.
    pub state: Option<PinState>,
    /// It would be shown, or wait, if the store took its pin.
    pub is_unkept: bool,
}

impl Away {
    /// Whether it waits for the operator.
    pub fn waits(&self) -> bool {
        matches!(self.state, Some(PinState::Changed | PinState::Quarantined))
    }
}

/// The pin registry. Clones are the same.
#[derive(Clone)]
pub struct Pins(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    db: Option<Db>,
    hook: OnceLock<PinHook>,
    changed: watch::Sender<u64>,
}

impl std::fmt::Debug for Pins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pins({})", if self.0.db.is_some() { "kept" } else { "in memory" })
    }
}

impl Pins {
    /// A registry that ends with the process.
    pub fn memory() -> Self {
        Self::new(Book::default(), None)
    }

    /// The registry in the state directory. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(db: Db) -> Result<Self, DbError> {
        let book = filled(db.open_pins()?);
        Ok(Self::new(book, Some(db)))
    }

    fn new(book: Book, db: Option<Db>) -> Self {
        let shared = Shared { book: Mutex::new(book), db, hook: OnceLock::new(), changed: watch::channel(0).0 };
        Self(Arc::new(shared))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock()
    }

    /// Whether new and changed items can be stored.
    pub fn takes_writes(&self) -> bool {
        self.0.db.as_ref().is_none_or(|db| db.health().is_writable())
    }

    /// Calls the hook for every change; the first hook stays.
    pub fn on_change(&self, hook: PinHook) {
        // A second one would be a mistake of the program's wiring, which is no reason to stop.
        drop(self.0.hook.set(hook));
    }

    /// Counts changes, for views of pins.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Takes steps, on disk first, and announces the changes. Blocks where there is a disk.
    fn take_now(&self, steps: Vec<(PinKey, Step)>) -> Result<Vec<Stepped>, DbError> {
        let (stepped, stored) = self.store_now(steps, &[])?;
        self.tell(&stored, None, None);
        Ok(stepped)
    }

    /// Removes pins and takes steps without a word about them. Blocks where there is a disk.
    fn store_now(&self, steps: Vec<(PinKey, Step)>, forget: &[PinKey]) -> Result<(Vec<Stepped>, Vec<Stored>), DbError> {
        let now = clock::unix_seconds();
        let taken = match &self.0.db {
            Some(db) => db.take_steps(steps, forget.to_vec(), now).run_now()?,
            None => self.take_in_memory(steps, now),
        };
        let stored = self.put(&taken, forget);
        Ok((taken.stepped, stored))
    }

    fn take_in_memory(&self, steps: Vec<(PinKey, Step)>, now: u64) -> Taken {
        let book = self.book();
        let take = |(key, step): (PinKey, Step)| {
            let after = Record::step(book.of(&key), book.launch_of_tool(&key), &step, now);
            (key, after)
        };
        Taken { stepped: steps.into_iter().map(take).collect(), before: book.epoch, after: book.epoch }
    }

    /// Puts what is stored into the table of pins.
    fn put(&self, taken: &Taken, forget: &[PinKey]) -> Vec<Stored> {
        let mut book = self.book();
        forget.iter().for_each(|key| book.remove(key));
        // The table has every change up to these steps, so it need not be read again for them.
        if book.epoch == taken.before {
            book.epoch = taken.after;
        }
        let records = taken.stepped.iter().filter_map(|(key, after)| Some((key, after.as_ref().ok()?)));
        records
            .map(|(key, record)| {
                let old = book.put(key.clone(), record.clone());
                Stored { key: key.clone(), old, new: record.clone() }
            })
            .collect()
    }

    /// Reads what other processes wrote; true when there was something.
    ///
    /// # Errors
    /// When it cannot be read; the book stays.
    pub async fn refresh(&self) -> Result<bool, DbError> {
        let Some(db) = &self.0.db else { return Ok(false) };
        let known = self.book().epoch;
        let Some(table) = db.pins_changed(known).run().await? else { return Ok(false) };
        let news = {
            let mut book = self.book();
            let old = std::mem::replace(&mut *book, filled(table));
            let stored = book.iter().map(|(key, record)| {
                let (old, new) = (old.of(&key).cloned(), record.clone());
                Stored { key, old, new }
            });
            stored.collect::<Vec<_>>()
        };
        self.tell(&news, None, None);
        Ok(true)
    }

    /// All pins, by upstream and name.
    pub fn list(&self) -> Vec<PinView> {
        let book = self.book();
        let mut rows: Vec<(PinKey, &Record)> = book.iter().collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows.iter().map(|(key, record)| PinView::new(key, record, book.launch_of_tool(key))).collect()
    }

    /// The pin of that name, as it is shown. Of several, the one that waits.
    ///
    /// # Errors
    /// [`PinError`] when there is none, or more than one that waits.
    pub fn find(&self, name: &str, kind: Option<PinKind>) -> Result<PinView, PinError> {
        let book = self.book();
        self.named(&book, name, kind).map(|(key, record)| PinView::new(&key, record, book.launch_of_tool(&key)))
    }

    fn named<'b>(&self, book: &'b Book, name: &str, kind: Option<PinKind>) -> Result<(PinKey, &'b Record), PinError> {
        let mut found: Vec<(PinKey, &Record)> = book
            .iter()
            .filter(|(key, _)| key.canonical() == name && kind.is_none_or(|kind| kind == key.kind))
            .collect();
        if found.len() > 1 {
            found.retain(|(_, record)| record.pin.state() != PinState::Pinned);
        }
        match found.len() {
            0 | 1 => found.pop().ok_or_else(|| PinError::Unknown(name.to_owned())),
            _ => Err(PinError::Several(name.to_owned())),
        }
    }

    /// Approves the shown text. `digest` is that of the text that the operator saw: a later change is not approved.
    ///
    /// # Errors
    /// [`PinError`]; nothing changed then.
    pub async fn approve(
        &self,
        name: &str,
        kind: Option<PinKind>,
        shown: Digest,
        by: &str,
    ) -> Result<PinView, PinError> {
        self.decide(name, kind, Step::Approve { shown, by: Arc::from(by) }).await
    }

    /// Rejects the shown text; the item stays hidden until it changes once more.
    ///
    /// # Errors
    /// [`PinError`]; nothing changed then.
    pub async fn reject(
        &self,
        name: &str,
        kind: Option<PinKind>,
        shown: Digest,
        by: &str,
    ) -> Result<PinView, PinError> {
        self.decide(name, kind, Step::Reject { shown, by: Arc::from(by) }).await
    }

    async fn decide(&self, name: &str, kind: Option<PinKind>, step: Step) -> Result<PinView, PinError> {
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

fn filled((epoch, rows): PinTable) -> Book {
    let mut book = Book::default();
    book.epoch = epoch;
    for (key, record) in rows {
        book.put(key, record);
    }
    book
}

#[cfg(test)]
mod tests;
