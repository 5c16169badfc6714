//! Reads the lists of one upstream, on every transport: which page to ask for, which items were
//! read so far, and when to read again.
//!
//! A list that cannot be read keeps its known items, and is read again after a wait, which doubles.
//! A notification that the list has changed ends that wait. Only `-32601` empties a list: the
//! server has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::inventory::{Inventory, ListBounds, ListExcess, ListGap, ListReading, ReadingStep};
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::{ServerOffers, message_of};
use crate::engine::pace::refresh::ListReadAllowance;
use crate::mcp::meta::HopMeta;
use crate::mcp::method::ItemList;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::quirk::Quirk;

/// Longest time that a list which is being read delays the report of the others.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// First wait before a list that could not be read is read again. Each further wait is twice as
/// long.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest wait before a list that could not be read is read again.
const LONGEST: Duration = Duration::from_secs(60);

/// A page of a list, to be asked for.
#[derive(Debug)]
pub struct DuePage {
    pub reading: ListReading,
    cursor: Option<String>,
}

impl DuePage {
    /// Returns the `params` of the request for the page in that revision, if it has any.
    pub fn params(&self, hop: &HopMeta, revision: Revision) -> Option<RawJson> {
        let cursor = self.cursor.as_ref().map(|cursor| format!(r#""cursor":{}"#, RawJson::string(cursor).text()));
        let meta = (revision.era() == Era::Modern).then(|| format!(r#""_meta":{}"#, hop.envelope(revision).text()));
        let members: Vec<String> = cursor.into_iter().chain(meta).collect();
        (!members.is_empty()).then(|| RawJson::trusted(format!("{{{}}}", members.join(","))))
    }
}

/// The failure of a reading of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListTrouble {
    /// Reason, a sentence for the operator; some of its words are the server's.
    pub why: String,
    /// Number of failed attempts in a row.
    pub attempts: u32,
    /// Time of the next attempt.
    pub again: Instant,
}

/// The state of one list.
#[derive(Debug, Default)]
struct ListState {
    is_offered: bool,
    /// True once the list was read in this session, even if a later reading failed.
    is_known: bool,
    /// True if the list must be read: it has changed, or its last reading failed.
    is_stale: bool,
    /// Start of the reading in progress.
    begun: Option<Instant>,
    /// True if its last answer found no room. Meanwhile nothing of the inventory is reported.
    lacks_room: bool,
    /// Time before which the list is not read, unless the server says that it has changed.
    rests_until: Option<Instant>,
    /// Number of readings in a row that gave nothing.
    failures: u32,
    /// The failure of the last reading, and how much it leaves unknown.
    trouble: Option<(ListTrouble, ListGap)>,
    /// True until the end of the last reading is reported to the operator.
    untold: bool,
}

impl ListState {
    /// Returns whether the list must be read and is not being read.
    fn waits(&self) -> bool {
        self.is_stale && self.begun.is_none()
    }

    /// Counts a failure, and sets and returns the time of the next attempt.
    fn rest(&mut self, now: Instant) -> Instant {
        let again = now + SHORTEST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.rests_until = Some(again);
        again
    }

    /// Notes the end of a reading.
    fn ended(&mut self) {
        self.begun = None;
        self.lacks_room = false;
        self.untold = true;
    }
}

/// The lists of one upstream, as far as they are known.
#[derive(Debug)]
pub struct UpstreamLists {
    bounds: ListBounds,
    inventory: Inventory,
    all: [ListState; 4],
    allowance: ListReadAllowance,
    /// Time at which a stale list may be read, if it may not be read yet.
    refresh_at: Option<Instant>,
    /// True if something was read or is known to be missing, and was not reported yet.
    is_news: bool,
    /// Number of readings in a row in which the lists for clients that can be asked failed.
    failures_for_askers: u32,
    /// Quirks of answers that were read all the same, and that are not reported yet.
    quirks: Vec<Quirk>,
}

impl UpstreamLists {
    /// Creates the lists of a server, of which nothing is read before [`Self::begin`].
    pub fn new(bounds: ListBounds) -> Self {
        Self {
            bounds,
            inventory: Inventory::default(),
            all: Default::default(),
            allowance: ListReadAllowance::default(),
            refresh_at: None,
            is_news: false,
            failures_for_askers: 0,
            quirks: Vec::new(),
        }
    }

    fn one(&mut self, list: ItemList) -> &mut ListState {
        let [tools, prompts, resources, templates] = &mut self.all;
        match list {
            ItemList::Tools => tools,
            ItemList::Prompts => prompts,
            ItemList::Resources => resources,
            ItemList::Templates => templates,
        }
    }

    fn each(&mut self) -> impl Iterator<Item = (ItemList, &mut ListState)> {
        ItemList::ALL.into_iter().zip(&mut self.all)
    }

    /// Starts a session: everything that the server offers is to be read, and all other lists are
    /// empty.
    pub fn begin(&mut self, offers: ServerOffers) {
        self.inventory.completions = offers.completions;
        self.inventory.extensions = offers.extensions;
        self.inventory.logging = offers.logging;
        self.inventory.skipped.clear();
        self.is_news = false;
        for list in ItemList::ALL {
            let is_offered = match list {
                // Some servers forget to declare their tools.
                ItemList::Tools => true,
                ItemList::Prompts => offers.prompts,
                ItemList::Resources | ItemList::Templates => offers.resources,
            };
            if !is_offered {
                self.inventory.replace(list, Vec::new());
                self.inventory.set_excess(list, ListExcess::default());
            }
            *self.one(list) =
                ListState { is_offered, is_stale: is_offered, untold: !is_offered, ..ListState::default() };
        }
    }

    /// Sets the server's instructions of the session; they are reported with its lists.
    pub fn set_instructions(&mut self, instructions: Option<Arc<str>>) {
        self.inventory.instructions = instructions;
    }

    /// Marks these lists to be read again, as far as the server has them, and ends their waits.
    pub fn changed(&mut self, lists: &[ItemList]) {
        for &list in lists {
            let one = self.one(list);
            one.is_stale |= one.is_offered;
            one.rests_until = None;
        }
    }

    /// Marks all lists to be read again, except those that wait after a failure: the server may
    /// have reported changes while its stream was closed.
    pub fn reopened(&mut self, now: Instant) {
        for (_, one) in self.each() {
            let rests = one.rests_until.is_some_and(|until| now < until);
            one.is_stale |= one.is_offered && !rests;
        }
    }

    /// Notes how long it took to judge what was read. The lists rest accordingly before they are
    /// read again.
    pub fn judged(&mut self, took: Duration, now: Instant) {
        self.allowance.judged(took, now);
    }

    /// Ends the waits of lists that could not be read, because the operator wants to know.
    pub fn retry(&mut self) {
        self.each().filter(|(_, one)| one.trouble.is_some()).for_each(|(_, one)| one.rests_until = None);
    }

    /// Begins to read the next list that is due, and returns its first page. At most one reading of
    /// a list runs, and at most one waits, which sees all changes until it begins.
    pub fn next(&mut self, now: Instant) -> Option<DuePage> {
        let Self { all, allowance, .. } = self;
        self.refresh_at = None;
        for (list, one) in ItemList::ALL.into_iter().zip(all).filter(|(_, one)| one.waits()) {
            let rested = one.rests_until.is_none_or(|until| until <= now);
            if rested && allowance.take(list, now) {
                (one.is_stale, one.rests_until, one.begun) = (false, None, Some(now));
                return Some(DuePage { reading: ListReading::new(list, self.bounds), cursor: None });
            }
            let due = one.rests_until.unwrap_or(now).max(allowance.due(list, now));
            self.refresh_at = Some(self.refresh_at.map_or(due, |at| at.min(due)));
        }
        None
    }

    /// Returns when [`Self::next`] may have another list, or [`Self::news`] something to report.
    pub fn refresh_at(&self) -> Option<Instant> {
        let may_tell = self.is_news && !self.all.iter().any(|one| one.lacks_room);
        let youngest = self.all.iter().filter_map(|one| one.begun).max().filter(|_| may_tell);
        [self.refresh_at, youngest.map(|begun| begun + PATIENCE)].into_iter().flatten().min()
    }

    /// Takes the answer to a page, which may come after the page was given up. Returns the next
    /// page, or at the end of the list a fault if it was not whole. If the list cannot be read, the
    /// inventory keeps its known items.
    pub fn answered(
        &mut self,
        mut reading: ListReading,
        answer: Result<RawJson, RawJson>,
        now: Instant,
    ) -> (Option<DuePage>, Option<ProtocolFault>) {
        let list = reading.list;
        let read = match answer {
            Ok(result) => Ok(reading.page(&result)),
            Err(error) => reading.refused(code_of(&error)).map(Ok).ok_or(error),
        };
        self.note(reading.take_quirks());
        match read {
            Ok(Ok(ReadingStep::Page(cursor))) => {
                self.one(list).begun.get_or_insert(now);
                (Some(DuePage { reading, cursor: Some(cursor) }), None)
            }
            Ok(Ok(ReadingStep::Done { items, skipped, excess, endless })) => {
                let is_whole = skipped.is_empty() && endless.is_none();
                // The first reading of a session has no reading to be compared with.
                let differs = self.one(list).is_known && !self.inventory.has_same(list, &items);
                self.allowance.ended(list, differs, now);
                self.inventory.replace(list, items);
                self.inventory.set_excess(list, excess);
                self.inventory.skipped.extend(skipped);
                match endless {
                    Some(why) => self.failed(list, &why, now),
                    None => self.read(list),
                }
                self.is_news = true;
                (None, (!is_whole).then_some(ProtocolFault::BadList))
            }
            Ok(Err(error)) => {
                self.failed(list, &format!("its answer is no list: {error}"), now);
                (None, Some(ProtocolFault::BadList))
            }
            Err(error) if code_of(&error) == Some(code::METHOD_NOT_FOUND) => {
                self.inventory.replace(list, Vec::new());
                self.inventory.set_excess(list, ListExcess::default());
                let failures = self.one(list).failures;
                self.read(list);
                let one = self.one(list);
                one.failures = failures;
                one.rest(now);
                (None, None)
            }
            Err(error) => {
                let code = code_of(&error).map(|code| format!(" ({code})")).unwrap_or_default();
                self.failed(list, &format!("refused: {}{code}", message_of(&error)), now);
                (None, Some(ProtocolFault::BadList))
            }
        }
    }

    /// Keeps quirks until they are reported; each kind once, which bounds them.
    fn note(&mut self, quirks: Vec<Quirk>) {
        for quirk in quirks {
            if !self.quirks.contains(&quirk) {
                self.quirks.push(quirk);
            }
        }
    }

    /// Takes the quirks of the answers since the last call.
    pub fn take_quirks(&mut self) -> Vec<Quirk> {
        std::mem::take(&mut self.quirks)
    }

    /// Notes that a list was read.
    fn read(&mut self, list: ItemList) {
        let one = self.one(list);
        if one.trouble.take().is_some() && one.rests_until.is_some() {
            // The answer came late, so the attempt that was due is not needed.
            one.is_stale = false;
        }
        one.is_known = true;
        (one.rests_until, one.failures) = (None, 0);
        one.ended();
        self.is_news = true;
    }

    /// Notes that a list could not be read, or not in time. It is read again after a wait.
    pub fn failed(&mut self, list: ItemList, why: &str, now: Instant) {
        self.fails(list, why, ListGap::Unread, now);
    }

    /// Notes that only one part of a list could not be read: the items that are shown to clients
    /// that can be asked. Does nothing if the list itself could not be read.
    pub fn failed_for_askers(&mut self, list: ItemList, why: &str, now: Instant) {
        let failures = self.failures_for_askers;
        let one = self.one(list);
        if one.is_offered && one.trouble.is_none() {
            one.failures = failures;
            self.fails(list, why, ListGap::Askers, now);
        }
    }

    /// Notes whether the lists for clients that can be asked were read as a whole, which decides
    /// how long their next wait is.
    pub fn read_for_askers(&mut self, is_whole: bool) {
        self.failures_for_askers = if is_whole { 0 } else { self.failures_for_askers.saturating_add(1) };
    }

    /// Notes the failure of a reading, and sets the time of the next attempt.
    fn fails(&mut self, list: ItemList, why: &str, gap: ListGap, now: Instant) {
        let one = self.one(list);
        let again = one.rest(now);
        let is_news = one.trouble.is_none() && gap == ListGap::Unread;
        let trouble = ListTrouble { why: why.to_owned(), attempts: one.failures, again };
        one.trouble = Some((trouble, gap));
        one.is_stale = true;
        one.ended();
        self.is_news |= is_news;
    }

    /// Notes that the gateway had no room for an answer, of which the server knows nothing. The
    /// list is read again when it is due, without a wait.
    pub fn no_room(&mut self, list: ItemList) {
        let one = self.one(list);
        (one.begun, one.is_stale, one.lacks_room) = (None, true, true);
    }

    /// Returns whether any list is being read.
    pub(crate) fn are_read(&self) -> bool {
        self.all.iter().any(|one| one.begun.is_some())
    }

    /// Takes the end of a reading that was not reported yet: the list, and the trouble if it
    /// failed.
    pub fn told(&mut self) -> Option<(ItemList, Option<ListTrouble>)> {
        let (list, one) = self.each().find(|(_, one)| one.untold)?;
        one.untold = false;
        Some((list, one.trouble.as_ref().map(|(trouble, _)| trouble.clone())))
    }

    /// Takes the inventory once something in it is new. Lists that are being read delay it by
    /// [`PATIENCE`] at most; one that takes longer is a gap, unless it was read before.
    pub fn news(&mut self, now: Instant) -> Option<Inventory> {
        let waits = |one: &ListState| one.lacks_room || one.begun.is_some_and(|begun| now < begun + PATIENCE);
        if !self.is_news || self.all.iter().any(waits) {
            return None;
        }
        self.is_news = false;
        for (list, one) in ItemList::ALL.into_iter().zip(&self.all) {
            let awaited = (one.is_offered && !one.is_known).then_some(ListGap::Awaited);
            self.inventory.set_gap(list, one.trouble.as_ref().map(|(_, gap)| *gap).or(awaited));
        }
        let news = self.inventory.clone();
        self.inventory.skipped.clear();
        Some(news)
    }
}

/// Returns the code of an error object.
fn code_of(error: &RawJson) -> Option<i64> {
    RawObject::parse(error).ok()?.get("code")?.parse().ok()
}

#[cfg(test)]
mod tests;
