//! The lists of one upstream: the page to ask for, the items read so far, and the time to read again. For every
//! transport.
//!
//! A list that cannot be read keeps the items that were known and is read again after a while, which doubles. A notice of the server
//! that the list has changed is the end of that wait. Only `-32601` empties a list: the server has none.

use std::time::{Duration, Instant};

use crate::catalog::inventory::{Excess, Gap, Inventory, ListBounds, Next, Reading};
use crate::engine::fault::Fault;
use crate::engine::handshake::{Offers, message_of};
use crate::engine::refresh::Allowance;
use crate::mcp::meta::HopMeta;
use crate::mcp::method::List;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::quirk::Quirk;
use crate::wire::raw::{RawJson, RawObject};

/// How long the other lists wait for one that is being read.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Waits before a list that could not be read is read again; each is twice as long as the one before.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// A page to ask for.
#[derive(Debug)]
pub struct Page {
    pub reading: Reading,
    cursor: Option<String>,
}

impl Page {
    /// `params` of the request for it in that revision.
    pub fn params(&self, hop: &HopMeta, revision: Revision) -> Option<RawJson> {
        let cursor = self.cursor.as_ref().map(|cursor| format!(r#""cursor":{}"#, RawJson::string(cursor).text()));
        let meta = (revision.era() == Era::Modern).then(|| format!(r#""_meta":{}"#, hop.envelope(revision).text()));
        let members: Vec<String> = cursor.into_iter().chain(meta).collect();
        (!members.is_empty()).then(|| RawJson::trusted(format!("{{{}}}", members.join(","))))
    }
}

/// Why a list could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A sentence for the operator; some of its words are the server's.
    pub why: String,
    /// Attempts in a row.
    pub attempts: u32,
    /// When it is tried again.
    pub again: Instant,
}

/// One list.
#[derive(Debug, Default)]
struct One {
    is_offered: bool,
    /// It was read in this session, whatever came since.
    is_known: bool,
    /// It has changed, or its last reading failed.
    is_stale: bool,
    /// Since when it is being read.
    begun: Option<Instant>,
    /// Its last answer found no room. Without it nothing is told of what the server offers.
    lacks_room: bool,
    /// It is not read before that time, unless the server says that it has changed.
    rests_until: Option<Instant>,
    /// Readings in a row that gave nothing.
    failures: u32,
    /// Why the last reading failed, and how much it leaves unknown.
    trouble: Option<(Trouble, Gap)>,
    /// The operator has not been told how the last reading ended.
    untold: bool,
}

impl One {
    fn waits(&self) -> bool {
        self.is_stale && self.begun.is_none()
    }

    /// Sets the time of the next attempt.
    fn rest(&mut self, now: Instant) -> Instant {
        let again = now + SHORTEST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.rests_until = Some(again);
        again
    }

    fn ended(&mut self) {
        self.begun = None;
        self.lacks_room = false;
        self.untold = true;
    }
}

/// What is known of an upstream's lists.
#[derive(Debug)]
pub struct Lists {
    bounds: ListBounds,
    inventory: Inventory,
    all: [One; 4],
    allowance: Allowance,
    /// When a stale list may be read, if that is not yet.
    refresh_at: Option<Instant>,
    /// Something was read or is known to be missing, and was not told yet.
    is_news: bool,
    /// Readings in a row whose part for clients that can be asked failed.
    failures_for_askers: u32,
    /// Ways in which answers broke the protocol and were read all the same; not told yet.
    quirks: Vec<Quirk>,
}

impl Lists {
    /// Nothing is read before [`Self::begin`].
    pub fn new(bounds: ListBounds) -> Self {
        Self {
            bounds,
            inventory: Inventory::default(),
            all: Default::default(),
            allowance: Allowance::default(),
            refresh_at: None,
            is_news: false,
            failures_for_askers: 0,
            quirks: Vec::new(),
        }
    }

    fn one(&mut self, list: List) -> &mut One {
        let [tools, prompts, resources, templates] = &mut self.all;
        match list {
            List::Tools => tools,
            List::Prompts => prompts,
            List::Resources => resources,
            List::Templates => templates,
        }
    }

    fn each(&mut self) -> impl Iterator<Item = (List, &mut One)> {
        List::ALL.into_iter().zip(&mut self.all)
    }

    /// Everything that the server offers is to be read, from the start.
    pub fn begin(&mut self, offers: Offers) {
        self.inventory.completions = offers.completions;
        self.inventory.tasks = offers.tasks;
        self.inventory.logging = offers.logging;
        self.inventory.skipped.clear();
        self.is_news = false;
        for list in List::ALL {
            let is_offered = match list {
                // Servers exist that forget to declare it.
                List::Tools => true,
                List::Prompts => offers.prompts,
                List::Resources | List::Templates => offers.resources,
            };
            if !is_offered {
                self.inventory.replace(list, Vec::new());
                self.inventory.set_excess(list, Excess::default());
            }
            *self.one(list) = One { is_offered, is_stale: is_offered, untold: !is_offered, ..One::default() };
        }
    }

    /// These lists are to be read again, as far as the server has them.
    pub fn changed(&mut self, lists: &[List]) {
        for &list in lists {
            let one = self.one(list);
            one.is_stale |= one.is_offered;
            one.rests_until = None;
        }
    }

    /// The server may have said something that was not heard: every list is read again, except those that rest.
    pub fn reopened(&mut self, now: Instant) {
        for (_, one) in self.each() {
            let rests = one.rests_until.is_some_and(|until| now < until);
            one.is_stale |= one.is_offered && !rests;
        }
    }

    /// The supervisor has judged what was read, which took so long: the lists rest before they are
    /// read again.
    pub fn judged(&mut self, took: Duration, now: Instant) {
        self.allowance.judged(took, now);
    }

    /// The operator wants to know: lists that could not be read are read at once.
    pub fn retry(&mut self) {
        self.each().filter(|(_, one)| one.trouble.is_some()).for_each(|(_, one)| one.rests_until = None);
    }

    /// The first page of a list that is due. Of each list one reading runs and at most one waits: whatever changes meanwhile is
    /// seen by the one that waits.
    pub fn next(&mut self, now: Instant) -> Option<Page> {
        let Self { all, allowance, .. } = self;
        self.refresh_at = None;
        for (list, one) in List::ALL.into_iter().zip(all).filter(|(_, one)| one.waits()) {
            let rested = one.rests_until.is_none_or(|until| until <= now);
            if rested && allowance.take(list, now) {
                (one.is_stale, one.rests_until, one.begun) = (false, None, Some(now));
                return Some(Page { reading: Reading::new(list, self.bounds), cursor: None });
            }
            let due = one.rests_until.unwrap_or(now).max(allowance.due(list, now));
            self.refresh_at = Some(self.refresh_at.map_or(due, |at| at.min(due)));
        }
        None
    }

    /// When [`Self::next`] has another list, or [`Self::news`] something to tell.
    pub fn refresh_at(&self) -> Option<Instant> {
        let may_tell = self.is_news && !self.all.iter().any(|one| one.lacks_room);
        let youngest = self.all.iter().filter_map(|one| one.begun).max().filter(|_| may_tell);
        [self.refresh_at, youngest.map(|begun| begun + PATIENCE)].into_iter().flatten().min()
    }

    /// Takes the answer to a page, which may come after it was given up. What follows is the next page, or the end of the list,
    /// with a fault where it was not whole. Of a list that cannot be read the inventory keeps what was known.
    pub fn answered(
        &mut self,
        mut reading: Reading,
        answer: Result<RawJson, RawJson>,
        now: Instant,
    ) -> (Option<Page>, Option<Fault>) {
        let list = reading.list;
        let read = match answer {
            Ok(result) => Ok(reading.page(&result)),
            Err(error) => reading.refused(code_of(&error)).map(Ok).ok_or(error),
        };
        self.note(reading.take_quirks());
        match read {
            Ok(Ok(Next::Page(cursor))) => {
                self.one(list).begun.get_or_insert(now);
                (Some(Page { reading, cursor: Some(cursor) }), None)
            }
            Ok(Ok(Next::Done { items, skipped, excess, endless })) => {
                let is_whole = skipped.is_empty() && endless.is_none();
                // The first reading of a session is compared with none.
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
                (None, (!is_whole).then_some(Fault::BadList))
            }
            Ok(Err(error)) => {
                self.failed(list, &format!("its answer is no list: {error}"), now);
                (None, Some(Fault::BadList))
            }
            Err(error) if code_of(&error) == Some(code::METHOD_NOT_FOUND) => {
                self.inventory.replace(list, Vec::new());
                self.inventory.set_excess(list, Excess::default());
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
                (None, Some(Fault::BadList))
            }
        }
    }

    /// Keeps quirks until they are told; each kind once, which bounds them.
    fn note(&mut self, quirks: Vec<Quirk>) {
        for quirk in quirks {
            if !self.quirks.contains(&quirk) {
                self.quirks.push(quirk);
            }
        }
    }

    /// Takes the ways in which answers broke the protocol since the last call and were read all the
    /// same.
    pub fn take_quirks(&mut self) -> Vec<Quirk> {
        std::mem::take(&mut self.quirks)
    }

    fn read(&mut self, list: List) {
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

    /// The list could not be read this time, or has not been read in time: it is tried again.
    pub fn failed(&mut self, list: List, why: &str, now: Instant) {
        self.fails(list, why, Gap::Unread, now);
    }

    /// The same for the part that only clients see which can be asked for input. The rest was read.
    pub fn failed_for_askers(&mut self, list: List, why: &str, now: Instant) {
        let failures = self.failures_for_askers;
        let one = self.one(list);
        if one.is_offered && one.trouble.is_none() {
            one.failures = failures;
            self.fails(list, why, Gap::Askers, now);
        }
    }

    /// How the reading for clients that can be asked went as a whole.
    pub fn read_for_askers(&mut self, is_whole: bool) {
        self.failures_for_askers = if is_whole { 0 } else { self.failures_for_askers.saturating_add(1) };
    }

    fn fails(&mut self, list: List, why: &str, gap: Gap, now: Instant) {
        let one = self.one(list);
        let again = one.rest(now);
        let is_news = one.trouble.is_none() && gap == Gap::Unread;
        let trouble = Trouble { why: why.to_owned(), attempts: one.failures, again };
        one.trouble = Some((trouble, gap));
        one.is_stale = true;
        one.ended();
        self.is_news |= is_news;
    }

    /// The gateway had no room for the answer, of which the server knows nothing: the list is read again when it is due.
    pub fn no_room(&mut self, list: List) {
        let one = self.one(list);
        (one.begun, one.is_stale, one.lacks_room) = (None, true, true);
    }

    pub(crate) fn are_read(&self) -> bool {
        self.all.iter().any(|one| one.begun.is_some())
    }

    /// How the last reading of a list ended, once after each.
    pub fn told(&mut self) -> Option<(List, Option<Trouble>)> {
        let (list, one) = self.each().find(|(_, one)| one.untold)?;
        one.untold = false;
        Some((list, one.trouble.as_ref().map(|(trouble, _)| trouble.clone())))
    }

    /// All that the server offers, once after each reading: without the lists that are being read for long, which are a gap unless
    /// they are known.
    pub fn news(&mut self, now: Instant) -> Option<Inventory> {
        let waits = |one: &One| one.lacks_room || one.begun.is_some_and(|begun| now < begun + PATIENCE);
        if !self.is_news || self.all.iter().any(waits) {
            return None;
        }
        self.is_news = false;
        for (list, one) in List::ALL.into_iter().zip(&self.all) {
            let awaited = (one.is_offered && !one.is_known).then_some(Gap::Awaited);
            self.inventory.set_gap(list, one.trouble.as_ref().map(|(_, gap)| *gap).or(awaited));
        }
        let news = self.inventory.clone();
        self.inventory.skipped.clear();
        Some(news)
    }
}

/// The code of an error object.
fn code_of(error: &RawJson) -> Option<i64> {
    RawObject::parse(error).ok()?.get("code")?.parse().ok()
}

#[cfg(test)]
mod tests;
