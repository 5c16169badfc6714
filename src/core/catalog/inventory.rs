//! The items of one upstream: every page of its lists, and their form on disk between starts.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::mcp::item::{Definition, ListPage};
use crate::mcp::kinds::Audience;
use crate::mcp::method::List;
use crate::mcp::version::Revision;
use crate::wire::code;
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::quirk::Quirk;
use crate::wire::raw::{RawJson, RawObject};

/// Bounds of each of one upstream's lists.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// Pages without an item that is offered: against a server that returns a new cursor for ever.
    pub pages: usize,
    /// Items that are offered. Those behind it are counted.
    pub items: usize,
    pub bytes: usize,
}

impl ListBounds {
    /// For a list of so many items.
    pub fn of(items: usize) -> Self {
        // 4 KiB is a long description with a schema; few lists need 32 MiB.
        Self { pages: 100, items, bytes: items.saturating_mul(4096).max(32 << 20) }
    }
}

impl Default for ListBounds {
    fn default() -> Self {
        Self::of(10_000)
    }
}

/// Bytes that an item takes besides its text.
const ITEM_BYTES: usize = 512;

/// The items of one list that are not offered because they are behind a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    pub items: usize,
    /// The list was not read to its end, so there may be more.
    pub or_more: bool,
}

impl Excess {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.or_more { "at least " } else { "" }, self.items)
    }
}

/// Something about a definition that the protocol's schemas do not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw<'i> {
    pub list: List,
    /// The item's name at the upstream.
    pub key: &'i str,
    /// The repair, or why the item is withheld.
    pub line: &'i str,
    pub is_withheld: bool,
}

/// Why a list is not, or not whole, as its server has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It is still being read.
    Awaited,
    /// It could not be read, or not to its end.
    Unread,
    /// The items are missing that only clients see which offer some input.
    Askers,
}

/// Everything that one upstream offers.
#[derive(Clone, Default)]
pub struct Inventory {
    lists: [Vec<Definition>; 4],
    /// Whether the upstream answers `completion/complete`.
    pub completions: bool,
    /// Whether tool calls may become tasks, in the way of its era.
    pub tasks: bool,
    /// Whether the upstream declares log messages.
    pub logging: bool,
    /// Definitions that were left out, with reasons.
    pub skipped: Vec<String>,
    /// The part that only clients see which can be asked for input is being read, and not in it.
    pub awaits_askers: bool,
    excess: [Excess; 4],
    gaps: [Option<Gap>; 4],
}

impl std::fmt::Debug for Inventory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<usize> = self.lists.iter().map(Vec::len).collect();
        write!(f, "Inventory{sizes:?}")
    }
}

fn at(list: List) -> usize {
    list as usize
}

impl Inventory {
    pub fn items(&self, list: List) -> &[Definition] {
        self.lists.get(at(list)).map_or(&[], Vec::as_slice)
    }

    pub fn replace(&mut self, list: List, items: Vec<Definition>) {
        if let Some(place) = self.lists.get_mut(at(list)) {
            *place = items;
        }
    }

    /// What of a list is not in it for want of room, in the order of [`List::ALL`].
    pub fn excess(&self) -> [Excess; 4] {
        List::ALL.map(|list| self.excess.get(at(list)).copied().unwrap_or_default())
    }

    pub fn set_excess(&mut self, list: List, excess: Excess) {
        if let Some(place) = self.excess.get_mut(at(list)) {
            *place = excess;
        }
    }

    /// Why a list is not as the server has it now; `None` where it is.
    pub fn gap(&self, list: List) -> Option<Gap> {
        self.gaps.get(at(list)).copied().flatten()
    }

    pub fn set_gap(&mut self, list: List, gap: Option<Gap>) {
        if let Some(place) = self.gaps.get_mut(at(list)) {
            *place = gap;
        }
    }

    /// Whether a list has that gap.
    pub fn has_gap(&self, gap: Gap) -> bool {
        self.gaps.contains(&Some(gap))
    }

    /// Fills the gaps with the items that were known before. No more than `most` items are in a list then.
    pub fn keep(&mut self, known: &Self, most: usize) {
        for list in List::ALL {
            let Some(gap) = self.gap(list) else { continue };
            let (Some(place), Some(excess)) = (self.lists.get_mut(at(list)), self.excess.get_mut(at(list))) else {
                continue;
            };
            if place.is_empty() {
                *excess = known.excess.get(at(list)).copied().unwrap_or_default();
            }
            let fresh: HashSet<String> = place.iter().map(|item| item.key.clone()).collect();
            let is_missing =
                |item: &&Definition| (gap != Gap::Askers || !item.audience.is_all()) && !fresh.contains(&item.key);
            place.extend(known.items(list).iter().filter(is_missing).cloned());
            excess.items = excess.items.max(place.len().saturating_sub(most));
            place.truncate(most);
        }
    }

