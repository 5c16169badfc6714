//! The tools that a client's own lists have shown lately: a call of one that is gone since is told so, and no other call is.
//!
//! Nothing here asks whether a tool exists or existed, so it cannot tell of a hidden one: a name counts for a client because a page
//! that this client was given had it. A page is remembered by the digest of its names, and the names of equal pages are kept once,
//! whoever was given them and in whichever generation. Both sides are bounded; what finds no room counts as never shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::wire::digest::Digest;

/// How long a client may rely on a list.
pub const LIFE: Duration = Duration::from_secs(3600);
/// Pages of one client that are remembered. The oldest gives way.
const MAX_PAGES: usize = 32;
/// Names of all pages together, 16 bytes each. The pages that were shown longest ago give way.
const MAX_NAMES: usize = 1 << 20;
/// Pages of all clients together.
const MAX_SETS: usize = 4096;

/// The digest of a name or of a page's names.
type Key = u128;

fn key(bytes: &[u8]) -> Key {
    Digest::of(bytes).bytes().first_chunk().map_or(0, |first| Key::from_be_bytes(*first))
}

/// The names on one page of a list.
#[derive(Debug)]
pub struct Names {
    /// Equal for equal names, in any order.
    id: Key,
    sorted: Box<[Key]>,
}

impl Names {
    pub fn of<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut sorted: Box<[Key]> = names.map(|name| key(name.as_bytes())).collect();
        sorted.sort_unstable();
        let bytes: Vec<u8> = sorted.iter().flat_map(|key| key.to_be_bytes()).collect();
        Self { id: key(&bytes), sorted }
    }

    fn has(&self, name: Key) -> bool {
        self.sorted.binary_search(&name).is_ok()
    }

    fn has_all_of(&self, other: &Self) -> bool {
        self.sorted.len() >= other.sorted.len() && other.sorted.iter().all(|name| self.has(*name))
    }
}

/// The pages that one client was given, the latest last.
#[derive(Debug, Default)]
pub struct Shown(Vec<(Key, Duration)>);

impl Shown {
    /// When the client was given its last page.
    pub fn last(&self) -> Option<Duration> {
        self.0.last().map(|(_, at)| *at)
    }
}

/// The names of all remembered pages.
#[derive(Debug)]
pub struct Pages {
    sets: HashMap<Key, (Arc<Names>, Duration), RandomState>,
    /// Names in all sets.
    names: usize,
    max_names: usize,
    max_sets: usize,
}

impl Default for Pages {
    fn default() -> Self {
        Self { sets: HashMap::default(), names: 0, max_names: MAX_NAMES, max_sets: MAX_SETS }
    }
}

impl Pages {
    /// A client is given a page. `now` is the time since the process started, here and in [`Self::showed`].
    pub fn show(&mut self, shown: &mut Shown, names: &Arc<Names>, now: Duration) {
        if names.sorted.is_empty() || !self.keep(names, now) {
            return;
        }
        // An older page says nothing that this one does not say too.
        let is_covered = |id: Key| self.sets.get(&id).is_none_or(|(older, _)| names.has_all_of(older));
        match shown.0.iter().position(|(id, _)| *id == names.id) {
            Some(at) => drop(shown.0.remove(at)),
            None => shown.0.retain(|(id, at)| now.saturating_sub(*at) < LIFE && !is_covered(*id)),
        }
        if shown.0.len() >= MAX_PAGES {
            shown.0.remove(0);
        }
        shown.0.push((names.id, now));
    }

    /// Whether one of the client's pages had that name less than [`LIFE`] ago. Takes the same steps whether the name is that of a
    /// tool or of none.
    pub fn showed(&self, shown: &Shown, name: &str, now: Duration) -> bool {
        let name = key(name.as_bytes());
        let fresh = shown.0.iter().filter(|(_, at)| now.saturating_sub(*at) < LIFE);
        fresh.filter_map(|(id, _)| self.sets.get(id)).any(|(names, _)| names.has(name))
    }

