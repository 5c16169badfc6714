//! The desk of open approvals: decides which calls get an approval, which answers count by which
//! evidence, and which calls are refused unasked.
//!
//! Each call that needs an approval has its own, so each of six equal calls is asked about. An
//! equal call joins an open approval only if no call waits for it any more: its call was refused,
//! or its client is gone. An approval is *held* while a call waits for it.
//!
//! - `open`, if nothing is against it: opens a held approval. A call is refused if its action was
//!   denied lately, its item is under an embargo, or too many approvals are open or unanswered.
//! - `open` for the very same action, by the call that has the approval already, or while no call
//!   waits for it: joins and holds it.
//! - `leave`: the call waits no longer, and the approval stays open.
//! - `carry`: the call's modern client was asked in the answer; for a minute only this client can
//!   join the approval.
//! - `answer` with a yes, by sufficient evidence: granted. While the call waits, a once-grant is
//!   for that call alone. The strikes are forgotten.
//! - `release`: a grant for longer than once covers the action: granted. The strikes are forgotten.
//! - `answer` with a denial: denied, which blocks this action for 10 minutes. The strikes are
//!   forgotten.
//! - `answer` with a decline, which is the client's no and blocks nothing: declined; a strike.
//! - `answer` with a dismissal: dismissed; a strike.
//! - `expire` after its time: timed out; a strike.
//! - `answer` with a once-yes to a denied approval while the denial blocks, by sufficient evidence
//!   other than the client's: granted. The denial is forgotten.
//! - `end_block` by an operator: ends a denial or an embargo.
//! - `supersede`, because definition or launch changed or the process ends: superseded.
//! - `set_limits`, if the caller has too many: superseded.
//!
//! Three strikes in a row are an embargo on the item for the client: for 10 minutes, then an hour,
//! then a day. Approvals about one item that were opened within 10 s and were open together are one
//! strike, since all of them were overlooked at once. Approvals that are open when an embargo
//! begins are no strikes. A closed approval is never opened again, and an answer that does not
//! count leaves it open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer::{AnswerError, PersonAnswer, check_answer, once_grant};
use super::below::{FolderScope, ReservedFolders, arguments_of};
use super::fatigue::{CallBlock, Denial, FatigueMemory, STRIKES};
use super::grant::{ApprovalGrant, GrantArguments, GrantLifetime, GrantRow};
use super::{ApprovalId, ApprovalSubject, CallDetails, OpenApproval, SteadySeconds};
use crate::policy::caller::Caller;
use crate::policy::evidence::ApprovalEvidence;
use crate::wire::digest::Digest;

mod passed;
mod shared;

pub use self::passed::PassedApproval;
pub use self::shared::SharedAnswer;

/// Most approvals of all callers that may be open at once.
const MAX_APPROVALS: usize = 1024;
/// Time to retry that a refusal states if the real time is unknown.
const SOME_TIME: Duration = Duration::from_secs(60);
/// Seconds for which an approval is reserved for the client that was asked in an answer. After that
/// an equal call joins it.
const CARRIED: SteadySeconds = 60;

/// A caller's bounds on approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Most open approvals of one caller.
    pub max_open: usize,
    /// Most approvals of one client that may end without an answer within a minute. Beyond that the
    /// client opens none for the rest of the minute.
    pub per_minute: usize,
}

/// The way in which an approval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum ApprovalEnd {
    /// A live grant covers the action.
    Granted,
    Denied,
    /// Declined by the client, for this call alone.
    Declined,
    Dismissed,
    TimedOut,
    /// The item of the call has changed or is gone.
    Superseded,
}

/// The result of opening an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningResult {
    pub id: ApprovalId,
    /// True if the approval was open already.
    pub joined: bool,
}

/// The reason why a call is refused without an approval, with the counts behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalRefusal {
    #[error("the same call was denied within the last 10 minutes")]
    Declined,
    #[error("the last {unanswered} approvals of this item for this client were not answered; try again later")]
    Embargo { unanswered: u32, until: SteadySeconds },
    #[error("{unanswered} approvals were not answered within the last minute; try again later")]
    Unanswered { unanswered: usize, per_minute: usize, retry: Duration },
    #[error("{open} approvals of this caller are open; answer some of them")]
    TooManyOpen { open: usize, max_open: usize, retry: Duration },
    #[error("too many approvals are open or remembered; try again in a minute")]
    Full { retry: Duration },
    #[error("an approval cannot be kept, since the store takes no writes")]
    NotKept,
}

