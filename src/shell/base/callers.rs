//! Small numbers for callers, and counters indexed by them. Counting a call needs neither a lock
//! nor an allocation.
//!
//! A caller has a number as long as a [`CallerNumber`] of it exists (in its access, a slot, or room
//! in the budget). Afterwards the number is reused, so there are never more numbers than callers at
//! once.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::policy::Caller;

/// Number of counters in the first chunk; each further chunk has twice as many as the one before.
const FIRST: usize = 32;
/// Number of chunks: enough for two million callers at once.
const CHUNKS: usize = 16;
/// Callers with a counter of their own. All callers with higher numbers share one counter.
const COUNTED: usize = FIRST * ((1 << CHUNKS) - 1);

static NAMES: LazyLock<Mutex<CallerNumberTable>> = LazyLock::new(Mutex::default);

/// The table that assigns numbers to callers.
#[derive(Debug, Default)]
struct CallerNumberTable {
    callers: HashMap<Caller, Weak<NamedCaller>, RandomState>,
    /// Numbers that are free again.
    free: Vec<usize>,
    /// The highest number handed out so far. Zero is never handed out: it belongs to our own user.
    used: usize,
}

/// A caller with its number. Dropping it frees the number.
#[derive(Debug)]
struct NamedCaller {
    caller: Caller,
    number: usize,
    /// The table that lists the caller: [`NAMES`], or the table of a test.
    table: &'static Mutex<CallerNumberTable>,
}

impl Drop for NamedCaller {
    fn drop(&mut self) {
        let mut names = self.table.lock();
        // This entry's weak reference was dead for a while, so the caller may have a new number by
        // now.
        let is_own = |known: &Weak<Self>| std::ptr::eq(known.as_ptr(), std::ptr::from_ref(self));
        if names.callers.get(&self.caller).is_some_and(is_own) {
            names.callers.remove(&self.caller);
        }
        names.free.push(self.number);
    }
}

/// A caller's number; no other caller has it while a clone of this value exists.
#[derive(Clone, Debug)]
pub struct CallerNumber(Option<Arc<NamedCaller>>);

impl PartialEq for CallerNumber {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for CallerNumber {}

impl CallerNumber {
    /// The number of our own user, and of clients that need no credential.
    pub const LOCAL: Self = Self(None);

    /// Returns the caller's number, and assigns one if it has none. Takes a lock.
    pub fn of(caller: &Caller) -> Self {
        if caller.is_local() {
            return Self::LOCAL;
        }
        Self::in_table(&NAMES, caller)
    }

    /// Finds the caller's number in a table, or assigns one.
    fn in_table(table: &'static Mutex<CallerNumberTable>, caller: &Caller) -> Self {
        let mut names = table.lock();
        if let Some(known) = names.callers.get(caller).and_then(Weak::upgrade) {
            return Self(Some(known));
        }
        let number = names.free.pop().unwrap_or_else(|| {
            names.used += 1;
            names.used
        });
        let named = Arc::new(NamedCaller { caller: caller.clone(), number, table });
        names.callers.insert(caller.clone(), Arc::downgrade(&named));
        Self(Some(named))
    }

    /// Returns the bare number.
    pub fn get(&self) -> usize {
        self.0.as_ref().map_or(0, |named| named.number)
    }
}

/// One counter for each caller. Code that adds to a counter must keep the [`CallerNumber`] until it
/// has subtracted the same amount, because the number may be reused afterwards.
#[derive(Debug)]
pub struct CallerCounts {
    chunks: [OnceLock<Box<[AtomicUsize]>>; CHUNKS],
    /// The counter shared by all callers beyond [`COUNTED`].
    others: AtomicUsize,
}

impl Default for CallerCounts {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], others: AtomicUsize::new(0) }
    }
}

impl CallerCounts {
    /// Returns the counter of a caller.
    pub fn of(&self, caller: &CallerNumber) -> &AtomicUsize {
        self.at(caller.get())
    }

    /// Returns the counter with this number, and creates its chunk if needed.
    fn at(&self, number: usize) -> &AtomicUsize {
        if number >= COUNTED {
            return &self.others;
        }
        let (chunk, place) = place(number);
        let counts = self
            .chunks
            .get(chunk)
            .map(|counts| counts.get_or_init(|| (0..FIRST << chunk).map(|_| AtomicUsize::new(0)).collect()));
        counts.and_then(|counts| counts.get(place)).unwrap_or(&self.others)
    }

    /// Iterates over the counters that exist, with the numbers of their callers. The last one is
    /// the shared counter.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &AtomicUsize)> {
        let chunks = self.chunks.iter().enumerate().filter_map(|(chunk, counts)| Some((first(chunk), counts.get()?)));
        chunks.flat_map(|(first, counts)| (first..).zip(counts)).chain([(COUNTED, &self.others)])
    }

    /// Iterates over the counters that exist, the shared one included.
    pub fn all(&self) -> impl Iterator<Item = &AtomicUsize> {
        self.chunks.iter().filter_map(OnceLock::get).flatten().chain([&self.others])
    }
}