    /// Keeps the names of a page from now on; `false` where there is no room for so many.
    fn keep(&mut self, names: &Arc<Names>, now: Duration) -> bool {
        if let Some((_, last)) = self.sets.get_mut(&names.id) {
            *last = now;
            return true;
        }
        let more = names.sorted.len();
        if more > self.max_names {
            return false;
        }
        while self.names + more > self.max_names || self.sets.len() >= self.max_sets {
            let oldest = self.sets.iter().min_by_key(|(_, (_, last))| *last).map(|(id, _)| *id);
            let Some((gone, _)) = oldest.and_then(|id| self.sets.remove(&id)) else { break };
            self.names = self.names.saturating_sub(gone.sorted.len());
        }
        self.names += more;
        self.sets.insert(names.id, (Arc::clone(names), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);

    fn page(names: &[&str]) -> Arc<Names> {
        Arc::new(Names::of(names.iter().copied()))
    }

    #[test]
    fn a_name_counts_for_an_hour_from_the_last_list_that_had_it() {
        let (mut pages, mut shown) = (Pages::default(), Shown::default());
        assert!(!pages.showed(&shown, "a", NOW));
        pages.show(&mut shown, &page(&["a", "b"]), NOW);
        pages.show(&mut shown, &page(&["b", "c"]), NOW + SECOND);
        let showed = |shown: &Shown, now| ["a", "b", "c", "d"].map(|name| pages.showed(shown, name, now));
        assert_eq!(showed(&shown, NOW + LIFE - SECOND), [true, true, true, false]);
        assert_eq!(showed(&shown, NOW + LIFE), [false, true, true, false]);
        assert_eq!(showed(&shown, NOW + LIFE + SECOND), [false; 4]);
        assert_eq!(showed(&Shown::default(), NOW), [false; 4], "another client's lists");
        assert_eq!(shown.last(), Some(NOW + SECOND));
    }

    #[test]
    fn equal_pages_are_kept_once_and_a_longer_one_replaces_a_shorter() {
        let (mut pages, mut one, mut two) = (Pages::default(), Shown::default(), Shown::default());
        for (shown, names) in [(&mut one, ["a", "b"]), (&mut two, ["b", "a"])] {
            pages.show(shown, &page(&names), NOW);
            pages.show(shown, &page(&names), NOW + SECOND);
        }
        assert_eq!((pages.sets.len(), pages.names, one.0.len()), (1, 2, 1));
        pages.show(&mut one, &page(&["a", "b", "c"]), NOW + SECOND);
        assert_eq!((one.0.len(), pages.sets.len()), (1, 2));
        assert!(pages.showed(&one, "a", NOW + LIFE));
        pages.show(&mut one, &page(&[]), NOW + SECOND);
        assert!(pages.showed(&one, "a", NOW + LIFE), "an empty list takes nothing back");
        assert!(!pages.showed(&two, "c", NOW + SECOND));
    }

    #[test]
    fn all_of_it_is_bounded() {
        let mut pages = Pages { max_names: 100, max_sets: 40, ..Pages::default() };
        let mut shown = Shown::default();
        let at = |n: u32| NOW + SECOND * n;
        for n in 0..200 {
            pages.show(&mut shown, &page(&[&format!("t{n}")]), at(n));
            assert!(shown.0.len() <= MAX_PAGES && pages.sets.len() <= 40 && pages.names <= 100);
        }
        let showed = |pages: &Pages, n: u32| pages.showed(&shown, &format!("t{n}"), at(200));
        assert!(showed(&pages, 199) && showed(&pages, 170) && !showed(&pages, 0));
        let names: Vec<String> = (0..101).map(|n| format!("m{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut other = Shown::default();
        pages.show(&mut other, &page(&names), at(200));
        assert!(!pages.showed(&other, "m0", at(200)), "a page that finds no room counts as never shown");
        assert!(showed(&pages, 199));
        pages.show(&mut other, &page(&names[1..]), at(200));
        assert!(pages.showed(&other, "m1", at(200)) && !showed(&pages, 199) && pages.names == 100);
    }
}
