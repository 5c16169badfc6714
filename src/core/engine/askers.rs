//! Remembers which items of an upstream ask their client in the middle of a call.
//!
//! Calls of these items pass one at a time on connections on which a question does not tell its
//! call.
//!
//! | observation | consequence |
//! |---|---|
//! | a question was tied to a call of the item | its calls take turns |
//! | a call ran when a question came that could not be tied | they do until it is known who asked |
//! | a question came after a call was answered and no other ran | they do; questions are refused |
//!
//! An item whose definition has changed is another item. Only questions on streams that calls share
//! count: on a call's own stream nothing is in doubt.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::catalog::merge::CatalogEntry;
use crate::mcp::method::ItemList;
use crate::policy::Caller;
use crate::wire::digest::Digest;

/// Most items of one upstream that are remembered. If there are more, all of its items count as
/// suspects; if more than these ask after their calls, all count as late.
const MAX_ITEMS: usize = 1024;
/// Most groups of unexplained questions that are remembered at a time, each with its suspects.
/// Suspects of further groups stay suspects, since no later question can clear them.
const MAX_PUZZLES: usize = 32;

/// An item in its current definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinedItem {
    pub list: ItemList,
    /// Name at the upstream.
    pub name: Arc<str>,
    pub definition: Digest,
}

impl DefinedItem {
    pub fn of(entry: &CatalogEntry) -> Self {
        Self { list: entry.list, name: Arc::clone(&entry.original), definition: entry.definition_digest }
    }
}

/// The caller and the item of a call, by which questions are tied to it.
#[derive(Clone, Debug, Default)]
pub struct CallOrigin {
    /// `None` for a request of the gateway itself.
    pub caller: Option<Caller>,
    pub item: Option<DefinedItem>,
    /// True if the call holds its turn among the calls of items that ask.
    pub in_turn: bool,
    /// True if the answer may name a task, which then goes on.
    pub is_task: bool,
}

/// The conduct of an item whose calls take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemConduct {
    /// The item may have asked.
    Suspect,
    /// The item asks during its calls.
    Asks,
    /// The item asks after its calls have ended.
    Late,
}

/// News about the items of an upstream, for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConductLesson {
    Suspects(Vec<DefinedItem>),
    Asks(DefinedItem),
    Late(DefinedItem),
}

/// The known conduct of one upstream's items, on all of its connections. The lock is held for one
/// operation at a time; calls of upstreams that ask nothing never take it.
#[derive(Debug)]
pub struct AskerRegistry {
    /// True once calls of any item take turns.
    any: AtomicBool,
    /// True once any item was seen to ask after its calls.
    any_late: AtomicBool,
    /// Longest time for which a question is held, in milliseconds.
    patience: AtomicU64,
    book: Mutex<ConductBook>,
}

/// The conduct of items, and the questions that cannot be told to be of one item yet.
#[derive(Debug, Default)]
struct ConductBook {
    /// The conduct of each item, with the definition that it was seen at.
    items: HashMap<(ItemList, Arc<str>), (Digest, ItemConduct)>,
    puzzles: Vec<Puzzle>,
    /// True once an item found no room, so any item may be a suspect.
    is_full: bool,
    /// True once an item that asks after its calls found no room, so any item may be one.
    any_may_be_late: bool,
}

/// Questions that could not be tied to a call, and the items of unknown conduct whose calls may
/// have asked them. Solved once items that are known to ask explain all of the questions.
#[derive(Debug)]
struct Puzzle {
    /// Number of questions that the suspects must have asked.
    questions: usize,
    /// Suspected items, each with the number of its calls.
    suspects: Vec<(DefinedItem, usize)>,
}

impl Default for AskerRegistry {
    fn default() -> Self {
        Self::new(Duration::from_secs(5))
    }
}

impl AskerRegistry {
    pub fn new(patience: Duration) -> Self {
        let askers = Self {
            any: AtomicBool::default(),
            any_late: AtomicBool::default(),
            patience: AtomicU64::default(),
            book: Mutex::default(),
        };
        askers.set_patience(patience);
        askers
    }