/// Returns the chunk that holds a number's counter, and the index in that chunk.
const fn place(number: usize) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2() as usize;
    (chunk, number - first(chunk))
}

/// Returns the lowest number whose counter is in the chunk.
const fn first(chunk: usize) -> usize {
    FIRST * ((1 << chunk) - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::Ordering;

    use super::*;

    fn number_of(name: &str) -> CallerNumber {
        CallerNumber::of(&Caller::named(name))
    }

    #[test]
    fn a_caller_keeps_its_number_and_no_other_has_it() {
        assert_eq!(CallerNumber::of(Caller::local()), CallerNumber::LOCAL);
        let many: Vec<CallerNumber> = (0..1000).map(|n| number_of(&format!("many-{n}"))).collect();
        for (n, number) in many.iter().enumerate() {
            assert_eq!(*number, number_of(&format!("many-{n}")));
        }
        let counts = CallerCounts::default();
        let places: HashSet<*const AtomicUsize> =
            many.iter().chain([&CallerNumber::LOCAL]).map(|number| std::ptr::from_ref(counts.of(number))).collect();
        assert_eq!(places.len(), 1001, "each has a count of its own");
    }

    #[test]
    fn each_number_has_a_place_of_its_own_in_a_chunk() {
        let mut expected = (0..CHUNKS).flat_map(|chunk| (0..FIRST << chunk).map(move |at| (chunk, at)));
        assert!((0..COUNTED).all(|number| expected.next() == Some(place(number))) && expected.next().is_none());
        let counts = CallerCounts::default();
        counts.at(COUNTED).fetch_add(1, Ordering::Relaxed);
        assert_eq!(counts.at(COUNTED + 1).load(Ordering::Relaxed), 1, "more callers than that share one");
        assert_eq!(counts.all().count(), 1, "nothing else was made");
        counts.at(FIRST + 3).fetch_add(7, Ordering::Relaxed);
        let used = counts.numbered().filter(|(_, count)| count.load(Ordering::Relaxed) > 0);
        assert_eq!(used.map(|(number, _)| number).collect::<Vec<_>>(), [FIRST + 3, COUNTED]);
    }

    #[test]
    fn callers_come_and_go_without_bound_and_need_no_more_numbers_than_there_are_at_once() {
        const AT_ONCE: usize = 300;
        let table: &'static Mutex<CallerNumberTable> = Box::leak(Box::default());
        let number_of = |name: usize| CallerNumber::in_table(table, &Caller::named(&format!("come-{name}")));
        let mut random = fastrand::Rng::with_seed(41);
        let counts = CallerCounts::default();
        let mut live: Vec<(usize, CallerNumber)> = Vec::new();
        for name in 0..50_000 {
            // A caller that is there already, or a new one.
            let at = random.usize(0..AT_ONCE * 2);
            let (name, number) = match live.get(at) {
                Some((name, number)) => (*name, number.clone()),
                None => (name, number_of(name)),
            };
            assert_eq!(number, number_of(name));
            assert!((1..=AT_ONCE).contains(&number.get()), "{number:?}");
            counts.of(&number).fetch_add(1, Ordering::Relaxed);
            live.push((name, number));
            while live.len() >= AT_ONCE || (!live.is_empty() && random.u8(0..3) == 0) {
                let (name, number) = live.swap_remove(random.usize(0..live.len()));
                let held = live.iter().filter(|(other, _)| *other == name).count();
                assert_eq!(counts.of(&number).fetch_sub(1, Ordering::Relaxed), held + 1, "no other caller counts here");
            }
        }
        for (_, number) in live.drain(..) {
            counts.of(&number).fetch_sub(1, Ordering::Relaxed);
        }
        assert!(counts.all().all(|count| count.load(Ordering::Relaxed) == 0));
        assert!(table.lock().callers.is_empty());
    }

    #[test]
    fn names_that_come_and_go_on_several_threads_keep_numbers_apart() {
        let counts = CallerCounts::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counts = &counts;
                scope.spawn(move || {
                    for round in 0..5000 {
                        let shared = number_of(&format!("shared-{}", round % 3));
                        let own = number_of(&format!("own-{thread}-{}", round % 2));
                        assert_ne!(shared, own);
                        assert_eq!(counts.of(&own).fetch_add(1, Ordering::AcqRel), 0);
                        counts.of(&own).fetch_sub(1, Ordering::AcqRel);
                        drop((shared, own));
                    }
                });
            }
        });
    }
}
