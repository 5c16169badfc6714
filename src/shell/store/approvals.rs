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
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::base::clock;
use crate::config::Consent;
use crate::policy::consent::{
    AgentWait, Answer, ApprovalView, Asked, CannotAnswer, Closed, Desk, DeskLimits, Grant, GrantRow, Grants, Lifetime,
    Prompt, PromptId, Refused, Shown, Wall,
};
use crate::policy::{Entry, Evidence};
use crate::store::audit::{Audit, RecordSlot};
use crate::store::db::{Db, DbError, Health};
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
mod release;
mod seat;
mod span;
mod unlisted;
mod wish;

pub use self::answer_outcome::AnswerOutcome;
pub use self::seat::Seat;
pub use self::span::Span;
pub use self::wish::Wish;
pub use crate::store::port::Keeper;

use self::closed_by::By;

/// Most live grants of all callers. Beyond it no grant is made.
const MAX_GRANTS: usize = 10_000;
/// Most live grants of one caller.
const MAX_GRANTS_OF_CALLER: usize = 2000;
/// Most closed approvals whose end is remembered for late readers.
const MAX_CLOSED: usize = 4096;

/// The reason why a once-grant cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    #[error("the grant was used up, was revoked or has ended")]
    Already,
    #[error("the use of the grant could not be recorded, so it does not count: {0}")]
    NotKept(String),
}

/// Grants and open approvals; clones share them.
#[derive(Clone, Debug)]
pub struct Approvals {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    db: Option<Db>,
    /// Id of this process in the database's rows of open approvals.
    owner: String,
    open: Mutex<Open>,
    /// The live grants. Written only under the lock of `open`.
    grants: ArcSwap<Grants>,
    changed: watch::Sender<u64>,
    audit: OnceLock<Audit>,
    metrics: OnceLock<ApprovalMetrics>,
    opened: Notify,
    /// Version of the database when its approvals were last read.
    version: AtomicI64,
    keeper: OnceLock<Keeper>,
}

/// An open approval with the tasks that wait for its end.
#[derive(Debug)]
struct Waiting {
    asked: Asked,
    span: Span,
    opened: Instant,
    /// The end of the approval, once there is one.
    end: watch::Sender<Option<Closed>>,
    /// True if the call was allowed after its agent had been told to stop.
    is_late: bool,
}

/// The end of a closed approval, for late readers.
#[derive(Debug)]
struct PromptEnding {
    id: PromptId,
    how: Closed,
    is_late: bool,
}

/// The state under the lock: open approvals, and grants that are being written.
#[derive(Debug)]
struct Open {
    desk: Desk,
    consent: Consent,
    waiting: HashMap<PromptId, Waiting>,
    /// Once-grants of calls that waited for them and have not been decided again.
    reserved: HashMap<PromptId, Arc<Grant>>,
    /// The latest ends of approvals, oldest first.
    closed: VecDeque<PromptEnding>,
    /// Grants that are being written. One that is revoked or invalidated meanwhile is removed here,
    /// and its write is undone.
    writing: HashMap<Arc<str>, Asked>,
    /// Grants that ended here while the store took no writes, and are live in it.
    undone: HashSet<Arc<str>>,
}

impl Approvals {
    #[cfg(any(test, feature = "testing"))]
    pub fn db(&self) -> Option<&Db> {
        self.inner.db.as_ref()
    }

    /// Creates approvals without a store, which end with the process.
    pub fn memory(limits: &Consent) -> Self {
        Self::new(None, limits, Vec::new())
    }