    /// Returns the longest time for which a question is held until its call is certain.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::Relaxed))
    }

    pub fn set_patience(&self, patience: Duration) {
        self.patience.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns whether any item was seen to ask after its calls have ended.
    pub fn any_late(&self) -> bool {
        self.any_late.load(Ordering::Relaxed)
    }

    /// Returns the conduct of an item whose calls take turns; `None` for all others.
    pub fn conduct(&self, item: &DefinedItem) -> Option<ItemConduct> {
        self.any.load(Ordering::Relaxed).then(|| self.book.lock().conduct(item)).flatten()
    }

    /// Returns the names of the items whose calls take turns, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.book.lock().items.keys().map(|(_, name)| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Records that a question was tied to a call of that item: its calls take turns from now on,
    /// and suspects that this explains are cleared. Returns the lesson if it is new.
    pub(crate) fn asked(&self, item: &DefinedItem) -> Option<ConductLesson> {
        let mut book = self.book.lock();
        let is_new = !matches!(book.conduct(item), Some(ItemConduct::Asks | ItemConduct::Late));
        if is_new {
            book.set(item, ItemConduct::Asks);
        }
        book.solve(item);
        self.any.store(true, Ordering::Relaxed);
        is_new.then(|| ConductLesson::Asks(item.clone()))
    }

    /// Records that so many questions could not be tied, and that each belongs to one of these
    /// calls, given by their items. Each call of an item whose calls take turns already explains
    /// one of them. If questions are left, the items of the other calls become suspects; a single
    /// such item is known to ask. Returns what was learned.
    pub(crate) fn suspect<'i>(
        &self,
        questions: usize,
        calls: impl Iterator<Item = &'i DefinedItem>,
    ) -> Option<ConductLesson> {
        let mut book = self.book.lock();
        let (mut explained, mut suspects) = (0, Vec::<(DefinedItem, usize)>::new());
        for item in calls {
            match suspects.iter_mut().find(|(suspect, _)| suspect == item) {
                Some((_, calls)) => *calls += 1,
                None if book.conduct(item).is_some() => explained += 1,
                None => suspects.push((item.clone(), 1)),
            }
        }
        let questions = questions.saturating_sub(explained);
        if questions == 0 || suspects.is_empty() {
            return None;
        }
        self.any.store(true, Ordering::Relaxed);
        if let [(only, _)] = suspects.as_slice() {
            book.set(only, ItemConduct::Asks);
            return Some(ConductLesson::Asks(only.clone()));
        }
        for (item, _) in &suspects {
            book.set(item, ItemConduct::Suspect);
        }
        let lesson = ConductLesson::Suspects(suspects.iter().map(|(item, _)| item.clone()).collect());
        if book.puzzles.len() < MAX_PUZZLES {
            book.puzzles.push(Puzzle { questions, suspects });
        }
        Some(lesson)
    }

    /// Records that a question came after the last call, one of that item, was answered: its calls
    /// take turns from now on, and its late questions are refused. Returns the lesson if it is new.
    pub(crate) fn late(&self, item: &DefinedItem) -> Option<ConductLesson> {
        let mut book = self.book.lock();
        if book.conduct(item) == Some(ItemConduct::Late) {
            return None;
        }
        book.set(item, ItemConduct::Late);
        self.any.store(true, Ordering::Relaxed);
        self.any_late.store(true, Ordering::Relaxed);
        Some(ConductLesson::Late(item.clone()))
    }
}

impl ConductBook {
    fn conduct(&self, item: &DefinedItem) -> Option<ItemConduct> {
        let known = self.items.get(&(item.list, Arc::clone(&item.name)));
        let known = known.filter(|(definition, _)| *definition == item.definition).map(|(_, conduct)| *conduct);
        let of_unknown = if self.any_may_be_late { ItemConduct::Late } else { ItemConduct::Suspect };
        known.or(self.is_full.then_some(of_unknown))
    }

    /// Sets the conduct of an item. When there is no room, only an item that asks late gets it,
    /// from one that does not.
    fn set(&mut self, item: &DefinedItem, conduct: ItemConduct) {
        let key = (item.list, Arc::clone(&item.name));
        if self.items.len() >= MAX_ITEMS && !self.items.contains_key(&key) {
            self.is_full = true;
            if conduct != ItemConduct::Late {
                return;
            }
            // Without an entry the item still takes turns, but its questions would not be refused.
            let gives_way = self.items.iter().find(|(_, (_, other))| *other != ItemConduct::Late);
            let Some(gives_way) = gives_way.map(|(key, _)| key.clone()) else {
                self.any_may_be_late = true;
                return;
            };
            self.items.remove(&gives_way);
        }
        self.items.insert(key, (item.definition, conduct));
    }

