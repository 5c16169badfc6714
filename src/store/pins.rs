//! The pin registry: the approved text of each definition and launch, shared by all upstreams.
//!
//! In memory, and in the store if there is a state directory. Processes that share one agree: every step is one
//! operation on the records on disk, and a process reads the others' writes when the number of changes differs. An item
//! whose pin cannot be written stays hidden.
//!
//! The lock guards the table of pins, one operation at a time, never across an await.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use strum::VariantArray as _;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::base::clock;
use crate::base::tally::Tally;
use crate::catalog::name::UpstreamName;
use crate::mcp::item::Definition;
use crate::mcp::method::List;
use crate::policy::{Digest, Entry, Event, OnChange, PinState, Reading, Trust};
use crate::store::db::{Db, DbError};
use crate::wire::foreign;

mod book;
mod error;
mod forms;
mod launch;
mod launch_text;
mod many;
mod standing;
mod view;

pub(crate) use self::book::{PinKey, PinKind, PinTable, Record, Step, Stepped};
pub(crate) use self::error::PinError;
pub(crate) use self::forms::{Forms, Listed};
pub(crate) use self::launch::{Found, LaunchGate, program_of, searched};
pub(crate) use self::launch_text::is_private;
pub(crate) use self::many::{Decision, matcher};
pub(crate) use self::view::PinView;

use self::book::{Book, Text};

/// A pin has changed, or is new.
#[derive(Clone, Debug)]
pub(crate) struct PinChange {
    pub(crate) key: PinKey,
    /// The digest that is no longer pinned: its grants end.
    pub(crate) over: Option<Digest>,
    pub(crate) state: PinState,
    /// Digest of the pinned or waiting text.
    pub(crate) digest: Option<Digest>,
    /// Who, or which circumstance.
    pub(crate) why: Arc<str>,
    /// The person who decided in this process; `None` for a circumstance.
    pub(crate) by: Option<Arc<str>>,
}

impl PinChange {
    /// The audit record of the change.
    pub(crate) fn entry(&self) -> Entry {
        let is_launch = self.key.kind == PinKind::Launch;
        Entry {
            upstream: Some(self.key.upstream.shared()),
            item: Some(Arc::from(self.key.canonical())),
            definition: self.digest,
            result: self.state.into_str(),
            by: self.by.clone(),
            why: self.why.to_string().into(),
            ..Entry::new(if is_launch { Event::Launch } else { Event::Pin })
        }
    }
}

/// Told of every change, outside of the lock.
pub(crate) type PinHook = Box<dyn Fn(&PinChange) + Send + Sync>;

/// Trust in an upstream's definitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tier {
    pub(crate) trust: Trust,
    pub(crate) on_change: OnChange,
    /// Pins of one kind, those of items that are gone included.
    pub(crate) most: usize,
}

/// The verdict about a listed item.
#[derive(Clone, Debug)]
pub(crate) enum Judged {
    /// Clients may see it as it is.
    Shown,
    /// They may see it in this form, which was pinned.
    AsPinned(Box<Definition>),
    Away(Away),
}

/// Why an item is hidden from clients.
#[derive(Clone, Debug)]
pub(crate) struct Away {
    pub(crate) why: String,
    /// The state of its pin, if it has one.
    pub(crate) state: Option<PinState>,
    /// It would be shown, or wait, if the store took its pin.
    pub(crate) is_unkept: bool,
}

impl Away {
    /// Whether it waits for the operator.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, Some(PinState::Changed | PinState::Quarantined))
    }
}

