//! Items that ask their client in the middle of a call, as far as their server has shown it. Their calls pass one at a time where
//! nothing says which call a question belongs to.
//!
//! | seen | what follows for its calls |
//! |---|---|
//! | a question was tied to one | they take turns |
//! | one ran when a question came that could not be tied | they take turns, until it is known which of the items in flight asked |
//! | a question came after one was answered and no other ran | they take turns, and their questions are refused |
//!
//! An item whose definition has changed is another item. Only questions on streams that calls share count: on a call's own stream
//! nothing is in doubt.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::catalog::merge::Entry;
use crate::mcp::method::List;
use crate::policy::Caller;
use crate::wire::digest::Digest;

/// Items of one upstream that are kept. With more, all of its items count as suspects, and with more that ask after their calls
/// all count as such.
const MAX_ITEMS: usize = 1024;
/// Questions that could not be tied and of which it is not known yet who asked. With more, the suspects stay suspects.
const MAX_PUZZLES: usize = 32;

/// An item as it is defined now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub list: List,
    /// Its name at the upstream.
    pub name: Arc<str>,
    pub definition: Digest,
}

impl Item {
    pub fn of(entry: &Entry) -> Self {
        Self { list: entry.list, name: Arc::clone(&entry.original), definition: entry.definition_digest }
    }
}

/// The caller and the item of a call, by which questions are tied to it.
#[derive(Clone, Debug, Default)]
pub struct Party {
    /// Absent for requests of the gateway's own.
    pub caller: Option<Caller>,
    pub item: Option<Item>,
    /// It has its turn among the calls of items that ask.
    pub in_turn: bool,
    /// Its answer may name a task, which goes on.
    pub is_task: bool,
}

/// The conduct of an item, from which its calls take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// It may have asked.
    Suspect,
    Asks,
    /// It asks after its calls have ended.
    Late,
}

/// News about the items of an upstream, for its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lesson {
    Suspects(Vec<Item>),
    Asks(Item),
    Late(Item),
}

/// The conduct of one upstream's items, as far as it is known. Clients share it; the lock guards one operation at a time, and
/// upstreams that ask nothing never take it.
#[derive(Debug)]
pub struct Askers {
    any: AtomicBool,
    any_late: AtomicBool,
    /// How long a question may wait until it is clear whose it is, in milliseconds.
    patience: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    items: HashMap<(List, Arc<str>), (Digest, Conduct)>,
    puzzles: Vec<Puzzle>,
    is_full: bool,
    /// Not even the items that ask after their calls have room, so any item may be one.
    any_may_be_late: bool,
}

/// Questions that could not be tied, and the calls of unknown conduct that one of them may belong to.
#[derive(Debug)]
struct Puzzle {
    questions: usize,
    /// Items, each with its calls.
    suspects: Vec<(Item, usize)>,
}

impl Default for Askers {
    fn default() -> Self {
        Self::new(Duration::from_secs(5))
    }
}

impl Askers {
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

    /// How long a question may wait until it is clear whose it is.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::Relaxed))
    }

    pub fn set_patience(&self, patience: Duration) {
        self.patience.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether an item asks after its calls have ended.
    pub fn any_late(&self) -> bool {
        self.any_late.load(Ordering::Relaxed)
    }

    /// The conduct of an item whose calls take turns; `None` for all others.
    pub fn conduct(&self, item: &Item) -> Option<Conduct> {
        self.any.load(Ordering::Relaxed).then(|| self.book.lock().conduct(item)).flatten()
    }

    /// The names of the items whose calls take turns.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.book.lock().items.keys().map(|(_, name)| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// A question was tied to a call of that item.
    pub(crate) fn asked(&self, item: &Item) -> Option<Lesson> {
        let mut book = self.book.lock();
        let is_new = !matches!(book.conduct(item), Some(Conduct::Asks | Conduct::Late));
        if is_new {
            book.set(item, Conduct::Asks);
        }
        book.solve(item);
        self.any.store(true, Ordering::Relaxed);
        is_new.then(|| Lesson::Asks(item.clone()))
    }

    /// So many questions could not be tied, and each belongs to one of these calls. Calls of items that are known to ask explain as
    /// many of them; the items of the other calls become suspects where that is too few.
    pub(crate) fn suspect<'i>(&self, questions: usize, calls: impl Iterator<Item = &'i Item>) -> Option<Lesson> {
        let mut book = self.book.lock();
        let (mut explained, mut suspects) = (0, Vec::<(Item, usize)>::new());
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
            book.set(only, Conduct::Asks);
            return Some(Lesson::Asks(only.clone()));
        }
        for (item, _) in &suspects {
            book.set(item, Conduct::Suspect);
        }
        let lesson = Lesson::Suspects(suspects.iter().map(|(item, _)| item.clone()).collect());
        if book.puzzles.len() < MAX_PUZZLES {
            book.puzzles.push(Puzzle { questions, suspects });
        }
        Some(lesson)
    }

    /// A question came after the last call, one of that item, had its answer.
    pub(crate) fn late(&self, item: &Item) -> Option<Lesson> {
        let mut book = self.book.lock();
        if book.conduct(item) == Some(Conduct::Late) {
            return None;
        }
        book.set(item, Conduct::Late);
        self.any.store(true, Ordering::Relaxed);
        self.any_late.store(true, Ordering::Relaxed);
        Some(Lesson::Late(item.clone()))
    }
}