    /// Removes an item that is known to ask from the suspects of all puzzles, with the questions
    /// that its calls explain. Forgets each puzzle that this solves, and clears its other suspects.
    fn solve(&mut self, asker: &DefinedItem) {
        let mut cleared = Vec::new();
        self.puzzles.retain_mut(|Puzzle { questions, suspects }| {
            let Some(at) = suspects.iter().position(|(item, _)| item == asker) else { return true };
            let (_, calls) = suspects.swap_remove(at);
            *questions = questions.saturating_sub(calls);
            let is_solved = *questions == 0;
            if is_solved {
                cleared.extend(suspects.drain(..).map(|(item, _)| item));
            }
            !is_solved
        });
        for item in cleared {
            let is_suspected =
                self.puzzles.iter().any(|puzzle| puzzle.suspects.iter().any(|(other, _)| *other == item));
            if !is_suspected && self.conduct(&item) == Some(ItemConduct::Suspect) {
                self.items.remove(&(item.list, item.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str) -> DefinedItem {
        DefinedItem { list: ItemList::Tools, name: Arc::from(name), definition: Digest::of(b"one") }
    }

    #[test]
    fn an_item_that_asked_takes_turns_until_its_definition_changes() {
        let askers = AskerRegistry::default();
        let (form, changed) = (item("form"), DefinedItem { definition: Digest::of(b"two"), ..item("form") });
        assert_eq!(askers.conduct(&form), None);
        assert_eq!(askers.asked(&form), Some(ConductLesson::Asks(form.clone())));
        assert_eq!(askers.asked(&form), None, "known");
        assert_eq!(askers.conduct(&form), Some(ItemConduct::Asks));
        assert_eq!(askers.conduct(&changed), None);
        assert_eq!(askers.conduct(&DefinedItem { list: ItemList::Prompts, ..form.clone() }), None);
        assert!(askers.late(&form).is_some() && askers.late(&form).is_none());
        assert_eq!((askers.asked(&form), askers.conduct(&form)), (None, Some(ItemConduct::Late)), "it stays so");
        assert!(askers.asked(&changed).is_some());
        assert_eq!(askers.conduct(&changed), Some(ItemConduct::Asks));
    }

    #[test]
    fn suspects_are_cleared_once_it_is_known_who_asked() {
        let askers = AskerRegistry::default();
        let [form, echo, sample] = ["form", "echo", "sample"].map(item);
        assert!(
            matches!(askers.suspect(1, [&form, &echo].into_iter()), Some(ConductLesson::Suspects(two)) if two.len() == 2)
        );
        assert_eq!(askers.conduct(&echo), Some(ItemConduct::Suspect));
        assert!(askers.asked(&form).is_some());
        assert_eq!((askers.conduct(&form), askers.conduct(&echo)), (Some(ItemConduct::Asks), None));
        assert_eq!(askers.names(), ["form"]);
        assert_eq!(askers.suspect(1, [&form, &echo].into_iter()), None, "the one that asks explains it");
        assert!(askers.suspect(2, [&form, &echo, &sample].into_iter()).is_some(), "one of the others asked as well");
        askers.asked(&form);
        assert_eq!(askers.conduct(&echo), Some(ItemConduct::Suspect), "nothing new");
        askers.asked(&sample);
        assert_eq!(askers.conduct(&echo), None);
        assert_eq!(
            askers.suspect(1, [&echo, &echo].into_iter()),
            Some(ConductLesson::Asks(echo.clone())),
            "nothing else ran"
        );
    }

    #[test]
    fn two_calls_of_one_item_explain_two_questions_and_two_items_are_cleared_by_both() {
        let askers = AskerRegistry::default();
        let [form, echo, sample] = ["form", "echo", "sample"].map(item);
        askers.suspect(2, [&form, &form, &echo].into_iter());
        askers.asked(&form);
        assert_eq!(askers.conduct(&echo), None);
        let askers = AskerRegistry::default();
        askers.suspect(2, [&form, &sample, &echo].into_iter());
        askers.asked(&form);
        assert_eq!(askers.conduct(&echo), Some(ItemConduct::Suspect), "another one asked too");
        askers.asked(&sample);
        assert_eq!(askers.conduct(&echo), None);
    }

    #[test]
    fn with_too_many_items_to_remember_all_take_turns() {
        let askers = AskerRegistry::default();
        for n in 0..=MAX_ITEMS {
            askers.asked(&item(&n.to_string()));
        }
        assert_eq!(askers.conduct(&item("never seen")), Some(ItemConduct::Suspect));
        let book = askers.book.lock();
        assert_eq!(book.items.len(), MAX_ITEMS);
        drop(book);
        for n in 0..100 {
            askers.suspect(1, [&item(&format!("a{n}")), &item(&format!("b{n}"))].into_iter());
        }
        assert!(askers.book.lock().puzzles.len() <= MAX_PUZZLES);
    }

    #[test]
    fn with_too_many_items_to_remember_late_questions_are_refused_still() {
        let askers = AskerRegistry::default();
        for n in 0..MAX_ITEMS {
            askers.asked(&item(&n.to_string()));
        }
        let late = item("late");
        assert_eq!(askers.late(&late), Some(ConductLesson::Late(late.clone())));
        assert_eq!((askers.conduct(&late), askers.late(&late)), (Some(ItemConduct::Late), None));
        assert_eq!(askers.conduct(&item("never seen")), Some(ItemConduct::Suspect));
        for n in 0..=MAX_ITEMS {
            askers.late(&item(&format!("late {n}")));
        }
        assert_eq!(askers.conduct(&item("never seen")), Some(ItemConduct::Late));
        assert_eq!(askers.book.lock().items.len(), MAX_ITEMS);
    }
}