/// Whether the agent whose call an approval is about still waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentWait {
    /// The call is open, for `left` seconds more if that is known.
    Waits { left: Option<SteadySeconds> },
    /// The agent was told to stop: a yes is for the same call made again.
    Stopped,
}

/// The call that an approval belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApprovalCall {
    /// No call waits for the approval.
    Free,
    /// A modern client was asked in the answer of its call, and comes back with the state of that
    /// answer.
    Carried { until: SteadySeconds, asked_at: Duration },
    /// A call waits for the approval.
    Held,
}

/// An open approval and its call.
#[derive(Debug)]
struct DeskEntry {
    approval: OpenApproval,
    tie: ApprovalCall,
    /// The time at which the waiting call gives up, if that is known.
    waits_until: Option<SteadySeconds>,
    /// The number of the approval, counted in the order of opening.
    number: u64,
}

impl DeskEntry {
    /// Whether another call may join the approval.
    const fn is_free(&self, now: SteadySeconds) -> bool {
        match self.tie {
            ApprovalCall::Free => true,
            ApprovalCall::Carried { until, .. } => now >= until,
            ApprovalCall::Held => false,
        }
    }

    /// Whether the approval is about this very action, for the same client and with the same need.
    fn is_about(&self, asked: &ApprovalSubject, action: &Digest) -> bool {
        let own = &self.approval.asked;
        // The session that asked may have ended; its caller comes back in another one.
        let same_session = own.session == asked.session || own.session.is_none();
        let same_need = own.need == asked.need && own.destructive == asked.destructive;
        own.caller == asked.caller && own.item == asked.item && same_session && same_need && own.action() == *action
    }
}

/// The open approvals, and the memory of closed ones.
#[derive(Debug)]
pub struct ApprovalDesk {
    limits: DeskLimits,
    approvals: HashMap<ApprovalId, DeskEntry>,
    /// The number of the approval that was opened last.
    opened: u64,
    fatigue: FatigueMemory,
    places: Arc<ReservedFolders>,
}

impl ApprovalDesk {
    pub fn new(limits: DeskLimits) -> Self {
        Self { limits, approvals: HashMap::new(), opened: 0, fatigue: FatigueMemory::default(), places: Arc::default() }
    }

    /// Sets the folders that a grant below a folder must not cover.
    pub fn set_places(&mut self, places: Arc<ReservedFolders>) {
        self.places = places;
    }

    /// Applies other bounds, to open approvals too: closes the newest approvals of each caller
    /// beyond `max_open`, and ends the others `life` seconds after their opening at the latest.
    /// Returns the closed ones.
    pub fn set_limits(&mut self, limits: DeskLimits, life: impl Fn(&OpenApproval) -> SteadySeconds) -> Vec<ApprovalId> {
        self.limits = limits;
        let mut of_callers: HashMap<Caller, Vec<(u64, ApprovalId)>> = HashMap::new();
        for DeskEntry { approval, number, .. } in self.approvals.values_mut() {
            approval.until = approval.until.min(approval.opened_at + life(approval));
            let caller = approval.asked.caller.clone();
            of_callers.entry(caller).or_default().push((*number, approval.id));
        }
        let excess = of_callers.into_values().flat_map(|mut open| {
            open.sort_unstable();
            open.into_iter().skip(limits.max_open)
        });
        let excess: Vec<ApprovalId> = excess.map(|(_, id)| id).collect();
        excess.iter().for_each(|id| drop(self.approvals.remove(id)));
        excess
    }

