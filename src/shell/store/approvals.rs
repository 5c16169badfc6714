//! Grants and open approvals, shared by all calls and kept in the database.
//!
//! One lock guards the open approvals and every change of the set of grants, for one operation at a
//! time; calls read the set without it. The database's own thread writes in order, so that a write
//! completes even if its task stops waiting.
//!
//! Several processes may share one store. The database decides which of them uses up a once-grant,
//! and lists the open approvals of all. Each process reads the changes of the others every 250 ms
//! while one of its approvals is open, else every 2 s.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, watch};

use crate::base::clock;
use crate::config::ApprovalSettings;
use crate::policy::consent::{
    AgentWait, AnswerError, ApprovalDesk, ApprovalEnd, ApprovalGrant, ApprovalId, ApprovalRefusal, ApprovalSubject,
    CallDetails, DeskLimits, GrantLifetime, GrantRow, LiveGrants, OpenApproval, PassedApproval, PersonAnswer,
    SteadySeconds,
};
use crate::policy::{ApprovalEvidence, AuditEntry};
use crate::store::audit::{AuditLog, RecordSlot};
use crate::store::db::{Db, DbError, StoreHealth};
use crate::telemetry::metrics::ApprovalMetrics;

mod answer_outcome;
pub mod beside;
mod blocks;
mod client_wait;
mod closed_by;
mod group;
mod journal;
mod keep;
mod numbers;
mod operator;
mod own_places;
mod passing;
mod release;
mod seat;
mod settings;
mod shared;
mod span;
mod unlisted;
mod wish;

pub use self::answer_outcome::AnswerOutcome;
pub use self::seat::ApprovalWait;
pub use self::span::ApprovalLife;
pub use self::wish::OperatorAnswer;
pub use crate::store::port::SettingOwner;

use self::closed_by::ApprovalCloser;
use self::unlisted::ListedId;

/// Most live grants of all callers. Beyond it no grant is made.
const MAX_GRANTS: usize = 10_000;
const MAX_GRANTS_OF_CALLER: usize = 2000;
/// Most closed approvals whose end is remembered for late readers.
const MAX_CLOSED: usize = 4096;

/// The reason why a once-grant cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantUseError {
    #[error("the grant was used up, was revoked or has ended")]
    Already,
    #[error("the use of the grant could not be recorded, so it does not count: {0}")]
    NotKept(String),
}

/// Grants and open approvals; clones share them.
#[derive(Clone, Debug)]
pub struct Approvals {
    inner: Arc<ApprovalsState>,
}

#[derive(Debug)]
struct ApprovalsState {
    db: Option<Db>,
    /// Id of this process in the database's rows of open approvals.
    owner: String,
    open: Mutex<OpenState>,
    /// The live grants. Written only under the lock of `open`.
    grants: ArcSwap<LiveGrants>,
    changed: watch::Sender<u64>,
    audit: OnceLock<AuditLog>,
    metrics: OnceLock<ApprovalMetrics>,
    opened: Notify,
    /// Version of the database when its approvals were last read.
    version: AtomicI64,
    keeper: OnceLock<SettingOwner>,
    /// True while another daemon ends, whose changes are read often.
    has_predecessor: AtomicBool,
}

/// An open approval with the tasks that wait for its end.
#[derive(Debug)]
struct WaitedApproval {
    asked: ApprovalSubject,
    span: ApprovalLife,
    opened: Instant,
    end: watch::Sender<Option<ApprovalEnd>>,
    /// True if the call was allowed after its agent had been told to stop.
    is_late: bool,
}

/// The end of a closed approval, for late readers.
#[derive(Debug)]
struct ClosedApproval {
    id: ApprovalId,
    how: ApprovalEnd,
    is_late: bool,
}

/// The state under the lock: open approvals, and grants that are being written.
#[derive(Debug)]
struct OpenState {
    desk: ApprovalDesk,
    consent: ApprovalSettings,
    waiting: HashMap<ApprovalId, WaitedApproval>,
    /// Once-grants of calls that waited for them and have not been decided again.
    reserved: HashMap<ApprovalId, Arc<ApprovalGrant>>,
    /// The latest ends of approvals, oldest first.
    closed: VecDeque<ClosedApproval>,
    /// Grants that are being written. One that is revoked or invalidated meanwhile is removed here,
    /// and its write is undone.
    writing: HashMap<Arc<str>, ApprovalSubject>,
    /// Grants that ended here while the store took no writes, and are live in it.
    undone: HashSet<Arc<str>>,
    /// Receives each open approval once no call waits for it; `None` unless the daemon is taken
    /// over.
    successor: Option<mpsc::Sender<PassedApproval>>,
    /// Approvals that were passed on, whose answers another process judges.
    passed: HashSet<ApprovalId>,
}

