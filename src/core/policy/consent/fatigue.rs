//! Protection against approval fatigue: bounds on unanswered approvals, and refusals after denials
//! and unanswered approvals.
//!
//! Unanswered approvals count by caller and by the name that the client gives itself, so that one
//! host does not silence the others of its caller. Eight names of a caller count apart; all further
//! names count as one. Denials count by caller.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::hold::ClientKey;
use super::{ApprovalId, ApprovalSubject, OpenApproval, SteadySeconds};
use crate::policy::caller::Caller;
use crate::policy::evidence::ApprovalEvidence;
use crate::wire::digest::Digest;

/// Seconds for which a denial refuses the same action.
pub const DENIED: SteadySeconds = 600;
/// Most client names of one caller that count apart.
const MAX_NAMES: usize = 8;
/// The name under which all other clients count. A client that gives itself this name counts among
/// them.
const OTHERS: &str = "\u{0}";
/// Approvals opened within this number of seconds can be one strike.
const TOGETHER: SteadySeconds = 10;
/// Most strikes of one client that are remembered for a minute; no configuration allows more.
const MAX_UNANSWERED: usize = 128;
/// Dismissals and time-outs in a row that start an embargo on an item for a client.
pub(super) const STRIKES: u32 = 3;
/// Seconds of the first, the second and any further embargo.
pub(super) const EMBARGOES: [SteadySeconds; 3] = [600, 3600, 24 * 3600];
/// Seconds without a strike after which strikes are forgotten.
const FORGIVEN: SteadySeconds = 24 * 3600;
const MINUTE: SteadySeconds = 60;

/// Most entries of each memory, and most entries of one caller among them. Without room no approval
/// is opened.
const MAX_ENTRIES: usize = 8192;
const MAX_OF_CALLER: usize = 512;

/// A block on calls for a while: on one action that a person denied, or on one client's calls of an
/// item after unanswered approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBlock {
    /// The id of the denied approval. For an embargo, an id made of client and item, so that an
    /// operator can name it.
    pub id: ApprovalId,
    pub caller: Caller,
    /// The client's name. `None` for an embargo on the clients of the caller that do not count
    /// apart, and for a denied client without a name.
    pub client: Option<Arc<str>>,
    pub item: Arc<str>,
    pub until: SteadySeconds,
    /// The denial; `None` for an embargo.
    pub denial: Option<Denial>,
}

/// A person's denial of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub asked: ApprovalSubject,
    /// The person who denied, as the channel identifies them.
    pub by: Arc<str>,
    pub evidence: ApprovalEvidence,
    pub at: SteadySeconds,
}

/// Unanswered approvals of one client about one item.
#[derive(Clone, Copy, Debug, Default)]
struct ItemStrikes {
    in_row: u32,
    embargoes: usize,
    /// End of the last embargo: no approval is opened before this.
    until: SteadySeconds,
    last: SteadySeconds,
    /// The time at which the approval of the last strike was opened.
    opened_at: SteadySeconds,
    /// The number of the newest approval at the last strike.
    newest: u64,
    /// The number of the newest approval when the last embargo began. Approvals that were open then
    /// add no strike.
    embargoed: u64,
}

/// The desk's memory of denials and unanswered approvals.
#[derive(Debug, Default)]
pub(super) struct FatigueMemory {
    /// Times of each client's strikes in the last minute.
    unanswered: HashMap<ClientKey, VecDeque<SteadySeconds>>,
    /// Denied actions, by [`ApprovalSubject::action`].
    denied: HashMap<Digest, CallBlock>,
    /// Strikes by client, then by item.
    strikes: HashMap<ClientKey, HashMap<Arc<str>, ItemStrikes>>,
    /// The time of the last sweep.
    swept: SteadySeconds,
}