    /// Opens an approval of `life` seconds for a call, which then waits for it, or joins an open
    /// one about the very same action: the call's `own`, if it has one already, else the oldest one
    /// that no call waits for.
    ///
    /// # Errors
    /// The reason why the call is refused without an approval.
    pub fn open(
        &mut self,
        asked: ApprovalSubject,
        shown: CallDetails,
        id: ApprovalId,
        now: SteadySeconds,
        life: SteadySeconds,
        own: Option<&ApprovalId>,
    ) -> Result<OpeningResult, ApprovalRefusal> {
        self.fatigue.sweep(now);
        let action = asked.action();
        // A person is told which client asks, so only a client with that name joins.
        let is_told = |approval: &OpenApproval| approval.shown.client == shown.client;
        let fits = |entry: &DeskEntry| {
            now < entry.approval.until && entry.is_about(&asked, &action) && is_told(&entry.approval)
        };
        let own = own
            .filter(|own| self.approvals.get(*own).is_some_and(|entry| entry.tie != ApprovalCall::Held && fits(entry)));
        if own.is_none() && self.fatigue.is_denied(&action, now) {
            return Err(ApprovalRefusal::Declined);
        }
        let left = || {
            let left = self.approvals.values().filter(|entry| entry.is_free(now) && fits(entry));
            left.min_by_key(|entry| entry.number).map(|entry| entry.approval.id)
        };
        let joined = own.copied().or_else(left);
        if let Some(entry) = joined.and_then(|id| self.approvals.get_mut(&id)) {
            (entry.tie, entry.waits_until) = (ApprovalCall::Held, None);
            entry.approval.asked.session = asked.session;
            return Ok(OpeningResult { id: entry.approval.id, joined: true });
        }
        let client = shown.client_name();
        if let Some(until) = self.fatigue.embargo(&asked, &client, now) {
            return Err(ApprovalRefusal::Embargo { unanswered: STRIKES, until });
        }
        let DeskLimits { max_open, per_minute } = self.limits;
        if let Some((unanswered, wait)) = self.fatigue.wait(&asked, &client, per_minute, now) {
            return Err(ApprovalRefusal::Unanswered { unanswered, per_minute, retry: Duration::from_secs(wait) });
        }
        let open = self.approvals.values().filter(|entry| entry.approval.asked.caller == asked.caller).count();
        if open >= max_open {
            return Err(ApprovalRefusal::TooManyOpen { open, max_open, retry: SOME_TIME });
        }
        if self.approvals.len() >= MAX_APPROVALS
            || !self.fatigue.has_room(&asked, &client)
            || self.approvals.contains_key(&id)
        {
            return Err(ApprovalRefusal::Full { retry: SOME_TIME });
        }
        self.opened += 1;
        let approval = OpenApproval { id, asked, shown, opened_at: now, until: now + life };
        self.approvals
            .insert(id, DeskEntry { approval, tie: ApprovalCall::Held, waits_until: None, number: self.opened });
        Ok(OpeningResult { id, joined: false })
    }

    /// Notes when the call that waits for an approval gives up.
    pub fn waits_until(&mut self, id: &ApprovalId, until: SteadySeconds) {
        if let Some(entry) = self.approvals.get_mut(id) {
            entry.waits_until = Some(until);
        }
    }

    /// Returns whether the agent of an open approval still waits. An agent whose client was asked
    /// in the answer of its call counts as waiting.
    pub fn agent_wait(&self, id: &ApprovalId, now: SteadySeconds) -> AgentWait {
        match self.approvals.get(id) {
            Some(DeskEntry { tie: ApprovalCall::Held, waits_until, .. }) => {
                AgentWait::Waits { left: waits_until.map(|until| until.saturating_sub(now)) }
            }
            Some(DeskEntry { tie: ApprovalCall::Carried { .. }, .. }) => AgentWait::Waits { left: None },
            Some(DeskEntry { tie: ApprovalCall::Free, .. }) | None => AgentWait::Stopped,
        }
    }

    /// Notes that no call waits for the approval any more. The approval stays open.
    pub fn leave(&mut self, id: &ApprovalId) {
        if let Some(entry) = self.approvals.get_mut(id) {
            entry.tie = ApprovalCall::Free;
        }
    }

    /// Notes that the call ended with an answer that asks its client, and reserves the approval for
    /// that client for a minute. `now` is the time since 1970.
    pub fn carry(&mut self, id: &ApprovalId, now: Duration) {
        if let Some(entry) = self.approvals.get_mut(id) {
            entry.tie = ApprovalCall::Carried { until: now.as_secs() + CARRIED, asked_at: now };
        }
    }

