//! Against approval fatigue: bounds on a caller's approvals, and refusals after denials and unanswered ones.
//!
//! Approvals without an answer count by caller and by the name that the client gives itself, so
//! that one host does not silence the others of its caller. A caller has eight names; all further
//! ones count as one. Denials count by caller.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::hold::Holder;
use super::{Asked, Prompt, PromptId, Wall};
use crate::policy::caller::Caller;
use crate::policy::evidence::Evidence;
use crate::wire::digest::Digest;

/// How long a denial is remembered for the same action, in seconds.
pub const DENIED: Wall = 600;
/// Names of clients of one caller that are counted apart.
const MAX_NAMES: usize = 8;
/// The name of all others. A client that calls itself so counts among them.
const OTHERS: &str = "\u{0}";
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

/// A refusal of calls for a while: of one action that a person denied, or of an item's calls to one
/// client, after approvals that nobody answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBlock {
    /// The prompt that was denied, else made of client and item, so that an operator can name it.
    pub id: PromptId,
    pub caller: Caller,
    /// The client's name; `None` for all clients of the caller beyond those that are counted apart.
    pub client: Option<Arc<str>>,
    pub item: Arc<str>,
    pub until: Wall,
    /// The denial, where there was one.
    pub denial: Option<Denial>,
}

/// A person's denial of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub asked: Asked,
    /// The person, as the channel knows them, and its evidence.
    pub by: Arc<str>,
    pub evidence: Evidence,
    pub at: Wall,
}

/// Unanswered prompts of one client about one item.
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
    /// When each client's strikes of the last minute were.
    unanswered: HashMap<Holder, VecDeque<Wall>>,
    /// Denied actions.
    denied: HashMap<Digest, CallBlock>,
    /// By client, by item.
    strikes: HashMap<Holder, HashMap<Arc<str>, Strikes>>,
    swept: Wall,
}

impl Fatigue {
    /// Forgets expired entries.
    pub(super) fn sweep(&mut self, now: Wall) {
        if now < self.swept + MINUTE {
            return;
        }
        self.swept = now;
        self.denied.retain(|_, block| block.until > now);
        self.unanswered.retain(|_, times| times.back().is_some_and(|at| at + MINUTE > now));
        for items in self.strikes.values_mut() {
            items.retain(|_, strikes| strikes.until.max(strikes.last) + FORGIVEN > now);
        }
        self.strikes.retain(|_, items| !items.is_empty());
    }

    pub(super) fn is_denied(&self, action: &Digest, now: Wall) -> bool {
        self.denied.get(action).is_some_and(|block| block.until > now)
    }

    /// Actions that a denial still refuses.
    pub(super) fn denials(&self, now: Wall) -> usize {
        self.denied.values().filter(|block| block.until > now).count()
    }

    /// The client of a prompt as it is counted: by its name, unless its caller has too many.
    fn counted(&self, asked: &Asked, client: &Arc<str>) -> Holder {
        let caller = asked.caller.clone();
        let holder = Holder { caller, client: Arc::clone(client) };
        let of_caller = |known: &&Holder| known.caller == asked.caller && *known.client != *OTHERS;
        if self.strikes.contains_key(&holder) || self.strikes.keys().filter(of_caller).count() < MAX_NAMES {
            return holder;
        }
        Holder { client: Arc::from(OTHERS), ..holder }
    }

    /// Until when a client is not asked about that item.
    pub(super) fn embargo(&self, asked: &Asked, client: &Arc<str>, now: Wall) -> Option<Wall> {
        let strikes = self.strikes.get(&self.counted(asked, client))?.get(&asked.item)?;
        (strikes.until > now).then_some(strikes.until)
    }

    /// The blocks that last, in no order.
    pub(super) fn blocks(&self, now: Wall) -> impl Iterator<Item = CallBlock> {
        let of_client = move |(holder, items): (&Holder, &HashMap<Arc<str>, Strikes>)| {
            let lasting = items.iter().filter(|(_, strikes)| strikes.until > now);
            let blocks: Vec<CallBlock> = lasting.map(|(item, strikes)| block_of(holder, item, strikes.until)).collect();
            blocks
        };
        let denied = self.denied.values().filter(move |block| block.until > now).cloned();
        self.strikes.iter().flat_map(of_client).chain(denied)
    }

    /// The denial of that prompt, as long as it blocks.
    pub(super) fn denial(&self, id: &PromptId, now: Wall) -> Option<&Denial> {
        self.denied.values().find(|block| block.id == *id && block.until > now)?.denial.as_ref()
    }

    /// Takes the denial of that prompt back.
    pub(super) fn undo_denial(&mut self, id: &PromptId) {
        self.denied.retain(|_, block| block.id != *id);
    }

