//! The items of one upstream: reading its lists page by page, and keeping them on disk as JSON.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::mcp::asking::kinds::Audience;
use crate::mcp::definition::item::{Definition, ListPage};
use crate::mcp::extension::ExtensionSet;
use crate::mcp::instructions::read_instructions;
use crate::mcp::method::ItemList;
use crate::mcp::version::Revision;
use crate::wire::code;
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::quirk::Quirk;

/// Bounds for the reading of each list of one upstream.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// Most pages that add no offered item: the end for a server whose cursors never end.
    pub pages: usize,
    /// Most items that are offered; further items are only counted.
    pub items: usize,
    pub bytes: usize,
}

impl ListBounds {
    /// Returns the bounds for lists of up to `items` items.
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

/// Estimated memory of an item besides its text, in bytes.
const ITEM_BYTES: usize = 512;

/// Items of one list that are not offered because they exceed a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListExcess {
    pub items: usize,
    /// True if the list was not read to its end, so there may be more.
    pub or_more: bool,
}

impl ListExcess {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl std::fmt::Display for ListExcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.or_more { "at least " } else { "" }, self.items)
    }
}

/// A violation of the protocol's schemas in the definition of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefinitionFlaw<'i> {
    pub list: ItemList,
    /// The item's name or URI at the upstream.
    pub key: &'i str,
    /// The repair, or the reason why the item is withheld.
    pub line: &'i str,
    pub is_withheld: bool,
}

/// The reason why a list is missing or is not complete as the server has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListGap {
    /// The list is still being read.
    Awaited,
    /// The list could not be read, or not to its end.
    Unread,
    /// The list lacks the items that the server shows only to clients with some input capability.
    Askers,
}

/// All items and capabilities that one upstream offers.
#[derive(Clone, Default)]
pub struct Inventory {
    lists: [Vec<Definition>; 4],
    /// Whether the upstream answers `completion/complete`.
    pub completions: bool,
    /// The extensions that the upstream declared, as they work in its era.
    pub extensions: ExtensionSet,
    /// Whether the upstream declares log messages.
    pub logging: bool,
    /// The server's own text, cleaned and not yet judged by its pin.
    pub instructions: Option<std::sync::Arc<str>>,
    /// Reasons for definitions that were left out.
    pub skipped: Vec<String>,
    /// True while the items for clients with input capabilities are being read and missing here.
    pub awaits_askers: bool,
    excess: [ListExcess; 4],
    gaps: [Option<ListGap>; 4],
}

impl std::fmt::Debug for Inventory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<usize> = self.lists.iter().map(Vec::len).collect();
        write!(f, "Inventory{sizes:?}")
    }
}

fn at(list: ItemList) -> usize {
    list as usize
}

impl Inventory {
    pub fn items(&self, list: ItemList) -> &[Definition] {
        self.lists.get(at(list)).map_or(&[], Vec::as_slice)
    }

    pub fn replace(&mut self, list: ItemList, items: Vec<Definition>) {
        if let Some(place) = self.lists.get_mut(at(list)) {
            *place = items;
        }
    }

    /// Returns how many items each list lacks because of a bound, in the order of
    /// [`ItemList::ALL`].
    pub fn excess(&self) -> [ListExcess; 4] {
        ItemList::ALL.map(|list| self.excess.get(at(list)).copied().unwrap_or_default())
    }

    pub fn set_excess(&mut self, list: ItemList, excess: ListExcess) {
        if let Some(place) = self.excess.get_mut(at(list)) {
            *place = excess;
        }
    }

    /// Returns why a list is not as the server has it now; `None` if it is.
    pub fn gap(&self, list: ItemList) -> Option<ListGap> {
        self.gaps.get(at(list)).copied().flatten()
    }

    pub fn set_gap(&mut self, list: ItemList, gap: Option<ListGap>) {
        if let Some(place) = self.gaps.get_mut(at(list)) {
            *place = gap;
        }
    }

    /// Whether any list has this gap.
    pub fn has_gap(&self, gap: ListGap) -> bool {
        self.gaps.contains(&Some(gap))
    }

    /// Adds earlier items from `known` to each list that has a gap, for [`ListGap::Askers`] only
    /// those not for all clients. Cuts each list to `most` items and counts the rest as excess.
    pub fn keep(&mut self, known: &Self, most: usize) {
        for list in ItemList::ALL {
            let Some(gap) = self.gap(list) else { continue };
            let (Some(place), Some(excess)) = (self.lists.get_mut(at(list)), self.excess.get_mut(at(list))) else {
                continue;
            };
            if place.is_empty() {
                *excess = known.excess.get(at(list)).copied().unwrap_or_default();
            }
            let fresh: HashSet<String> = place.iter().map(|item| item.key.clone()).collect();
            let is_missing =
                |item: &&Definition| (gap != ListGap::Askers || !item.audience.is_all()) && !fresh.contains(&item.key);
            place.extend(known.items(list).iter().filter(is_missing).cloned());
            excess.items = excess.items.max(place.len().saturating_sub(most));
            place.truncate(most);
        }
    }

