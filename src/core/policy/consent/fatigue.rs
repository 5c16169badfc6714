//! Against approval fatigue: bounds on a caller's approvals, and refusals after denials and unanswered ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Asked, Prompt, Wall};
use crate::policy::Digest;

/// How long a denial is remembered for the same action, in seconds.
pub(super) const DENIED: Wall = 600;
/// Prompts opened within so many seconds can be one strike.
const TOGETHER: Wall = 10;
/// Strikes of one caller that are remembered for a minute; no configuration counts as far.
const MAX_UNANSWERED: usize = 128;
/// Dismissals and time-outs in a row that close an item to a caller.
pub(super) const STRIKES: u32 = 3;
/// For how long, the first, second and any further time, in seconds.
pub(super) const EMBARGOES: [Wall; 3] = [600, 3600, 24 * 3600];
/// After so many quiet seconds nothing is remembered of strikes.
const FORGIVEN: Wall = 24 * 3600;
const MINUTE: Wall = 60;

/// Entries of each memory, and those of one caller among them. Without room nothing is asked.
const MAX_ENTRIES: usize = 8192;
const MAX_OF_CALLER: usize = 512;

/// Unanswered prompts of one caller about one item.
#[derive(Clone, Copy, Debug, Default)]
struct Strikes {
    in_row: u32,
    embargoes: usize,
    /// No prompt before this.
    until: Wall,
    last: Wall,
    /// When the prompt of the last strike was opened, and the number of the newest prompt at that strike.
    opened_at: Wall,
    newest: u64,
    /// The number of the newest prompt when the last embargo began. Those that were open then add nothing.
    embargoed: u64,
}

/// The memory of a desk.
#[derive(Debug, Default)]
pub(super) struct Fatigue {
    /// When each caller's strikes of the last minute were.
    unanswered: HashMap<Arc<str>, VecDeque<Wall>>,
    /// Denied actions, whose they are and until when.
    denied: HashMap<Digest, (Arc<str>, Wall)>,
    /// By caller, by item.
    strikes: HashMap<Arc<str>, HashMap<Arc<str>, Strikes>>,
    swept: Wall,
}

impl Fatigue {
    /// Forgets expired entries.
    pub(super) fn sweep(&mut self, now: Wall) {
        if now < self.swept + MINUTE {
            return;
        }
        self.swept = now;
        self.denied.retain(|_, (_, until)| *until > now);
        self.unanswered.retain(|_, times| times.back().is_some_and(|at| at + MINUTE > now));
        for items in self.strikes.values_mut() {
            items.retain(|_, strikes| strikes.until.max(strikes.last) + FORGIVEN > now);
        }
        self.strikes.retain(|_, items| !items.is_empty());
    }

    pub(super) fn is_denied(&self, action: &Digest, now: Wall) -> bool {
        self.denied.get(action).is_some_and(|(_, until)| *until > now)
    }

    /// Actions that a denial still refuses.
    pub(super) fn denials(&self, now: Wall) -> usize {
        self.denied.values().filter(|(_, until)| *until > now).count()
    }

    /// Until when the caller is not asked about that item.
    pub(super) fn embargo(&self, asked: &Asked, now: Wall) -> Option<Wall> {
        let strikes = self.strikes.get(&asked.caller)?.get(&asked.item)?;
        (strikes.until > now).then_some(strikes.until)
    }

    /// Whether what may come of another prompt can be remembered.
    pub(super) fn has_room(&self, asked: &Asked) -> bool {
        let known = self.strikes.get(&asked.caller).is_some_and(|items| items.contains_key(&asked.item));
        let mine = self.strikes.get(&asked.caller).map_or(0, HashMap::len);
        let all: usize = self.strikes.values().map(HashMap::len).sum();
        let strikes = known || (mine < MAX_OF_CALLER && all < MAX_ENTRIES);
        let my_denied = self.denied.values().filter(|(caller, _)| *caller == asked.caller).count();
        let denied = my_denied < MAX_OF_CALLER && self.denied.len() < MAX_ENTRIES;
        strikes && denied && (self.unanswered.contains_key(&asked.caller) || self.unanswered.len() < MAX_ENTRIES)
    }

    /// How many prompts of the caller ended without an answer within a minute, and the seconds until it may open another one;
    /// `None` when it may.
    pub(super) fn wait(&mut self, caller: &Arc<str>, per_minute: usize, now: Wall) -> Option<(usize, Wall)> {
        let times = self.unanswered.get_mut(caller)?;
        forget_old(times, now);
        // The oldest of those that are too many ends the wait.
        let last = times.len().checked_sub(per_minute)?;
        let until = times.get(last).copied().unwrap_or(now) + MINUTE;
        Some((times.len(), until.saturating_sub(now).max(1)))
    }

    /// A person denied the call.
    pub(super) fn denied(&mut self, asked: &Asked, now: Wall) {
        self.denied.insert(asked.action(), (Arc::clone(&asked.caller), now + DENIED));
    }

    /// A person answered. An embargo that has begun goes on to its end.
    pub(super) fn answered(&mut self, asked: &Asked, now: Wall) {
        let Some(items) = self.strikes.get_mut(&asked.caller) else { return };
        match items.get_mut(&asked.item) {
            Some(strikes) if strikes.until > now => (strikes.in_row, strikes.embargoes) = (0, 0),
            _ => drop(items.remove(&asked.item)),
        }
    }

    /// The prompt of that number ended without an answer; `newest` is that of the prompt that was opened last.
    pub(super) fn strike(&mut self, prompt: &Prompt, now: Wall, number: u64, newest: u64) {
        let asked = &prompt.asked;
        let items = self.strikes.entry(Arc::clone(&asked.caller)).or_default();
        let strikes = items.entry(Arc::clone(&asked.item)).or_default();
        if now >= strikes.until.max(strikes.last) + FORGIVEN {
            *strikes = Strikes::default();
        }
        strikes.last = now;
        if number <= strikes.embargoed {
            return;
        }
        // Opened beside the prompt of the last strike: nobody looked at either.
        if number <= strikes.newest && prompt.opened_at.abs_diff(strikes.opened_at) <= TOGETHER {
            return;
        }
        (strikes.opened_at, strikes.newest) = (prompt.opened_at, newest);
        strikes.in_row += 1;
        if strikes.in_row >= STRIKES {
            let length = EMBARGOES.get(strikes.embargoes).or(EMBARGOES.last()).copied().unwrap_or(FORGIVEN);
            strikes.until = strikes.until.max(now + length);
            strikes.embargoes += 1;
            strikes.embargoed = newest;
            strikes.in_row = 0;
        }
        let times = self.unanswered.entry(Arc::clone(&asked.caller)).or_default();
        forget_old(times, now);
        times.push_back(now);
        if times.len() > MAX_UNANSWERED {
            times.pop_front();
        }
    }

    /// The most that any memory holds; for tests of the bounds.
    #[cfg(test)]
    pub(super) fn largest(&self) -> usize {
        let strikes: usize = self.strikes.values().map(HashMap::len).sum();
        let unanswered = self.unanswered.values().map(VecDeque::len).max().unwrap_or(0);
        strikes.max(self.denied.len()).max(unanswered)
    }
}

fn forget_old(times: &mut VecDeque<Wall>, now: Wall) {
    while times.front().is_some_and(|at| at + MINUTE <= now) {
        times.pop_front();
    }
}