    /// Ends a block and forgets what led to it. Returns what it was.
    pub(super) fn end_block(&mut self, id: &PromptId, now: Wall) -> Option<CallBlock> {
        let ended = self.blocks(now).find(|block| block.id == *id)?;
        if ended.denial.is_some() {
            self.undo_denial(id);
            return Some(ended);
        }
        let client = ended.client.clone().unwrap_or_else(|| Arc::from(OTHERS));
        let holder = Holder { caller: ended.caller.clone(), client };
        self.forget(&holder, &ended.item);
        self.unanswered.remove(&holder);
        Some(ended)
    }

    /// Whether what may come of another prompt can be remembered.
    pub(super) fn has_room(&self, asked: &Asked, client: &Arc<str>) -> bool {
        let holder = self.counted(asked, client);
        let known = self.strikes.get(&holder).is_some_and(|items| items.contains_key(&asked.item));
        let of_caller = self.strikes.iter().filter(|(known, _)| known.caller == asked.caller);
        let mine: usize = of_caller.map(|(_, items)| items.len()).sum();
        let all: usize = self.strikes.values().map(HashMap::len).sum();
        let strikes = known || (mine < MAX_OF_CALLER && all < MAX_ENTRIES);
        let my_denied = self.denied.values().filter(|block| block.caller == asked.caller).count();
        let denied = my_denied < MAX_OF_CALLER && self.denied.len() < MAX_ENTRIES;
        strikes && denied && (self.unanswered.contains_key(&holder) || self.unanswered.len() < MAX_ENTRIES)
    }

    /// How many prompts of the client ended without an answer within a minute, and the seconds
    /// until it may open another one; `None` when it may.
    pub(super) fn wait(
        &mut self,
        asked: &Asked,
        client: &Arc<str>,
        per_minute: usize,
        now: Wall,
    ) -> Option<(usize, Wall)> {
        let holder = self.counted(asked, client);
        let times = self.unanswered.get_mut(&holder)?;
        forget_old(times, now);
        // The oldest of those that are too many ends the wait.
        let last = times.len().checked_sub(per_minute)?;
        let until = times.get(last).copied().unwrap_or(now) + MINUTE;
        Some((times.len(), until.saturating_sub(now).max(1)))
    }

    /// A person denied the call.
    pub(super) fn denied(&mut self, prompt: &Prompt, by: &str, evidence: Evidence, now: Wall) {
        let asked = &prompt.asked;
        let block = CallBlock {
            id: prompt.id,
            caller: asked.caller.clone(),
            client: prompt.shown.client.as_ref().map(|client| Arc::clone(&client.name)),
            item: Arc::clone(&asked.item),
            until: now + DENIED,
            denial: Some(Denial { asked: asked.clone(), by: Arc::from(by), evidence, at: now }),
        };
        self.denied.insert(asked.action(), block);
    }

    /// A person answered. An embargo that has begun goes on to its end.
    pub(super) fn answered(&mut self, asked: &Asked, client: &Arc<str>, now: Wall) {
        let holder = self.counted(asked, client);
        match self.strikes.get_mut(&holder).and_then(|items| items.get_mut(&asked.item)) {
            Some(strikes) if strikes.until > now => (strikes.in_row, strikes.embargoes) = (0, 0),
            Some(_) => self.forget(&holder, &asked.item),
            None => {}
        }
    }

    /// Forgets the strikes of a client about an item, and its name with the last of them.
    fn forget(&mut self, holder: &Holder, item: &str) {
        let Some(items) = self.strikes.get_mut(holder) else { return };
        items.remove(item);
        if items.is_empty() {
            self.strikes.remove(holder);
        }
    }

    /// The prompt of that number ended without an answer; `newest` is that of the prompt that was opened last.
    pub(super) fn strike(&mut self, prompt: &Prompt, now: Wall, number: u64, newest: u64) {
        let asked = &prompt.asked;
        let holder = self.counted(asked, &prompt.shown.client_name());
        let items = self.strikes.entry(holder.clone()).or_default();
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
        let times = self.unanswered.entry(holder).or_default();
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

/// The block of that client and item.
fn block_of(holder: &Holder, item: &Arc<str>, until: Wall) -> CallBlock {
    let mut bytes = Vec::new();
    for text in [holder.caller.key(), &*holder.client, &**item] {
        bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    let digest = Digest::of(&bytes);
    let mut id = [0; 16];
    id.iter_mut().zip(digest.bytes()).for_each(|(to, from)| *to = *from);
    let client = Some(&holder.client).filter(|client| ***client != *OTHERS).cloned();
    let (caller, item) = (holder.caller.clone(), Arc::clone(item));
    CallBlock { id: PromptId::new(id), caller, client, item, until, denial: None }
}

fn forget_old(times: &mut VecDeque<Wall>, now: Wall) {
    while times.front().is_some_and(|at| at + MINUTE <= now) {
        times.pop_front();
    }
}