    /// Whether a list has these definitions, in this order.
    pub fn has_same(&self, list: List, items: &[Definition]) -> bool {
        let known = self.items(list);
        known.len() == items.len() && known.iter().zip(items).all(|(a, b)| a.key == b.key && a.digest == b.digest)
    }

    /// The number of items that an earlier inventory had and this one lacks.
    pub fn lost(&self, earlier: &Self) -> u64 {
        let lost = |list: &List| {
            let kept: HashSet<&str> = self.items(*list).iter().map(|item| item.key.as_str()).collect();
            earlier.items(*list).iter().filter(|item| !kept.contains(item.key.as_str())).count() as u64
        };
        List::ALL.iter().map(lost).sum()
    }

    /// Leaves so many items in each list; `false` where a reading with that bound could show more than is left.
    pub fn bound(&mut self, items: usize) -> bool {
        for (list, excess) in self.lists.iter_mut().zip(&mut self.excess) {
            excess.items = excess.items.saturating_add(list.len().saturating_sub(items));
            list.truncate(items);
        }
        self.lists.iter().zip(&self.excess).all(|(list, excess)| excess.is_none() || list.len() >= items)
    }

    /// The same upstream with empty lists.
    pub fn without_items(&self) -> Self {
        Self { completions: self.completions, tasks: self.tasks, logging: self.logging, ..Self::default() }
    }

    /// The number of items of all lists.
    pub fn len(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    /// The bytes of all items, with what keeping each takes besides its text.
    pub fn bytes(&self) -> usize {
        self.lists.iter().flatten().map(|item| item.key.len() + item.raw.bytes() + ITEM_BYTES).sum()
    }

    /// The list with the most items.
    pub fn longest(&self) -> List {
        List::ALL.into_iter().max_by_key(|list| self.items(*list).len()).unwrap_or(List::Tools)
    }

    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Adds the items of another listing, which the server made for these clients. The definition that is there already stays, so
    /// the order of listings decides and not that of answers. No more than `most` items are in the list then.
    pub fn add_for(&mut self, audience: Audience, list: List, items: Vec<Definition>, most: usize) {
        let (Some(place), Some(excess)) = (self.lists.get_mut(at(list)), self.excess.get_mut(at(list))) else { return };
        let known: HashMap<String, usize> = place.iter().enumerate().map(|(at, item)| (item.key.clone(), at)).collect();
        for item in items {
            match known.get(&item.key).and_then(|at| place.get_mut(*at)) {
                Some(known) => known.audience = known.audience.or(audience),
                None => place.push(Definition { audience, ..item }),
            }
        }
        excess.items = excess.items.max(place.len().saturating_sub(most));
        place.truncate(most);
    }

    /// Whether another listing has items that this one lacks.
    pub fn lacks(&self, list: List, other: &[Definition]) -> bool {
        let known: HashSet<&str> = self.items(list).iter().map(|item| item.key.as_str()).collect();
        other.iter().any(|item| !known.contains(item.key.as_str()))
    }

    /// The repairs of each item, and the items that no client may see with the reason: kind, name and a line.
    pub fn flaws(&self) -> impl Iterator<Item = Flaw<'_>> {
        List::ALL.iter().flat_map(|list| self.items(*list)).flat_map(|item| {
            let of = |line, is_withheld| Flaw { list: item.list, key: &item.key, line, is_withheld };
            let repairs = item.repairs.iter().map(move |line| of(line.as_str(), false));
            repairs.chain(item.fault.map(move |line| of(line, true)))
        })
    }