/// The pin registry. Clones are the same.
#[derive(Clone)]
pub(crate) struct Pins(Arc<Shared>);

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
    pub(crate) fn memory() -> Self {
        Self::new(Book::default(), None)
    }

    /// The registry in the state directory. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(db: Db) -> Result<Self, DbError> {
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
    pub(crate) fn takes_writes(&self) -> bool {
        self.0.db.as_ref().is_none_or(|db| db.health().is_writable())
    }

    /// Calls the hook for every change; the first hook stays.
    pub(crate) fn on_change(&self, hook: PinHook) {
        // A second one would be a mistake of the program's wiring, which is no reason to stop.
        drop(self.0.hook.set(hook));
    }

    /// Counts changes, for views of pins.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Judges the items that an upstream lists. New and changed items are stored before this returns. `reading`: the tools among them
    /// are all that it has. `is_recalled`: the items are those of an earlier run, so that one that is as approved does not
    /// replace the change that waits. `doubt` names a reason against an item; it is called only for a decision.
    pub(crate) fn judge(
        &self,
        upstream: &UpstreamName,
        tier: Tier,
        (items, is_recalled): (&[&Definition], bool),
        reading: Option<Reading>,
        doubt: &dyn Fn(&Definition) -> Option<String>,
    ) -> Vec<Judged> {
        let (unsettled, reading): (Vec<&Definition>, _) = {
            let book = self.book();
            let launch = book.launch(upstream);
            // A list that the launch has not been confirmed by yet.
            let reading = launch.zip(reading).filter(|(launch, reading)| launch.after(*reading) != launch.confirmed);
            let is_first = |item: &Definition, record: &Record| {
                let confirms = |(launch, reading): (&Record, Reading)| {
                    launch.takes(reading, item.audience.is_all()) && !record.confirmed.is_for(reading.launch)
                };
                item.list == List::Tools && reading.is_some_and(confirms)
            };
            let known = |item: &&&Definition| {
                let record = book.get(upstream, PinKind::of(item.list), &item.key);
                record.is_some_and(|record| {
                    let digest = record.known_as(Listed::of(item));
                    let is_stale = is_recalled && record.pin.approved() == Some(digest);
                    is_stale || settled(record, digest, tier) && !is_first(item, record)
                })
            };
            (items.iter().filter(|item| !known(item)).copied().collect(), reading.map(|(_, reading)| reading))
        };
        let trouble = if unsettled.is_empty() && reading.is_none() {
            None
        } else {
            let (forget, left_out) = self.make_room(upstream, tier.most, items, &unsettled);
            let taken = |item: &&&Definition| !left_out.contains(&(PinKind::of(item.list), item.key.as_str()));
            let steps = unsettled.iter().filter(taken).map(|item| {
                let text = Text { digest: item.digest, text: Arc::from(item.canonical_text()) };
                let (listed, doubt) = (Listed::of(item), doubt(item));
                let (trust, on_change, is_for_all) = (tier.trust, tier.on_change, item.audience.is_all());
                let step = Step::Seen { text, listed, trust, on_change, doubt, reading, is_for_all };
                (key(upstream, item), step)
            });
            let listed = reading.map(|reading| (PinKey::launch(upstream), Step::Listed(reading)));
            self.take_now(steps.chain(listed).collect(), &forget).err()
        };
        let book = self.book();
        let judged = items.iter().map(|item| {
            let record = book.get(upstream, PinKind::of(item.list), &item.key);
            let digest = record.map(|record| record.known_as(Listed::of(item)));
            match record.zip(digest) {
                Some((record, digest)) if record.pin.shows(digest) => {
                    record.shown(item, digest).map_or(Judged::Shown, |item| Judged::AsPinned(Box::new(item)))
                }
                Some((record, _)) => Judged::Away(away(record, trouble.as_ref())),
                None => {
                    let why = trouble.as_ref().map_or_else(
                        || format!("{} items of its kind were seen, more are not taken", tier.most),
                        |error| format!("its pin cannot be kept: {error}"),
                    );
                    Judged::Away(Away { why, state: None, is_unkept: trouble.is_some() })
                }
            }
        });
        judged.collect()
    }

    /// Drops pins of vanished items for new ones, and names the new items that find no room: the last ones in the upstream's order.
    /// Resources come and go; pins of tools and prompts never give way, so that a server cannot push one out to bring it
    /// back changed.
    fn make_room<'i>(
        &self,
        upstream: &UpstreamName,
        most: usize,
        items: &[&Definition],
        unsettled: &[&'i Definition],
    ) -> (Vec<PinKey>, HashSet<(PinKind, &'i str)>) {
        let book = self.book();
        let (mut forget, mut left_out) = (Vec::new(), HashSet::new());
        for &kind in PinKind::VARIANTS {
            let new =
                |item: &&&Definition| PinKind::of(item.list) == kind && book.get(upstream, kind, &item.key).is_none();
            let news: Vec<&'i Definition> = unsettled.iter().filter(new).copied().collect();
            let over = (book.kind(upstream, kind).count() + news.len()).saturating_sub(most);
            if news.is_empty() || over == 0 {
                continue;
            }
            let listed: HashSet<&str> =
                items.iter().filter(|item| PinKind::of(item.list) == kind).map(|item| item.key.as_str()).collect();
            let gone = |(name, record): &(&String, &Record)| {
                record.pin.state() == PinState::Pinned && !listed.contains(name.as_str())
            };
            let mut old: Vec<(u64, &String)> =
                book.kind(upstream, kind).filter(gone).map(|(name, record)| (record.at, name)).collect();
            old.sort_unstable();
            let gives_way = if matches!(kind, PinKind::Resource | PinKind::Template) { over.min(old.len()) } else { 0 };
            let keys = old.into_iter().take(gives_way);
            forget.extend(keys.map(|(_, name)| PinKey { upstream: upstream.clone(), kind, name: name.clone() }));
            left_out.extend(news.iter().rev().take(over - gives_way).map(|item| (kind, item.key.as_str())));
        }
        (forget, left_out)
    }

    /// Takes steps, on disk first. Blocks where there is a disk.
    fn take_now(&self, steps: Vec<(PinKey, Step)>, forget: &[PinKey]) -> Result<Vec<Stepped>, DbError> {
        let now = clock::unix_seconds();
        let stepped = match &self.0.db {
            Some(db) => db.take_steps(steps, forget.to_vec(), now).run_now()?,
            None => self.take_in_memory(steps, now),
        };
        self.write_down(&stepped, forget, None);
        Ok(stepped)
    }

    fn take_in_memory(&self, steps: Vec<(PinKey, Step)>, now: u64) -> Vec<Stepped> {
        let book = self.book();
        let take = |(key, step): (PinKey, Step)| {
            let after = Record::step(book.of(&key), book.launch_of_tool(&key), &step, now);
            (key, after)
        };
        steps.into_iter().map(take).collect()
    }

    /// Stores the decisions, those of the person `by` if there is one, and announces them.
    fn write_down(&self, stepped: &[Stepped], forget: &[PinKey], by: Option<&Arc<str>>) {
        let mut news = Vec::new();
        {
            let mut book = self.book();
            forget.iter().for_each(|key| book.remove(key));
            for (key, after) in stepped {
                let Ok(record) = after else { continue };
                let old = book.put(key.clone(), record.clone());
                news.push((key.clone(), old, record.clone()));
            }
        }
        self.tell(&news, by);
    }

    fn tell(&self, news: &[(PinKey, Option<Record>, Record)], by: Option<&Arc<str>>) {
        let mut any = false;
        for (key, old, new) in news {
            let same = old.as_ref().filter(|old| old.pin == new.pin);
            let is_decided = same.is_some_and(|old| (&old.by, old.at) != (&new.by, new.at));
            if same.is_some_and(|old| old.confirmed == new.confirmed) {
                continue;
            }
            any = true;
            // The first inventory of a launch is not announced, an operator's confirmation is.
            if same.is_some() && !is_decided {
                continue;
            }
            log(key, old.as_ref(), new);
            let (was, pinned) = (old.as_ref().and_then(Record::visible), new.visible());
            // Trust-on-first-use pins are not announced.
            let is_news = old.is_some() || new.pin.state() != PinState::Pinned;
            if let Some(hook) = self.0.hook.get().filter(|_| is_news) {
                let over = was.filter(|was| pinned != Some(*was));
                let digest = new.pin.waiting().or(new.pin.approved());
                let (state, why) = (new.pin.state(), Arc::clone(&new.by));
                hook(&PinChange { key: key.clone(), over, state, digest, why, by: by.cloned() });
            }
        }
        if any {
            self.0.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Reads what other processes wrote; true when there was something.
    ///
    /// # Errors
    /// When it cannot be read; the book stays.
    pub(crate) async fn refresh(&self) -> Result<bool, DbError> {
        let Some(db) = &self.0.db else { return Ok(false) };
        let known = self.book().epoch;
        let Some(table) = db.pins_changed(known).run().await? else { return Ok(false) };
        let news = {
            let mut book = self.book();
            let old = std::mem::replace(&mut *book, filled(table));
            let news = book.iter().map(|(key, record)| (key.clone(), old.of(&key).cloned(), record.clone()));
            news.collect::<Vec<_>>()
        };
        self.tell(&news, None);
        Ok(true)
    }

    /// All pins, by upstream and name.
    pub(crate) fn list(&self) -> Vec<PinView> {
        let book = self.book();
        let mut rows: Vec<(PinKey, &Record)> = book.iter().collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows.iter().map(|(key, record)| PinView::new(key, record, book.launch_of_tool(key))).collect()
    }

    /// The pin of that name, as it is shown. Of several, the one that waits.
    ///
    /// # Errors
    /// [`PinError`] when there is none, or more than one that waits.
    pub(crate) fn find(&self, name: &str, kind: Option<PinKind>) -> Result<PinView, PinError> {
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
    pub(crate) async fn approve(
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
    pub(crate) async fn reject(
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
        let stepped = match &self.0.db {
            Some(db) => db.take_steps(steps, Vec::new(), now).run().await?,
            None => self.take_in_memory(steps, now),
        };
        self.write_down(&stepped, &[], by.as_ref());
        for (_, after) in stepped {
            drop(after?);
        }
        self.find(name, Some(key.kind))
    }
}

/// Whether nothing is to be decided about an item with that digest.
fn settled(record: &Record, digest: Digest, tier: Tier) -> bool {
    if record.pin.shows(digest) {
        return true;
    }
    let accepts = tier.on_change == OnChange::Accept && record.pin.state() == PinState::Changed;
    record.pin.waiting() == Some(digest) && !accepts
}

fn key(upstream: &UpstreamName, item: &Definition) -> PinKey {
    PinKey { upstream: upstream.clone(), kind: PinKind::of(item.list), name: item.key.clone() }
}

fn filled((epoch, rows): PinTable) -> Book {
    let mut book = Book::default();
    book.epoch = epoch;
    for (key, record) in rows {
        book.put(key, record);
    }
    book
}

fn away(record: &Record, trouble: Option<&DbError>) -> Away {
    let state = record.pin.state();
    let why = match (state, trouble) {
        (PinState::Changed, _) => "its definition changed".to_owned(),
        (PinState::Quarantined, _) => format!("it waits for approval ({})", record.by),
        (PinState::Rejected, _) => "it was rejected".to_owned(),
        // Its text is not the pinned one, and that could not be written down.
        (PinState::Pinned, Some(error)) => format!("its definition changed, and its pin cannot be kept: {error}"),
        (PinState::Pinned, None) => "its definition changed".to_owned(),
    };
    Away { why, state: Some(state), is_unkept: false }
}

/// Lines about definitions that changed, which a server can do as often as it likes.
static CHANGED: Tally = Tally::of(200);

/// One line for each change, with digests and never a text.
fn log(key: &PinKey, old: Option<&Record>, new: &Record) {
    let name = key.canonical();
    let short = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.short());
    let (approved, waiting) = (short(new.pin.approved()), short(new.pin.waiting()));
    let (item, kind, why) = (foreign::line(&name), key.kind.into_str(), &*new.by);
    match (new.pin.state(), old) {
        (PinState::Pinned, None) => tracing::debug!(item = %item, kind, approved, "pinned at first sight"),
        (PinState::Pinned, Some(_)) => tracing::info!(item = %item, kind, approved, why, "pinned"),
        (PinState::Rejected, _) => tracing::info!(item = %item, kind, waiting, why, "rejected"),
        (PinState::Changed, _) => {
            if let Some(count) = CHANGED.count(clock::uptime()) {
                tracing::warn!(item = %item, kind, approved, waiting, why, count, "changed and withheld");
            }
        }
        // The supervisor logs withheld items.
        (PinState::Quarantined, _) => tracing::debug!(item = %item, kind, waiting, why, "waits for approval"),
    }
}

#[cfg(test)]
mod tests;