    /// Whether a list has exactly these definitions, in this order.
    pub fn has_same(&self, list: ItemList, items: &[Definition]) -> bool {
        let known = self.items(list);
        known.len() == items.len() && known.iter().zip(items).all(|(a, b)| a.key == b.key && a.digest == b.digest)
    }

    /// Returns the number of items that the earlier inventory had and this one lacks.
    pub fn lost(&self, earlier: &Self) -> u64 {
        let lost = |list: &ItemList| {
            let kept: HashSet<&str> = self.items(*list).iter().map(|item| item.key.as_str()).collect();
            earlier.items(*list).iter().filter(|item| !kept.contains(item.key.as_str())).count() as u64
        };
        ItemList::ALL.iter().map(lost).sum()
    }

    /// Cuts each list to `items` items and counts the rest as excess. Returns `false` if a fresh
    /// reading with this bound could offer more items than are left here.
    pub fn bound(&mut self, items: usize) -> bool {
        for (list, excess) in self.lists.iter_mut().zip(&mut self.excess) {
            excess.items = excess.items.saturating_add(list.len().saturating_sub(items));
            list.truncate(items);
        }
        self.lists.iter().zip(&self.excess).all(|(list, excess)| excess.is_none() || list.len() >= items)
    }

    /// Returns an inventory with the same capabilities and empty lists.
    pub fn without_items(&self) -> Self {
        Self { completions: self.completions, extensions: self.extensions, logging: self.logging, ..Self::default() }
    }

    /// Returns the number of items in all lists.
    pub fn len(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    /// Estimates the memory of all items and of the instructions, in bytes: text plus overhead.
    pub fn bytes(&self) -> usize {
        let items = self.lists.iter().flatten().map(|item| item.key.len() + item.raw.bytes() + ITEM_BYTES);
        items.sum::<usize>() + self.instructions.as_ref().map_or(0, |text| text.len())
    }

    /// Returns the list with the most items.
    pub fn longest(&self) -> ItemList {
        ItemList::ALL.into_iter().max_by_key(|list| self.items(*list).len()).unwrap_or(ItemList::Tools)
    }

    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Adds the items of a listing that the server made for clients with this audience. An item
    /// that is already in the list keeps its definition and gains the audience, so the order in
    /// which listings are added decides and not the order of the server's answers. Cuts the list to
    /// `most` items and counts the rest as excess.
    pub fn add_for(&mut self, audience: Audience, list: ItemList, items: Vec<Definition>, most: usize) {
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

    /// Whether `other` has items that this list lacks.
    pub fn lacks(&self, list: ItemList, other: &[Definition]) -> bool {
        let known: HashSet<&str> = self.items(list).iter().map(|item| item.key.as_str()).collect();
        other.iter().any(|item| !known.contains(item.key.as_str()))
    }

    /// Returns the flaws of all items: each repair, and the reason of each item that is withheld.
    pub fn flaws(&self) -> impl Iterator<Item = DefinitionFlaw<'_>> {
        ItemList::ALL.iter().flat_map(|list| self.items(*list)).flat_map(|item| {
            let of = |line, is_withheld| DefinitionFlaw { list: item.list, key: &item.key, line, is_withheld };
            let repairs = item.repairs.iter().map(move |line| of(line.as_str(), false));
            repairs.chain(item.fault.map(move |line| of(line, true)))
        })
    }

    /// Encodes the inventory and the upstream's revision for the disk.
    pub fn to_json(&self, revision: Revision) -> RawJson {
        let mut out = RawObject::default();
        out.set("version", RawJson::trusted("1"));
        out.set("revision", RawJson::string(revision.as_str()));
        out.set("completions", RawJson::boolean(self.completions));
        out.set("extensions", self.extensions.to_json());
        out.set("logging", RawJson::boolean(self.logging));
        self.instructions.iter().for_each(|text| out.set("instructions", RawJson::string(text)));
        for list in ItemList::ALL {
            out.set(list.member(), RawJson::list(self.items(list).iter().map(|item| item.raw.encode())));
            let few: Vec<&Definition> = self.items(list).iter().filter(|item| !item.audience.is_all()).collect();
            if !few.is_empty() {
                // Version 0.1.0 reads only the names, as items that are not for all clients.
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
            if matches!(self.gap(list), Some(ListGap::Awaited | ListGap::Unread)) {
                out.set(&format!("{}-unread", list.member()), RawJson::boolean(true));
            }
        }
        out.encode()
    }

    /// Parses the text of [`Self::to_json`]. Returns `None` for any other text; the upstream is
    /// then listed again.
    pub fn from_json(text: &RawJson) -> Option<(Self, Revision)> {
        let object = RawObject::parse(text).ok()?;
        let revision = Revision::parse(&object.string("revision")?)?;
        let mut inventory = Self {
            completions: object.is_true("completions"),
            extensions: object.get("extensions").map(ExtensionSet::of_json).unwrap_or_default(),
            logging: object.is_true("logging"),
            instructions: read_instructions(text),
            ..Self::default()
        };
        for list in ItemList::ALL {
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
                inventory.set_excess(list, ListExcess { items, or_more: kept.is_true("or-more") });
            }
            let unread = object.is_true(&format!("{}-unread", list.member()));
            inventory.set_gap(list, unread.then_some(ListGap::Unread));
        }
        Some((inventory, revision))
    }
}

/// The reading of one list, page by page and within bounds. The caller fetches a page, passes the
/// answer to [`Self::page`] and repeats this until [`ReadingStep::Done`].
#[derive(Debug)]
pub struct ListReading {
    pub list: ItemList,
    bounds: ListBounds,
    /// Number of pages read so far that added no offered item.
    idle_pages: usize,
    bytes: usize,
    items: Vec<Definition>,
    excess: ListExcess,
    skipped: Vec<String>,
    cursors: HashSet<String>,
    /// Kinds of quirks on the pages, each once.
    quirks: Vec<Quirk>,
    /// True while the page behind an empty cursor is outstanding.
    has_asked_empty: bool,
}

/// The next step of a reading.
#[derive(Debug)]
pub enum ReadingStep {
    /// Request the page with this cursor.
    Page(String),
    /// The list is complete, or a bound ended the reading.
    Done {
        items: Vec<Definition>,
        skipped: Vec<String>,
        excess: ListExcess,
        /// The reason why the list has no end. Its items are not all that the server has.
        endless: Option<String>,
    },
}

impl ListReading {
    pub fn new(list: ItemList, bounds: ListBounds) -> Self {
        Self {
            list,
            bounds,
            idle_pages: 0,
            bytes: 0,
            items: Vec::new(),
            excess: ListExcess::default(),
            skipped: Vec::new(),
            cursors: HashSet::new(),
            quirks: Vec::new(),
            has_asked_empty: false,
        }
    }