    /// The text on disk, with the upstream's revision.
    pub fn to_json(&self, revision: Revision) -> RawJson {
        let mut out = RawObject::default();
        out.set("version", RawJson::trusted("1"));
        out.set("revision", RawJson::string(revision.as_str()));
        out.set("completions", RawJson::boolean(self.completions));
        out.set("tasks", RawJson::boolean(self.tasks));
        out.set("logging", RawJson::boolean(self.logging));
        for list in List::ALL {
            out.set(list.member(), RawJson::list(self.items(list).iter().map(|item| item.raw.encode())));
            let few: Vec<&Definition> = self.items(list).iter().filter(|item| !item.audience.is_all()).collect();
            if !few.is_empty() {
                // 0.1.0 knows the names alone, and that these items are not for everyone.
                let names = few.iter().map(|item| RawJson::string(&item.key));
                out.set(&format!("{}-needing-input", list.member()), RawJson::list(names));
                let audiences = few.iter().map(|item| RawJson::trusted(item.audience.bits().to_string()));
                out.set(&format!("{}-audiences", list.member()), RawJson::list(audiences));
            }
            let repaired = |item: &Definition| {
                let lines = [&item.key].into_iter().chain(&item.repairs);
                (!item.repairs.is_empty()).then(|| RawJson::list(lines.map(|text| RawJson::string(text))))
            };
            let mut repaired = self.items(list).iter().filter_map(repaired).peekable();
            if repaired.peek().is_some() {
                out.set(&format!("{}-repaired", list.member()), RawJson::list(repaired));
            }
            let excess = self.excess.get(at(list)).copied().unwrap_or_default();
            if !excess.is_none() {
                let mut kept = RawObject::default();
                kept.set("items", RawJson::number(excess.items));
                kept.set("or-more", RawJson::boolean(excess.or_more));
                out.set(&format!("{}-not-offered", list.member()), kept.encode());
            }
            if matches!(self.gap(list), Some(Gap::Awaited | Gap::Unread)) {
                out.set(&format!("{}-unread", list.member()), RawJson::boolean(true));
            }
        }
        out.encode()
    }

    /// Reads the text of [`Self::to_json`]; `None` for any other, which costs a fresh listing.
    pub fn from_json(text: &RawJson) -> Option<(Self, Revision)> {
        let object = RawObject::parse(text).ok()?;
        let revision = Revision::parse(&object.string("revision")?)?;
        let mut inventory = Self {
            completions: object.is_true("completions"),
            tasks: object.is_true("tasks"),
            logging: object.is_true("logging"),
            ..Self::default()
        };
        for list in List::ALL {
            let raw = object.list(list.member())?;
            let mut items = raw.iter().map(|raw| Definition::read(list, raw)).collect::<Result<Vec<_>, _>>().ok()?;
            if let Some(needing) = object.get(&format!("{}-needing-input", list.member())) {
                let names = needing.parse::<Vec<String>>().ok()?;
                let audiences = match object.get(&format!("{}-audiences", list.member())) {
                    Some(audiences) => audiences.parse::<Vec<u32>>().ok().filter(|all| all.len() == names.len())?,
                    None => vec![Audience::askable().bits(); names.len()],
                };
                let few: HashMap<String, u32> = names.into_iter().zip(audiences).collect();
                for item in &mut items {
                    item.audience = few.get(&item.key).map_or(Audience::ALL, |bits| Audience::of_bits(*bits));
                }
            }
            if let Some(repaired) = object.get(&format!("{}-repaired", list.member())) {
                let repaired = repaired.parse::<Vec<Vec<String>>>().ok()?;
                let lines = |mut all: Vec<String>| (!all.is_empty()).then(|| (all.remove(0), all));
                let mut repaired: HashMap<String, Vec<String>> = repaired.into_iter().filter_map(lines).collect();
                for item in &mut items {
                    item.repairs.extend(repaired.remove(&item.key).unwrap_or_default());
                }
            }
            inventory.replace(list, items);
            if let Some(kept) = object.object(&format!("{}-not-offered", list.member())) {
                let items = kept.get("items")?.parse::<usize>().ok()?;
                inventory.set_excess(list, Excess { items, or_more: kept.is_true("or-more") });
            }
            let unread = object.is_true(&format!("{}-unread", list.member()));
            inventory.set_gap(list, unread.then_some(Gap::Unread));
        }
        Some((inventory, revision))
    }
}

/// Reads one list page by page within bounds: the caller asks for a page and hands in the answer until done.
#[derive(Debug)]
pub struct Reading {
    pub list: List,
    bounds: ListBounds,
    /// Pages without an item that is offered.
    idle_pages: usize,
    bytes: usize,
    items: Vec<Definition>,
    excess: Excess,
    skipped: Vec<String>,
    cursors: HashSet<String>,
    /// Kinds of quirks of its pages, each once.
    quirks: Vec<Quirk>,
    /// The page that was asked for with an empty cursor is outstanding.
    has_asked_empty: bool,
}

/// Next step after a page.
#[derive(Debug)]
pub enum Next {
    /// Ask for the page with this cursor.
    Page(String),
    /// The list is complete, or a bound ended it.
    Done {
        items: Vec<Definition>,
        skipped: Vec<String>,
        excess: Excess,
        /// Why the list has no end: its items are not all that the server has.
        endless: Option<String>,
    },
}

impl std::fmt::Debug for Definition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key)
    }
}

