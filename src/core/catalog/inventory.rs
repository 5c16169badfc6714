//! The items of one upstream: every page of its lists, and their form on disk between starts.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::mcp::item::{Definition, ListPage};
use crate::mcp::method::List;
use crate::mcp::version::Revision;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// Bounds of one upstream's lists, each with the fault it prevents.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// Against a server that returns a new cursor for ever.
    pub pages: usize,
    pub items: usize,
    pub bytes: usize,
}

impl Default for ListBounds {
    fn default() -> Self {
        Self { pages: 100, items: 2000, bytes: 32 * 1024 * 1024 }
    }
}

/// Everything that one upstream offers.
#[derive(Clone, Default)]
pub struct Inventory {
    lists: [Vec<Definition>; 4],
    /// Whether the upstream answers `completion/complete`.
    pub completions: bool,
    /// Whether tool calls may become tasks, in the way of its era.
    pub tasks: bool,
    /// Definitions that were left out, with reasons.
    pub skipped: Vec<String>,
}

impl std::fmt::Debug for Inventory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<usize> = self.lists.iter().map(Vec::len).collect();
        write!(f, "Inventory{sizes:?}")
    }
}

fn at(list: List) -> usize {
    match list {
        List::Tools => 0,
        List::Prompts => 1,
        List::Resources => 2,
        List::Templates => 3,
    }
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

    /// The same upstream with empty lists.
    pub fn without_items(&self) -> Self {
        Self { completions: self.completions, tasks: self.tasks, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Adds the items of a second listing, which only clients that can be asked for input see.
    pub fn add_needing_input(&mut self, list: List, items: Vec<Definition>) {
        let Some(place) = self.lists.get_mut(at(list)) else { return };
        let known: HashSet<String> = place.iter().map(|item| item.key.clone()).collect();
        let more = items.into_iter().filter(|item| !known.contains(&item.key));
        place.extend(more.map(|item| Definition { needs_input: true, ..item }));
    }

    /// The text on disk, with the upstream's revision.
    pub fn to_json(&self, revision: Revision) -> RawJson {
        let mut out = RawObject::default();
        out.set("version", RawJson::trusted("1"));
        out.set("revision", RawJson::string(revision.as_str()));
        out.set("completions", RawJson::boolean(self.completions));
        out.set("tasks", RawJson::boolean(self.tasks));
        for list in List::ALL {
            out.set(list.member(), RawJson::list(self.items(list).iter().map(|item| item.raw.encode())));
            let mut needing = self.items(list).iter().filter(|item| item.needs_input).peekable();
            if needing.peek().is_some() {
                let member = format!("{}-needing-input", list.member());
                out.set(&member, RawJson::list(needing.map(|item| RawJson::string(&item.key))));
            }
        }
        out.encode()
    }

    /// Reads the text of [`Self::to_json`]; `None` for any other, which costs a fresh listing.
    pub fn from_json(text: &RawJson) -> Option<(Self, Revision)> {
        let object = RawObject::parse(text).ok()?;
        let revision = Revision::parse(&object.string("revision")?)?;
        let mut inventory =
            Self { completions: object.is_true("completions"), tasks: object.is_true("tasks"), ..Self::default() };
        for list in List::ALL {
            let raw = object.list(list.member())?;
            let mut items = raw.iter().map(|raw| Definition::read(list, raw)).collect::<Result<Vec<_>, _>>().ok()?;
            if let Some(needing) = object.get(&format!("{}-needing-input", list.member())) {
                let needing = needing.parse::<HashSet<String>>().ok()?;
                items.iter_mut().for_each(|item| item.needs_input = needing.contains(&item.key));
            }
            inventory.replace(list, items);
        }
        Some((inventory, revision))
    }
}

/// Reads one list page by page within bounds: the caller asks for a page and hands in the answer until done.
#[derive(Debug)]
pub struct Reading {
    pub list: List,
    bounds: ListBounds,
    pages: usize,
    bytes: usize,
    items: Vec<Definition>,
    skipped: Vec<String>,
    cursors: HashSet<String>,
}

/// Next step after a page.
#[derive(Debug)]
pub enum Next {
    /// Ask for the page with this cursor.
    Page(String),
    /// The list is complete, or a bound ended it.
    Done { items: Vec<Definition>, skipped: Vec<String> },
}

impl std::fmt::Debug for Definition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key)
    }
}

impl Reading {
    pub fn new(list: List, bounds: ListBounds) -> Self {
        Self { list, bounds, pages: 0, bytes: 0, items: Vec::new(), skipped: Vec::new(), cursors: HashSet::new() }
    }