    /// Returns the time since 1970 at which the client was asked in the answer of its call; `None`
    /// if it has come back since or was not asked so.
    pub fn asked_at(&self, id: &ApprovalId) -> Option<Duration> {
        match self.approvals.get(id)?.tie {
            ApprovalCall::Carried { asked_at, .. } => Some(asked_at),
            ApprovalCall::Free | ApprovalCall::Held => None,
        }
    }

    /// Extends an approval to `life` seconds from its opening, if that is longer, for people who
    /// take longer than the client. Returns the approval.
    pub fn extend(&mut self, id: &ApprovalId, life: SteadySeconds) -> Option<&OpenApproval> {
        let approval = &mut self.approvals.get_mut(id)?.approval;
        approval.until = approval.until.max(approval.opened_at + life);
        Some(approval)
    }

    /// Applies a person's answer from a channel with this evidence, and closes the approval. A yes
    /// makes a grant. A yes to a denied approval takes the denial back while it lasts and makes a
    /// once-grant; a client cannot do that.
    ///
    /// # Errors
    /// The reason why the answer does not count; the approval stays as before.
    pub fn answer(
        &mut self,
        id: &ApprovalId,
        answer: PersonAnswer,
        evidence: ApprovalEvidence,
        by: &str,
        now: SteadySeconds,
        grant_id: Arc<str>,
    ) -> Result<Option<ApprovalGrant>, AnswerError> {
        if let (Some(lifetime), Some(denial)) = (answer.lifetime(), self.denial(id, now)) {
            let asked = denial.asked.clone();
            if evidence == ApprovalEvidence::Client {
                return Err(AnswerError::Unknown);
            }
            if lifetime != GrantLifetime::Once {
                return Err(AnswerError::Denied);
            }
            check_answer(&asked, lifetime, evidence, now)?;
            self.fatigue.undo_denial(id);
            return Ok(Some(ApprovalGrant::new(once_grant(asked, evidence, by, now, grant_id))));
        }
        let entry = self.approvals.get(id).filter(|entry| now < entry.approval.until).ok_or(AnswerError::Unknown)?;
        if let Some(lifetime) = answer.lifetime() {
            check_answer(&entry.approval.asked, lifetime, evidence, now)?;
        }
        let below = match &answer {
            PersonAnswer::AllowBelow(base) => {
                Some(FolderScope::of(&entry.approval.asked, &entry.approval.shown, base, &self.places)?)
            }
            PersonAnswer::Allow(_) | PersonAnswer::Deny | PersonAnswer::Decline | PersonAnswer::Dismiss => None,
        };
        let Some(DeskEntry { approval, tie, number, .. }) = self.approvals.remove(id) else {
            return Err(AnswerError::Unknown);
        };
        match (answer.lifetime(), answer) {
            (Some(lifetime), _) => {
                self.fatigue.answered(&approval.asked, &approval.shown.client_name(), now);
                let usual = || GrantArguments::of(lifetime, evidence, approval.asked.destructive);
                let arguments = below.map_or_else(usual, |below| GrantArguments::Below(Arc::new(below)));
                let (asked, by) = (approval.asked, Arc::from(by));
                let row = GrantRow {
                    id: grant_id,
                    asked,
                    arguments,
                    lifetime,
                    evidence,
                    by,
                    granted_at: now,
                    last_used: 0,
                    uses: 0,
                };
                let is_for_call = lifetime == GrantLifetime::Once && tie == ApprovalCall::Held;
                return Ok(Some(if is_for_call { ApprovalGrant::for_call(row, *id) } else { ApprovalGrant::new(row) }));
            }
            (None, PersonAnswer::Deny) => {
                self.fatigue.answered(&approval.asked, &approval.shown.client_name(), now);
                self.fatigue.denied(&approval, by, evidence, now);
            }
            (None, _) => self.fatigue.strike(&approval, now, number, self.opened),
        }
        Ok(None)
    }

    /// Returns the denial of an approval, while it blocks.
    pub fn denial(&self, id: &ApprovalId, now: SteadySeconds) -> Option<&Denial> {
        self.fatigue.denial(id, now)
    }