impl Book {
    fn conduct(&self, item: &Item) -> Option<Conduct> {
        let known = self.items.get(&(item.list, Arc::clone(&item.name)));
        let known = known.filter(|(definition, _)| *definition == item.definition).map(|(_, conduct)| *conduct);
        let of_unknown = if self.any_may_be_late { Conduct::Late } else { Conduct::Suspect };
        known.or(self.is_full.then_some(of_unknown))
    }

    fn set(&mut self, item: &Item, conduct: Conduct) {
        let key = (item.list, Arc::clone(&item.name));
        if self.items.len() >= MAX_ITEMS && !self.items.contains_key(&key) {
            self.is_full = true;
            if conduct != Conduct::Late {
                return;
            }
            // Without an entry an item still takes turns, but its questions would not be refused.
            let gives_way = self.items.iter().find(|(_, (_, other))| *other != Conduct::Late);
            let Some(gives_way) = gives_way.map(|(key, _)| key.clone()) else {
                self.any_may_be_late = true;
                return;
            };
            self.items.remove(&gives_way);
        }
        self.items.insert(key, (item.definition, conduct));
    }

    /// Notes that the item asks, which may clear others that were suspected with it.
    fn solve(&mut self, asker: &Item) {
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
            if !is_suspected && self.conduct(&item) == Some(Conduct::Suspect) {
                self.items.remove(&(item.list, item.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str) -> Item {
        Item { list: List::Tools, name: Arc::from(name), definition: Digest::of(b"one") }
    }

    #[test]
    fn an_item_that_asked_takes_turns_until_its_definition_changes() {
        let askers = Askers::default();
        let (form, changed) = (item("form"), Item { definition: Digest::of(b"two"), ..item("form") });
        assert_eq!(askers.conduct(&form), None);
        assert_eq!(askers.asked(&form), Some(Lesson::Asks(form.clone())));
        assert_eq!(askers.asked(&form), None, "known");
        assert_eq!(askers.conduct(&form), Some(Conduct::Asks));
        assert_eq!(askers.conduct(&changed), None);
        assert_eq!(askers.conduct(&Item { list: List::Prompts, ..form.clone() }), None);
        assert!(askers.late(&form).is_some() && askers.late(&form).is_none());
        assert_eq!((askers.asked(&form), askers.conduct(&form)), (None, Some(Conduct::Late)), "it stays so");
        assert!(askers.asked(&changed).is_some());
        assert_eq!(askers.conduct(&changed), Some(Conduct::Asks));
    }

    #[test]
    fn suspects_are_cleared_once_it_is_known_who_asked() {
        let askers = Askers::default();
        let [form, echo, sample] = ["form", "echo", "sample"].map(item);
        assert!(matches!(askers.suspect(1, [&form, &echo].into_iter()), Some(Lesson::Suspects(two)) if two.len() == 2));
        assert_eq!(askers.conduct(&echo), Some(Conduct::Suspect));
        assert!(askers.asked(&form).is_some());
        assert_eq!((askers.conduct(&form), askers.conduct(&echo)), (Some(Conduct::Asks), None));
        assert_eq!(askers.names(), ["form"]);
        assert_eq!(askers.suspect(1, [&form, &echo].into_iter()), None, "the one that asks explains it");
        assert!(askers.suspect(2, [&form, &echo, &sample].into_iter()).is_some(), "one of the others asked as well");
        askers.asked(&form);
        assert_eq!(askers.conduct(&echo), Some(Conduct::Suspect), "nothing new");
        askers.asked(&sample);
        assert_eq!(askers.conduct(&echo), None);
        assert_eq!(askers.suspect(1, [&echo, &echo].into_iter()), Some(Lesson::Asks(echo.clone())), "nothing else ran");
    }

    #[test]
    fn two_calls_of_one_item_explain_two_questions_and_two_items_are_cleared_by_both() {
        let askers = Askers::default();
        let [form, echo, sample] = ["form", "echo", "sample"].map(item);
        askers.suspect(2, [&form, &form, &echo].into_iter());
        askers.asked(&form);
        assert_eq!(askers.conduct(&echo), None);
        let askers = Askers::default();
        askers.suspect(2, [&form, &sample, &echo].into_iter());
        askers.asked(&form);
        assert_eq!(askers.conduct(&echo), Some(Conduct::Suspect), "another one asked too");
        askers.asked(&sample);
        assert_eq!(askers.conduct(&echo), None);
    }

    #[test]
    fn with_too_many_items_to_remember_all_take_turns() {
        let askers = Askers::default();
        for n in 0..=MAX_ITEMS {
            askers.asked(&item(&n.to_string()));
        }
        assert_eq!(askers.conduct(&item("never seen")), Some(Conduct::Suspect));
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
        let askers = Askers::default();
        for n in 0..MAX_ITEMS {
            askers.asked(&item(&n.to_string()));
        }
        let late = item("late");
        assert_eq!(askers.late(&late), Some(Lesson::Late(late.clone())));
        assert_eq!((askers.conduct(&late), askers.late(&late)), (Some(Conduct::Late), None));
        assert_eq!(askers.conduct(&item("never seen")), Some(Conduct::Suspect));
        for n in 0..=MAX_ITEMS {
            askers.late(&item(&format!("late {n}")));
        }
        assert_eq!(askers.conduct(&item("never seen")), Some(Conduct::Late));
        assert_eq!(askers.book.lock().items.len(), MAX_ITEMS);
    }
}