impl Reading {
    pub fn new(list: List, bounds: ListBounds) -> Self {
        Self {
            list,
            bounds,
            idle_pages: 0,
            bytes: 0,
            items: Vec::new(),
            excess: Excess::default(),
            skipped: Vec::new(),
            cursors: HashSet::new(),
            quirks: Vec::new(),
            has_asked_empty: false,
        }
    }

    /// Takes the ways in which pages broke the protocol and were read all the same.
    pub fn take_quirks(&mut self) -> Vec<Quirk> {
        std::mem::take(&mut self.quirks)
    }

    /// Takes an error instead of a page. `None` if the list could not be read.
    ///
    /// Some servers write an empty cursor behind their last page, which others use for a page. The
    /// server was asked; it knows no page of that name.
    pub fn refused(&mut self, error_code: Option<i64>) -> Option<Next> {
        let is_end = self.has_asked_empty && error_code == Some(code::INVALID_PARAMS);
        is_end.then(|| self.end_at_empty())
    }

    fn end_at_empty(&mut self) -> Next {
        self.note(Quirk::EmptyCursor);
        self.done(None)
    }

    fn note(&mut self, quirk: Quirk) {
        if !self.quirks.contains(&quirk) {
            self.quirks.push(quirk);
        }
    }

    /// Whether a page has an item that was not on an earlier page.
    fn has_news(&self, items: &[Definition]) -> bool {
        let known: HashSet<(&str, Digest)> = self.items.iter().map(|item| (item.key.as_str(), item.digest)).collect();
        items.iter().any(|item| !known.contains(&(item.key.as_str(), item.digest)))
    }

    /// Takes one page.
    ///
    /// # Errors
    /// When the result is not a page of this list.
    pub fn page(&mut self, result: &RawJson) -> Result<Next, serde_json::Error> {
        let page = ListPage::read(self.list, result)?;
        page.quirks.iter().for_each(|quirk| self.note(*quirk));
        let follows_empty = std::mem::take(&mut self.has_asked_empty);
        // This page repeats the last one, with the same empty cursor behind it.
        if follows_empty && page.next.as_deref() == Some("") && !self.has_news(&page.items) {
            return Ok(self.end_at_empty());
        }
        let room = self.bounds.items.saturating_sub(self.items.len()).min(page.items.len());
        self.idle_pages += usize::from(room == 0);
        self.bytes += page.bytes;
        // The server's own order decides which of too many are offered.
        self.excess.items += page.items.len() - room;
        self.items.extend(page.items.into_iter().take(room));
        self.skipped.extend(page.skipped);
        let is_full = self.items.len() >= self.bounds.items;
        let is_too_large = self.bytes > self.bounds.bytes;
        let is_idle = self.idle_pages >= self.bounds.pages;
        self.excess.or_more = page.next.is_some() && (is_too_large || is_idle);
        if is_too_large {
            self.skipped.push(format!("{}: the lists are over {} bytes", self.list.member(), self.bounds.bytes));
            return Ok(self.done(None));
        }
        if page.has_bad_cursor {
            self.excess.or_more = true;
            let why = "`nextCursor` of its answer is neither a text nor left out, so the next page cannot be asked for";
            return Ok(self.done(Some(why.to_owned())));
        }
        match page.next {
            // Of a full list these pages were read to count what is not offered.
            Some(_) if is_idle && is_full => Ok(self.done(None)),
            Some(_) if is_idle => Ok(self.done(Some(format!("it has {} pages without an item", self.bounds.pages)))),
            Some(cursor) if self.cursors.insert(cursor.clone()) => {
                self.has_asked_empty = cursor.is_empty();
                Ok(Next::Page(cursor))
            }
            Some(_) => Ok(self.done(Some("the same cursor came twice".to_owned()))),
            None => Ok(self.done(None)),
        }
    }

    fn done(&mut self, endless: Option<String>) -> Next {
        // A list that changed between two pages may repeat an item. Two different items with one name are both left
        // out.
        let mut first: HashMap<String, Digest> = HashMap::new();
        let mut twins = HashSet::new();
        self.items.retain(|item| match first.entry(item.key.clone()) {
            Entry::Vacant(place) => {
                place.insert(item.digest);
                true
            }
            Entry::Occupied(known) => {
                if *known.get() != item.digest {
                    twins.insert(item.key.clone());
                }
                false
            }
        });
        self.items.retain(|item| !twins.contains(&item.key));
        let told = |name: String| format!("`{}`: two items have this name", foreign::line(&name));
        self.skipped.extend(twins.into_iter().map(told));
        let (items, skipped) = (std::mem::take(&mut self.items), std::mem::take(&mut self.skipped));
        Next::Done { items, skipped, excess: self.excess, endless }
    }
}

#[cfg(test)]
mod tests;