impl Approvals {
    #[cfg(any(test, feature = "testing"))]
    pub fn db(&self) -> Option<&Db> {
        self.inner.db.as_ref()
    }

    /// Creates approvals without a store, which end with the process.
    pub fn memory(limits: &ApprovalSettings) -> Self {
        Self::new(None, limits, Vec::new())
    }

    /// Reads the approvals of a database, and raises the clock to the latest time in it. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn open(db: Db, limits: &ApprovalSettings) -> Result<Self, DbError> {
        clock::advance_clock(db.latest_time().run_now()?);
        let rows = db.open_approvals(limits.unused_expiry.as_secs(), clock::since_1970().as_secs())?;
        Ok(Self::new(Some(db), limits, rows))
    }

    fn new(db: Option<Db>, limits: &ApprovalSettings, rows: Vec<GrantRow>) -> Self {
        let desk = ApprovalDesk::new(desk_limits(limits));
        let none = LiveGrants::new(limits.unused_expiry.as_secs());
        let grants = rows.into_iter().fold(none, |grants, row| grants.with(Arc::new(ApprovalGrant::new(row))));
        let consent = limits.clone();
        let open = OpenState {
            desk,
            consent,
            waiting: HashMap::new(),
            reserved: HashMap::new(),
            closed: VecDeque::new(),
            writing: HashMap::new(),
            undone: HashSet::new(),
            successor: None,
            passed: HashSet::new(),
        };
        let inner = ApprovalsState {
            db,
            owner: HEXLOWER.encode(&clock::random::<8>()),
            open: Mutex::new(open),
            grants: ArcSwap::from_pointee(grants),
            changed: watch::Sender::new(0),
            audit: OnceLock::new(),
            metrics: OnceLock::new(),
            opened: Notify::new(),
            // No database has this version, so the first look reads everything.
            version: AtomicI64::new(-1),
            keeper: OnceLock::new(),
            has_predecessor: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn store_health(&self) -> Option<&Arc<StoreHealth>> {
        self.inner.db.as_ref().map(|db| db.health())
    }

    /// Returns the live grants of this moment. Takes no lock.
    pub fn grants(&self) -> Arc<LiveGrants> {
        self.inner.grants.load_full()
    }

    /// Returns the current time in seconds since 1970. It never goes back, even over restarts.
    pub fn wall(&self) -> SteadySeconds {
        clock::since_1970().as_secs()
    }

    /// Opens an approval with that life, or joins an open one about the same action: the call's
    /// `own`, else one that no call waits for. A new one is recorded in the audit log and listed in
    /// the store; in a cluster that may give it another id.
    fn open_approval(
        &self,
        asked: ApprovalSubject,
        shown: CallDetails,
        span: ApprovalLife,
        own: Option<&ApprovalId>,
        entry: AuditEntry,
    ) -> Result<(ApprovalId, Option<ListedId>), ApprovalRefusal> {
        let inner = &self.inner;
        if inner.db.as_ref().is_some_and(|db| !db.health().is_writable()) {
            return Err(ApprovalRefusal::NotKept);
        }
        let now = self.wall();
        let mut open = inner.lock();
        inner.expire(&mut open, now);
        let life = span.life(&open.consent);
        let opened = open.desk.open(asked.clone(), shown, ApprovalId::new(clock::random()), now, life, own)?;
        if opened.joined {
            return Ok((opened.id, None));
        }
        let waited =
            WaitedApproval { asked, span, opened: clock::now(), end: watch::Sender::new(None), is_late: false };
        open.waiting.insert(opened.id, waited);
        let listed = self.list(&open, &opened.id, entry);
        inner.opened.notify_one();
        inner.tell();
        Ok((opened.id, listed))
    }

    pub fn approval(&self, id: &ApprovalId) -> Option<OpenApproval> {
        self.inner.lock().desk.get(id).cloned()
    }

    pub fn open_approvals(&self) -> Vec<OpenApproval> {
        let mut approvals: Vec<OpenApproval> = self.inner.lock().desk.open_approvals().cloned().collect();
        approvals.sort_by_key(|approval| (approval.opened_at, approval.id));
        approvals
    }

    /// Waits for the end of an approval; an unknown one counts as superseded. Cancel-safe.
    pub async fn settled(&self, id: &ApprovalId) -> ApprovalEnd {
        let mut end = {
            let open = self.inner.lock();
            match open.waiting.get(id) {
                Some(waiting) => waiting.end.subscribe(),
                None => {
                    let known = open.closed.iter().rev().find(|ending| ending.id == *id);
                    return known.map_or(ApprovalEnd::Superseded, |ending| ending.how);
                }
            }
        };
        loop {
            let wait = tokio::time::timeout(Duration::from_secs(1), end.wait_for(Option::is_some));
            match wait.await {
                Ok(Ok(how)) => return how.unwrap_or(ApprovalEnd::Superseded),
                Ok(Err(_)) => return ApprovalEnd::Superseded,
                Err(_) => self.expire(),
            }
        }
    }

    /// Answers an approval of this process over a channel with that evidence. A grant waits until
    /// its record is in the audit log; it is on disk and live when this returns. A denial takes
    /// effect at once.
    ///
    /// Once the grant's record has been handed over, dropping the future does not stop it.
    ///
    /// # Errors
    /// [`AnswerError`], if the answer does not count. The approval stays open, except if the grant
    /// could not be stored.
    pub async fn answer(
        &self,
        id: &ApprovalId,
        answer: PersonAnswer,
        evidence: ApprovalEvidence,
        by: &str,
    ) -> Result<ApprovalEnd, AnswerError> {
        let is_yes = answer.lifetime().is_some();
        let slot = if is_yes { self.inner.reserve().await? } else { RecordSlot::default() };
        let no = match answer {
            PersonAnswer::Deny => ApprovalEnd::Denied,
            PersonAnswer::Decline => ApprovalEnd::Declined,
            PersonAnswer::Dismiss | PersonAnswer::Allow(_) | PersonAnswer::AllowBelow(_) => ApprovalEnd::Dismissed,
        };
        let (grant, undoes_denial) = {
            let inner = &self.inner;
            let now = self.wall();
            let mut open = inner.lock();
            inner.expire(&mut open, now);
            if is_yes {
                inner.has_room(&open, id)?;
            }
            let denied = open.desk.denial(id, now).filter(|_| is_yes).map(|denial| denial.asked.clone());
            let undoes_denial = denied.is_some();
            let is_late = open.desk.agent_wait(id, now) == AgentWait::Stopped;
            let grant_id = Arc::from(HEXLOWER.encode(&clock::random::<8>()));
            let answered = open.desk.answer(id, answer, evidence, by, now, grant_id)?;
            if let Some(asked) = denied {
                // A yes takes an earlier denial back. It is recorded as another answer to the same
                // approval. Its time counts from now, since the time of the denial was counted.
                let (end, opened) = (watch::Sender::new(None), clock::now());
                open.waiting
                    .insert(*id, WaitedApproval { asked, span: ApprovalLife::Client, opened, end, is_late: true });
            } else if is_yes && let Some(waiting) = open.waiting.get_mut(id) {
                waiting.is_late = is_late;
            }
            match answered {
                None => {
                    let by =
                        ApprovalCloser { evidence, who: Arc::from(by), grant: None, scope: None, is_recorded: false };
                    inner.close(&mut open, id, no, Some(by));
                    return Ok(no);
                }
                Some(grant) => {
                    open.writing.insert(Arc::clone(grant.id()), grant.asked().clone());
                    let grant = Arc::new(grant);
                    open.reserve(id, &grant);
                    (grant, undoes_denial)
                }
            }
        };
        self.keep(*id, grant, slot, undoes_denial).await
    }

    /// Closes an approval of this process as timed out, because its call waits no longer.
    pub fn unanswered(&self, id: &ApprovalId) {
        let inner = &self.inner;
        let now = self.wall();
        let mut open = inner.lock();
        inner.expire(&mut open, now);
        let closed = open.desk.answer(id, PersonAnswer::Dismiss, ApprovalEvidence::Client, "", now, Arc::from(""));
        if closed.is_ok() {
            inner.close(&mut open, id, ApprovalEnd::TimedOut, None);
        }
    }

    /// Uses up a once-grant durably: returns `Ok` to exactly one caller over all processes and
    /// restarts. Must be awaited before the call is forwarded. Does nothing for other grants.
    ///
    /// # Errors
    /// [`GrantUseError`], if the grant is used up or its use cannot be recorded; the call must not
    /// go on.
    pub async fn consume(&self, grant: &ApprovalGrant) -> Result<(), GrantUseError> {
        if !grant.is_once() {
            return Ok(());
        }
        let first = grant.consume();
        self.inner.drop_grants(|other| other.id() == grant.id());
        if !first {
            return Err(GrantUseError::Already);
        }
        self.consume_row(Arc::clone(grant.id())).await
    }

    /// Revokes the grant with that id, or all grants, for the person `by`. Returns the number of
    /// revoked grants.
    ///
    /// # Errors
    /// When the store takes no writes. The grants of this process are gone all the same until the
    /// next start, and for good if the store takes writes before that.
    pub async fn revoke(&self, id: Option<&str>, by: &str) -> Result<usize, DbError> {
        let hit = {
            let id = id.map(str::to_owned);
            move |grant: &str| id.as_deref().is_none_or(|id| id == grant)
        };
        let by: Arc<str> = Arc::from(by);
        let (of_memory, kept) = {
            let inner = &self.inner;
            let mut open = inner.lock();
            open.writing.retain(|id, _| !hit(id));
            let grants = inner.grants.load();
            let in_memory =
                |grant: &&Arc<ApprovalGrant>| inner.db.is_none() || grant.lifetime() == GrantLifetime::Session;
            let count = grants.iter().filter(in_memory).filter(|grant| hit(grant.id())).count();
            let kept = grants.iter().filter(|grant| !in_memory(grant) && hit(grant.id()));
            let kept: Vec<Arc<str>> = kept.map(|grant| Arc::clone(grant.id())).collect();
            grants.iter().filter(|grant| hit(grant.id())).for_each(|grant| inner.revoked(grant, &by));
            inner.grants.store(Arc::new(grants.without(|grant| hit(grant.id()))));
            (count, kept)
        };
        self.inner.tell();
        Ok(of_memory + self.revoke_rows(id.map(str::to_owned), by, kept, hit).await?)
    }

    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Ends the grants and closes the approvals for which `changed` returns true, because their
    /// item has changed.
    pub fn invalidate(&self, changed: impl Fn(&ApprovalSubject) -> bool) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let grants = inner.grants.load();
        let dead: Vec<Arc<str>> =
            grants.iter().filter(|grant| changed(grant.asked())).map(|grant| Arc::clone(grant.id())).collect();
        open.writing.retain(|_, asked| !changed(asked));
        let closed = open.desk.supersede(|approval| changed(&approval.asked));
        closed.iter().for_each(|id| inner.close(&mut open, id, ApprovalEnd::Superseded, None));
        if dead.is_empty() {
            return;
        }
        let gone = grants.iter().filter(|grant| dead.contains(grant.id()));
        gone.for_each(|grant| inner.invalidated(grant));
        inner.grants.store(Arc::new(grants.without(|grant| dead.contains(grant.id()))));
        inner.tell();
        drop(open);
        self.invalidate_rows(dead);
    }

    /// Closes the approvals whose time is over.
    fn expire(&self) {
        let now = self.wall();
        self.inner.expire(&mut self.inner.lock(), now);
    }
}