    /// Takes one page.
    ///
    /// # Errors
    /// When the result is not a page of this list.
    pub fn page(&mut self, result: &RawJson) -> Result<Next, serde_json::Error> {
        let page = ListPage::read(self.list, result)?;
        self.pages += 1;
        self.bytes += page.bytes;
        self.items.extend(page.items);
        self.skipped.extend(page.skipped);
        let name = self.list.member();
        let stop = if self.items.len() > self.bounds.items {
            // The gateway cannot choose which of too many to keep.
            self.items.clear();
            Some(format!("{name}: more than {} items, none is offered", self.bounds.items))
        } else if self.bytes > self.bounds.bytes {
            Some(format!("{name}: the lists are over {} bytes", self.bounds.bytes))
        } else if page.next.is_some() && self.pages >= self.bounds.pages {
            Some(format!("{name}: only {} pages are read", self.bounds.pages))
        } else {
            None
        };
        match (page.next, stop) {
            (Some(cursor), None) if self.cursors.insert(cursor.clone()) => Ok(Next::Page(cursor)),
            (Some(_), None) => Ok(self.done(Some(format!("{name}: the same cursor came twice")))),
            (_, stop) => Ok(self.done(stop)),
        }
    }

    fn done(&mut self, why: Option<String>) -> Next {
        self.skipped.extend(why);
        // A list that changed between two pages may repeat an item. Two different items with one name are both left
        // out.
        let mut first: HashMap<String, RawObject> = HashMap::new();
        let mut twins = HashSet::new();
        self.items.retain(|item| match first.entry(item.key.clone()) {
            Entry::Vacant(place) => {
                place.insert(item.raw.clone());
                true
            }
            Entry::Occupied(known) => {
                if *known.get() != item.raw {
                    twins.insert(item.key.clone());
                }
                false
            }
        });
        self.items.retain(|item| !twins.contains(&item.key));
        let told = |name: String| format!("`{}`: two items have this name", foreign::line(&name));
        self.skipped.extend(twins.into_iter().map(told));
        Next::Done { items: std::mem::take(&mut self.items), skipped: std::mem::take(&mut self.skipped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str], next: Option<&str>) -> RawJson {
        let items: Vec<String> = names.iter().map(|n| format!(r#"{{"name":"{n}"}}"#)).collect();
        let next = next.map(|c| format!(r#","nextCursor":"{c}""#)).unwrap_or_default();
        RawJson::trusted(format!(r#"{{"tools":[{}]{next}}}"#, items.join(",")))
    }

    #[test]
    fn all_pages_are_read_and_a_cursor_loop_ends() {
        let mut reading = Reading::new(List::Tools, ListBounds::default());
        assert!(matches!(reading.page(&page(&["a"], Some("1"))).unwrap(), Next::Page(c) if c == "1"));
        assert!(matches!(reading.page(&page(&["b", "a"], Some("2"))).unwrap(), Next::Page(_)));
        let Next::Done { items, skipped } = reading.page(&page(&["c"], Some("1"))).unwrap() else { panic!() };
        assert_eq!(items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(skipped.len(), 1);
    }

    #[test]
    fn a_name_with_two_owners_is_offered_by_neither() {
        let mut reading = Reading::new(List::Tools, ListBounds::default());
        let text = r#"{"tools":[{"name":"a"},{"name":"b"},{"name":"a","title":"other"},{"name":"b"}]}"#;
        let Next::Done { items, skipped } = reading.page(&RawJson::trusted(text)).unwrap() else { panic!() };
        assert_eq!(items.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(skipped.len(), 1, "{skipped:?}");
    }

    #[test]
    fn a_list_that_is_too_long_is_not_offered_in_part() {
        let bounds = ListBounds { pages: 3, items: 2, bytes: 1 << 20 };
        let mut reading = Reading::new(List::Tools, bounds);
        let Next::Done { items, skipped } = reading.page(&page(&["a", "b", "c"], None)).unwrap() else { panic!() };
        assert_eq!((items.len(), skipped.len()), (0, 1));
    }

    #[test]
    fn bounds_end_an_endless_list() {
        let bounds = ListBounds { pages: 3, items: 100, bytes: 1 << 20 };
        let mut reading = Reading::new(List::Tools, bounds);
        let mut pages = 0;
        loop {
            pages += 1;
            match reading.page(&page(&[&format!("t{pages}")], Some(&format!("c{pages}")))).unwrap() {
                Next::Page(_) => {}
                Next::Done { items, skipped } => {
                    assert_eq!((items.len(), skipped.len()), (3, 1));
                    break;
                }
            }
        }
    }

    #[test]
    fn an_inventory_comes_back_from_disk_unchanged() {
        let mut inventory = Inventory { completions: true, tasks: true, ..Inventory::default() };
        let raw = RawJson::trusted(r#"{"name":"a","x":12345678901234567890123}"#);
        inventory.replace(List::Tools, vec![Definition::read(List::Tools, &raw).unwrap()]);
        let (back, revision) = Inventory::from_json(&inventory.to_json(Revision::V2025_06_18)).unwrap();
        assert_eq!(revision, Revision::V2025_06_18);
        assert!(back.completions && back.tasks);
        assert_eq!(back.items(List::Tools)[0].raw.encode(), raw);
        assert!(Inventory::from_json(&RawJson::trusted("{}")).is_none());
    }
}