    /// Closes the approvals whose time is over and counts a strike for each. Returns them, the
    /// oldest first.
    pub fn expire(&mut self, now: SteadySeconds) -> Vec<ApprovalId> {
        self.fatigue.sweep(now);
        let over = self.approvals.values().filter(|entry| now >= entry.approval.until);
        let mut over: Vec<(u64, ApprovalId)> = over.map(|entry| (entry.number, entry.approval.id)).collect();
        over.sort_unstable();
        for (number, id) in &over {
            if let Some(DeskEntry { approval, .. }) = self.approvals.remove(id) {
                self.fatigue.strike(&approval, now, *number, self.opened);
            }
        }
        over.into_iter().map(|(_, id)| id).collect()
    }

    /// Closes the approvals about actions that a lasting grant covers. Returns them, the oldest
    /// first.
    pub fn release(&mut self, grant: &ApprovalGrant, now: SteadySeconds) -> Vec<ApprovalId> {
        if grant.is_once() {
            return Vec::new();
        }
        let covers = |approval: &OpenApproval| {
            grant.covers_call(&approval.asked, arguments_of(&approval.asked, &approval.shown).as_ref(), &self.places)
        };
        let is_answered = |approval: &OpenApproval| now < approval.until && covers(approval);
        let answered = self.approvals.values().filter(|entry| is_answered(&entry.approval));
        let mut answered: Vec<(u64, ApprovalId)> = answered.map(|entry| (entry.number, entry.approval.id)).collect();
        answered.sort_unstable();
        for (_, id) in &answered {
            if let Some(DeskEntry { approval, .. }) = self.approvals.remove(id) {
                self.fatigue.answered(&approval.asked, &approval.shown.client_name(), now);
            }
        }
        answered.into_iter().map(|(_, id)| id).collect()
    }

    /// Closes the approvals about changed items, without a strike. Returns them.
    pub fn supersede(&mut self, changed: impl Fn(&OpenApproval) -> bool) -> Vec<ApprovalId> {
        let gone: Vec<ApprovalId> = self.open_approvals().filter(|approval| changed(approval)).map(|p| p.id).collect();
        for id in &gone {
            self.approvals.remove(id);
        }
        gone
    }

    /// Detaches the approvals of an ended session: they can still be answered, but not for that
    /// session.
    pub fn session_ended(&mut self, session: u64) {
        let approvals = self.approvals.values_mut().map(|entry| &mut entry.approval);
        for approval in approvals.filter(|approval| approval.asked.session == Some(session)) {
            approval.asked.session = None;
        }
    }

    /// Returns the blocks in force, the first to end first.
    pub fn blocks(&self, now: SteadySeconds) -> Vec<CallBlock> {
        let mut blocks: Vec<CallBlock> = self.fatigue.blocks(now).collect();
        blocks.sort_by(|a, b| (a.until, &a.item, a.id).cmp(&(b.until, &b.item, b.id)));
        blocks
    }

    /// Ends a block before its time, and returns it.
    pub fn end_block(&mut self, id: &ApprovalId, now: SteadySeconds) -> Option<CallBlock> {
        self.fatigue.end_block(id, now)
    }

    /// Returns whether a call waits for an approval that is allowed on the upstream.
    pub fn is_awaited(&self, upstream: &str) -> bool {
        let mut entries = self.approvals.values();
        entries.any(|entry| entry.tie == ApprovalCall::Held && *entry.approval.asked.upstream == *upstream)
    }

    /// Returns an open approval.
    pub fn get(&self, id: &ApprovalId) -> Option<&OpenApproval> {
        self.approvals.get(id).map(|entry| &entry.approval)
    }

    /// Returns the number of denials that still refuse their action.
    pub fn denials(&self, now: SteadySeconds) -> usize {
        self.fatigue.denials(now)
    }

    /// Returns all open approvals, in no order.
    pub fn open_approvals(&self) -> impl Iterator<Item = &OpenApproval> {
        self.approvals.values().map(|entry| &entry.approval)
    }

    /// Whether a call waits for the approval.
    #[cfg(test)]
    pub(super) fn is_held(&self, id: &ApprovalId) -> bool {
        self.approvals.get(id).is_some_and(|entry| entry.tie == ApprovalCall::Held)
    }

    #[cfg(test)]
    pub(super) fn largest_memory(&self) -> usize {
        self.fatigue.largest()
    }
}