impl ApprovalsState {
    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.open.lock()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn expire(&self, open: &mut OpenState, now: SteadySeconds) {
        for id in open.desk.expire(now) {
            self.close(open, &id, ApprovalEnd::TimedOut, None);
        }
    }

    /// Closes an approval: wakes its waiters, records and counts the end, and removes it from the
    /// store. All ends pass here.
    fn close(&self, open: &mut OpenState, id: &ApprovalId, how: ApprovalEnd, by: Option<ApprovalCloser>) {
        let mut is_late = false;
        let answer = by.as_ref().and_then(|by| by.shared_answer(how));
        if let Some(waiting) = open.waiting.remove(id) {
            self.count_end(how, by.as_ref(), waiting.opened);
            self.ended(id, &waiting.asked, how, by);
            waiting.end.send_replace(Some(how));
            is_late = waiting.is_late && how == ApprovalEnd::Granted;
        }
        open.closed.push_back(ClosedApproval { id: *id, how, is_late });
        if open.closed.len() > MAX_CLOSED {
            open.closed.pop_front();
        }
        if let Some(db) = &self.db {
            db.remove_approval(self.owned(id), answer).then(unlisted::log_unlisted);
        }
        self.tell();
    }

    /// Checks the bounds on grants before the approval is allowed.
    ///
    /// # Errors
    /// [`AnswerError::Full`], or [`AnswerError::Unknown`] if the approval is neither open nor
    /// denied.
    fn has_room(&self, open: &OpenState, id: &ApprovalId) -> Result<(), AnswerError> {
        let approval = open.desk.get(id).map(|approval| &approval.asked);
        let denied = || open.desk.denial(id, clock::since_1970().as_secs()).map(|denial| &denial.asked);
        let asked = approval.or_else(denied).ok_or(AnswerError::Unknown)?;
        let grants = self.grants.load();
        let caller = &asked.caller;
        let on_their_way = open.writing.values().filter(|asked| asked.caller == *caller).count();
        let all = grants.len() + open.writing.len();
        let full = all >= MAX_GRANTS || grants.of_caller(caller) + on_their_way >= MAX_GRANTS_OF_CALLER;
        if full { Err(AnswerError::Full) } else { Ok(()) }
    }

    /// Adds a live grant. The caller holds the lock of `open`.
    fn add(&self, grant: Arc<ApprovalGrant>) {
        self.grants.store(Arc::new(self.grants.load().with(grant)));
    }
}

const fn desk_limits(consent: &ApprovalSettings) -> DeskLimits {
    DeskLimits { max_open: consent.max_open, per_minute: consent.per_minute }
}

#[cfg(test)]
mod tests;