    /// Reads the approvals of a database, and raises the clock to the latest time in it. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn open(db: Db, limits: &Consent) -> Result<Self, DbError> {
        clock::not_before(db.latest_time().run_now()?);
        let rows = db.open_approvals(limits.unused_expiry.as_secs(), clock::since_1970().as_secs())?;
        Ok(Self::new(Some(db), limits, rows))
    }

    fn new(db: Option<Db>, limits: &Consent, rows: Vec<GrantRow>) -> Self {
        let desk = Desk::new(desk_limits(limits));
        let none = Grants::new(limits.unused_expiry.as_secs());
        let grants = rows.into_iter().fold(none, |grants, row| grants.with(Arc::new(Grant::new(row))));
        let consent = limits.clone();
        let open = Open {
            desk,
            consent,
            waiting: HashMap::new(),
            reserved: HashMap::new(),
            closed: VecDeque::new(),
            writing: HashMap::new(),
            undone: HashSet::new(),
        };
        let inner = Inner {
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
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn store_health(&self) -> Option<&Arc<Health>> {
        self.inner.db.as_ref().map(|db| db.health())
    }

    /// Returns the live grants of this moment. Takes no lock.
    pub fn grants(&self) -> Arc<Grants> {
        self.inner.grants.load_full()
    }

    /// Returns the current time in seconds since 1970. It never goes back, even over restarts.
    pub fn wall(&self) -> Wall {
        clock::since_1970().as_secs()
    }

    /// Applies other settings, to open approvals too: closes those whose time is over now, and the
    /// newest ones of a caller that has too many.
    pub fn set_limits(&self, consent: &Consent) {
        let inner = &self.inner;
        let now = self.wall();
        let mut open = inner.lock();
        let Open { desk, waiting, .. } = &mut *open;
        let life = |prompt: &Prompt| waiting.get(&prompt.id).map_or(0, |waiting| waiting.span.life(consent));
        let excess = desk.set_limits(desk_limits(consent), life);
        open.consent.clone_from(consent);
        excess.iter().for_each(|id| inner.close(&mut open, id, Closed::Superseded, None));
        inner.expire(&mut open, now);
        let grants = inner.grants.load();
        inner.grants.store(Arc::new(grants.with_unused(consent.unused_expiry.as_secs())));
        inner.tell();
        drop(open);
        self.write_operator();
    }

    /// Opens an approval with that life, or joins an open one about the same action: the call's
    /// `own`, else one that no call waits for. A new one is recorded in the audit log and listed in
    /// the store.
    fn open_prompt(
        &self,
        asked: Asked,
        shown: Shown,
        span: Span,
        own: Option<&PromptId>,
        entry: Entry,
    ) -> Result<PromptId, Refused> {
        let inner = &self.inner;
        if inner.db.as_ref().is_some_and(|db| !db.health().is_writable()) {
            return Err(Refused::NotKept);
        }
        let now = self.wall();
        let mut open = inner.lock();
        inner.expire(&mut open, now);
        let life = span.life(&open.consent);
        let opened = open.desk.open(asked.clone(), shown, PromptId::new(clock::random()), now, life, own)?;
        if !opened.joined {
            inner.opened(&opened.id, &asked, entry);
            let (end, now) = (watch::Sender::new(None), clock::now());
            open.waiting.insert(opened.id, Waiting { asked, span, opened: now, end, is_late: false });
            if let (Some(db), Some(prompt)) = (&inner.db, open.desk.get(&opened.id)) {
                let view = ApprovalView::new(prompt, inner.grants.load().places());
                db.enter_prompt(inner.owner(), view).then(unlisted::unlisted);
            }
            inner.opened.notify_one();
            inner.tell();
        }
        Ok(opened.id)
    }

    pub fn prompt(&self, id: &PromptId) -> Option<Prompt> {
        self.inner.lock().desk.get(id).cloned()
    }

    pub fn prompts(&self) -> Vec<Prompt> {
        let mut prompts: Vec<Prompt> = self.inner.lock().desk.prompts().cloned().collect();
        prompts.sort_by_key(|prompt| (prompt.opened_at, prompt.id));
        prompts
    }

    /// Waits for the end of an approval; an unknown one counts as superseded. Cancel-safe.
    pub async fn settled(&self, id: &PromptId) -> Closed {
        let mut end = {
            let open = self.inner.lock();
            match open.waiting.get(id) {
                Some(waiting) => waiting.end.subscribe(),
                None => {
                    let known = open.closed.iter().rev().find(|ending| ending.id == *id);
                    return known.map_or(Closed::Superseded, |ending| ending.how);
                }
            }
        };
        loop {
            let wait = tokio::time::timeout(Duration::from_secs(1), end.wait_for(Option::is_some));
            match wait.await {
                Ok(Ok(how)) => return how.unwrap_or(Closed::Superseded),
                Ok(Err(_)) => return Closed::Superseded,
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
    /// [`CannotAnswer`], if the answer does not count. The approval stays open, except if the grant
    /// could not be stored.
    pub async fn answer(
        &self,
        id: &PromptId,
        answer: Answer,
        evidence: Evidence,
        by: &str,
    ) -> Result<Closed, CannotAnswer> {
        let is_yes = answer.lifetime().is_some();
        let slot = if is_yes { self.inner.reserve().await? } else { RecordSlot::default() };
        let no = match answer {
            Answer::Deny => Closed::Denied,
            Answer::Decline => Closed::Declined,
            Answer::Dismiss | Answer::Allow(_) | Answer::AllowBelow(_) => Closed::Dismissed,
        };
        let grant = {
            let inner = &self.inner;
            let now = self.wall();
            let mut open = inner.lock();
            inner.expire(&mut open, now);
            if is_yes {
                inner.has_room(&open, id)?;
            }
            let denied = open.desk.denial(id, now).filter(|_| is_yes).map(|denial| denial.asked.clone());
            let is_late = open.desk.agent_wait(id, now) == AgentWait::Stopped;
            let grant_id = Arc::from(HEXLOWER.encode(&clock::random::<8>()));
            let answered = open.desk.answer(id, answer, evidence, by, now, grant_id)?;
            if let Some(asked) = denied {
                // A yes takes an earlier denial back. It is recorded as another answer to the same
                // approval. Its time counts from now, since the time of the denial was counted.
                let (end, opened) = (watch::Sender::new(None), clock::now());
                open.waiting.insert(*id, Waiting { asked, span: Span::Client, opened, end, is_late: true });
            } else if is_yes && let Some(waiting) = open.waiting.get_mut(id) {
                waiting.is_late = is_late;
            }
            match answered {
                None => {
                    let by = By { evidence, who: Arc::from(by), grant: None, scope: None, is_recorded: false };
                    inner.close(&mut open, id, no, Some(by));
                    return Ok(no);
                }
                Some(grant) => {
                    open.writing.insert(Arc::clone(grant.id()), grant.asked().clone());
                    let grant = Arc::new(grant);
                    open.reserve(id, &grant);
                    grant
                }
            }
        };
        self.keep(*id, grant, slot).await
    }

    /// Closes an approval of this process as timed out, because its call waits no longer.
    pub fn unanswered(&self, id: &PromptId) {
        let inner = &self.inner;
        let now = self.wall();
        let mut open = inner.lock();
        inner.expire(&mut open, now);
        let closed = open.desk.answer(id, Answer::Dismiss, Evidence::Client, "", now, Arc::from(""));
        if closed.is_ok() {
            inner.close(&mut open, id, Closed::TimedOut, None);
        }
    }

    /// Uses up a once-grant durably: returns `Ok` to exactly one caller over all processes and
    /// restarts. Must be awaited before the call is forwarded. Does nothing for other grants.
    ///
    /// # Errors
    /// [`Spent`], if the grant is used up or its use cannot be recorded; the call must not go on.
    pub async fn consume(&self, grant: &Grant) -> Result<(), Spent> {
        if !grant.is_once() {
            return Ok(());
        }
        let first = grant.consume();
        self.inner.drop_grants(|other| other.id() == grant.id());
        if !first {
            return Err(Spent::Already);
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
            let in_memory = |grant: &&Arc<Grant>| inner.db.is_none() || grant.lifetime() == Lifetime::Session;
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

    /// Returns a receiver that changes with every change of approvals and grants.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Ends the grants and closes the approvals for which `changed` returns true, because their
    /// item has changed.
    pub fn invalidate(&self, changed: impl Fn(&Asked) -> bool) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let grants = inner.grants.load();
        let dead: Vec<Arc<str>> =
            grants.iter().filter(|grant| changed(grant.asked())).map(|grant| Arc::clone(grant.id())).collect();
        open.writing.retain(|_, asked| !changed(asked));
        let closed = open.desk.supersede(|prompt| changed(&prompt.asked));
        closed.iter().for_each(|id| inner.close(&mut open, id, Closed::Superseded, None));
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

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn expire(&self, open: &mut Open, now: Wall) {
        for id in open.desk.expire(now) {
            self.close(open, &id, Closed::TimedOut, None);
        }
    }

    /// Closes an approval: wakes its waiters, records and counts the end, and removes it from the
    /// store. All ends pass here.
    fn close(&self, open: &mut Open, id: &PromptId, how: Closed, by: Option<By>) {
        let mut is_late = false;
        if let Some(waiting) = open.waiting.remove(id) {
            self.count_end(how, by.as_ref(), waiting.opened);
            self.ended(id, &waiting.asked, how, by);
            waiting.end.send_replace(Some(how));
            is_late = waiting.is_late && how == Closed::Granted;
        }
        open.closed.push_back(PromptEnding { id: *id, how, is_late });
        if open.closed.len() > MAX_CLOSED {
            open.closed.pop_front();
        }
        if let Some(db) = &self.db {
            db.remove_prompt(id.to_string()).then(unlisted::unlisted);
        }
        self.tell();
    }

    /// Checks the bounds on grants before the approval is allowed.
    ///
    /// # Errors
    /// [`CannotAnswer::Full`], or [`CannotAnswer::Unknown`] if the approval is neither open nor
    /// denied.
    fn has_room(&self, open: &Open, id: &PromptId) -> Result<(), CannotAnswer> {
        let prompt = open.desk.get(id).map(|prompt| &prompt.asked);
        let denied = || open.desk.denial(id, clock::since_1970().as_secs()).map(|denial| &denial.asked);
        let asked = prompt.or_else(denied).ok_or(CannotAnswer::Unknown)?;
        let grants = self.grants.load();
        let caller = &asked.caller;
        let on_their_way = open.writing.values().filter(|asked| asked.caller == *caller).count();
        let all = grants.len() + open.writing.len();
        let full = all >= MAX_GRANTS || grants.of_caller(caller) + on_their_way >= MAX_GRANTS_OF_CALLER;
        if full { Err(CannotAnswer::Full) } else { Ok(()) }
    }

    /// Adds a live grant. The caller holds the lock of `open`.
    fn add(&self, grant: Arc<Grant>) {
        self.grants.store(Arc::new(self.grants.load().with(grant)));
    }
}

const fn desk_limits(consent: &Consent) -> DeskLimits {
    DeskLimits { max_open: consent.max_open, per_minute: consent.per_minute }
}

#[cfg(test)]
mod tests;