impl FatigueMemory {
    /// Forgets expired entries, at most once a minute.
    pub(super) fn sweep(&mut self, now: SteadySeconds) {
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

    pub(super) fn is_denied(&self, action: &Digest, now: SteadySeconds) -> bool {
        self.denied.get(action).is_some_and(|block| block.until > now)
    }

    /// Returns the number of actions that a denial still refuses.
    pub(super) fn denials(&self, now: SteadySeconds) -> usize {
        self.denied.values().filter(|block| block.until > now).count()
    }

    /// Returns the key under which the client of an approval counts: its name, or [`OTHERS`] if its
    /// caller has too many names.
    fn counted(&self, asked: &ApprovalSubject, client: &Arc<str>) -> ClientKey {
        let caller = asked.caller.clone();
        let holder = ClientKey { caller, client: Arc::clone(client) };
        let of_caller = |known: &&ClientKey| known.caller == asked.caller && *known.client != *OTHERS;
        if self.strikes.contains_key(&holder) || self.strikes.keys().filter(of_caller).count() < MAX_NAMES {
            return holder;
        }
        ClientKey { client: Arc::from(OTHERS), ..holder }
    }

    /// Returns the end of the embargo on an item for a client, if there is one.
    pub(super) fn embargo(
        &self,
        asked: &ApprovalSubject,
        client: &Arc<str>,
        now: SteadySeconds,
    ) -> Option<SteadySeconds> {
        let strikes = self.strikes.get(&self.counted(asked, client))?.get(&asked.item)?;
        (strikes.until > now).then_some(strikes.until)
    }

    /// Returns the blocks in force, in no order.
    pub(super) fn blocks(&self, now: SteadySeconds) -> impl Iterator<Item = CallBlock> {
        let of_client = move |(holder, items): (&ClientKey, &HashMap<Arc<str>, ItemStrikes>)| {
            let lasting = items.iter().filter(|(_, strikes)| strikes.until > now);
            let blocks: Vec<CallBlock> = lasting.map(|(item, strikes)| block_of(holder, item, strikes.until)).collect();
            blocks
        };
        let denied = self.denied.values().filter(move |block| block.until > now).cloned();
        self.strikes.iter().flat_map(of_client).chain(denied)
    }

    /// Returns the denial of an approval, while it blocks.
    pub(super) fn denial(&self, id: &ApprovalId, now: SteadySeconds) -> Option<&Denial> {
        self.denied.values().find(|block| block.id == *id && block.until > now)?.denial.as_ref()
    }

    /// Takes back the denial of an approval.
    pub(super) fn undo_denial(&mut self, id: &ApprovalId) {
        self.denied.retain(|_, block| block.id != *id);
    }

    /// Ends a block and forgets what led to it. Returns the block.
    pub(super) fn end_block(&mut self, id: &ApprovalId, now: SteadySeconds) -> Option<CallBlock> {
        let ended = self.blocks(now).find(|block| block.id == *id)?;
        if ended.denial.is_some() {
            self.undo_denial(id);
            return Some(ended);
        }
        let client = ended.client.clone().unwrap_or_else(|| Arc::from(OTHERS));
        let holder = ClientKey { caller: ended.caller.clone(), client };
        self.forget(&holder, &ended.item);
        self.unanswered.remove(&holder);
        Some(ended)
    }

    /// Whether there is room to remember the end of another approval.
    pub(super) fn has_room(&self, asked: &ApprovalSubject, client: &Arc<str>) -> bool {
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

    /// Returns how many approvals of the client ended without an answer within a minute, and the
    /// seconds until it may open another one; `None` if it may open one now.
    pub(super) fn wait(
        &mut self,
        asked: &ApprovalSubject,
        client: &Arc<str>,
        per_minute: usize,
        now: SteadySeconds,
    ) -> Option<(usize, SteadySeconds)> {
        let holder = self.counted(asked, client);
        let times = self.unanswered.get_mut(&holder)?;
        forget_old(times, now);
        // The wait ends when the oldest excess strike is a minute old.
        let last = times.len().checked_sub(per_minute)?;
        let until = times.get(last).copied().unwrap_or(now) + MINUTE;
        Some((times.len(), until.saturating_sub(now).max(1)))
    }

    /// Remembers a person's denial.
    pub(super) fn denied(&mut self, approval: &OpenApproval, by: &str, evidence: ApprovalEvidence, now: SteadySeconds) {
        let asked = &approval.asked;
        let block = CallBlock {
            id: approval.id,
            caller: asked.caller.clone(),
            client: approval.shown.client.as_ref().map(|client| Arc::clone(&client.name)),
            item: Arc::clone(&asked.item),
            until: now + DENIED,
            denial: Some(Denial { asked: asked.clone(), by: Arc::from(by), evidence, at: now }),
        };
        self.denied.insert(asked.action(), block);
    }

    /// Forgets the client's strikes about the item, because a person answered. An embargo that has
    /// begun runs to its end.
    pub(super) fn answered(&mut self, asked: &ApprovalSubject, client: &Arc<str>, now: SteadySeconds) {
        let holder = self.counted(asked, client);
        match self.strikes.get_mut(&holder).and_then(|items| items.get_mut(&asked.item)) {
            Some(strikes) if strikes.until > now => (strikes.in_row, strikes.embargoes) = (0, 0),
            Some(_) => self.forget(&holder, &asked.item),
            None => {}
        }
    }

    /// Forgets the strikes of a client about an item, and its name with the last of them.
    fn forget(&mut self, holder: &ClientKey, item: &str) {
        let Some(items) = self.strikes.get_mut(holder) else { return };
        items.remove(item);
        if items.is_empty() {
            self.strikes.remove(holder);
        }
    }

    /// Counts a strike: the approval with this `number` ended without an answer. `newest` is the
    /// number of the approval that was opened last.
    pub(super) fn strike(&mut self, approval: &OpenApproval, now: SteadySeconds, number: u64, newest: u64) {
        let asked = &approval.asked;
        let holder = self.counted(asked, &approval.shown.client_name());
        let items = self.strikes.entry(holder.clone()).or_default();
        let strikes = items.entry(Arc::clone(&asked.item)).or_default();
        if now >= strikes.until.max(strikes.last) + FORGIVEN {
            *strikes = ItemStrikes::default();
        }
        strikes.last = now;
        if number <= strikes.embargoed {
            return;
        }
        // Opened beside the approval of the last strike: both were overlooked at once.
        if number <= strikes.newest && approval.opened_at.abs_diff(strikes.opened_at) <= TOGETHER {
            return;
        }
        (strikes.opened_at, strikes.newest) = (approval.opened_at, newest);
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

    /// Returns the size of the largest memory, for tests of the bounds.
    #[cfg(test)]
    pub(super) fn largest(&self) -> usize {
        let strikes: usize = self.strikes.values().map(HashMap::len).sum();
        let unanswered = self.unanswered.values().map(VecDeque::len).max().unwrap_or(0);
        strikes.max(self.denied.len()).max(unanswered)
    }
}

/// Returns the embargo block of a client and an item, with an id made of both.
fn block_of(holder: &ClientKey, item: &Arc<str>, until: SteadySeconds) -> CallBlock {
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
    CallBlock { id: ApprovalId::new(id), caller, client, item, until, denial: None }
}

/// Drops the times that are a minute old.
fn forget_old(times: &mut VecDeque<SteadySeconds>, now: SteadySeconds) {
    while times.front().is_some_and(|at| at + MINUTE <= now) {
        times.pop_front();
    }
}