    /// Removes and returns the kinds of protocol violations that were tolerated on the pages.
    pub fn take_quirks(&mut self) -> Vec<Quirk> {
        std::mem::take(&mut self.quirks)
    }

    /// Handles an error that came instead of a page. Returns the end of the list if the error
    /// answers an empty cursor with "invalid params", and `None` if the list could not be read.
    ///
    /// Some servers write an empty cursor on their last page. Others use it for a real page, so the
    /// server is asked for it; this error says that it has no such page.
    pub fn refused(&mut self, error_code: Option<i64>) -> Option<ReadingStep> {
        let is_end = self.has_asked_empty && error_code == Some(code::INVALID_PARAMS);
        is_end.then(|| self.end_at_empty())
    }

    fn end_at_empty(&mut self) -> ReadingStep {
        self.note(Quirk::EmptyCursor);
        self.done(None)
    }

    fn note(&mut self, quirk: Quirk) {
        if !self.quirks.contains(&quirk) {
            self.quirks.push(quirk);
        }
    }

    /// Whether the page has an item that was not on an earlier page.
    fn has_news(&self, items: &[Definition]) -> bool {
        let known: HashSet<(&str, Digest)> = self.items.iter().map(|item| (item.key.as_str(), item.digest)).collect();
        items.iter().any(|item| !known.contains(&(item.key.as_str(), item.digest)))
    }

    /// Adds one page to the reading and returns the next step.
    ///
    /// # Errors
    /// The result is not a page of this list.
    pub fn page(&mut self, result: &RawJson) -> Result<ReadingStep, serde_json::Error> {
        let page = ListPage::read(self.list, result)?;
        page.quirks.iter().for_each(|quirk| self.note(*quirk));
        let follows_empty = std::mem::take(&mut self.has_asked_empty);
        // This page repeats the last one and has the same empty cursor.
        if follows_empty && page.next.as_deref() == Some("") && !self.has_news(&page.items) {
            return Ok(self.end_at_empty());
        }
        let room = self.bounds.items.saturating_sub(self.items.len()).min(page.items.len());
        self.idle_pages += usize::from(room == 0);
        self.bytes += page.bytes;
        // If there are too many items, the server's order decides which are offered.
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
            // The list is full; these pages were read only to count the items that are not offered.
            Some(_) if is_idle && is_full => Ok(self.done(None)),
            Some(_) if is_idle => Ok(self.done(Some(format!("it has {} pages without an item", self.bounds.pages)))),
            Some(cursor) if self.cursors.insert(cursor.clone()) => {
                self.has_asked_empty = cursor.is_empty();
                Ok(ReadingStep::Page(cursor))
            }
            Some(_) => Ok(self.done(Some("the same cursor came twice".to_owned()))),
            None => Ok(self.done(None)),
        }
    }

    /// Ends the reading: removes repeated items and returns the list.
    fn done(&mut self, endless: Option<String>) -> ReadingStep {
        // A list that changed between two pages may repeat an item. If two different items have one
        // name, both are left out.
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
        ReadingStep::Done { items, skipped, excess: self.excess, endless }
    }
}

#[cfg(test)]
mod tests;
