//! Storing of this process's grants and approvals, and reading of other processes' changes.
//!
//! The set of grants changes when the store reports a write, so that its order of changes is that
//! of the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::closed_by::ApprovalCloser;
use super::journal;
use super::unlisted::log_unlisted;
use super::{AnswerOutcome, Approvals, ApprovalsState, GrantUseError, OperatorAnswer};
use crate::base::clock;
use crate::base::tally::LogTally;
use crate::config::OperatorAccess;
use crate::policy::consent::{AnswerError, ApprovalEnd, ApprovalGrant, ApprovalId, GrantLifetime, GrantRow};
use crate::policy::{ApprovalEvidence, Digest};
use crate::store::audit::{RecordSlot, UnrecordedError};
use crate::store::db::{Db, DbError};
use crate::store::port::{ApprovalChanges, ForeignAnswer, OwnedApproval, UnwrittenGrantUses, wait_for_change};

/// Time between two looks for other processes' changes while an approval is open.
const SOON: Duration = Duration::from_millis(250);
/// Time between two looks while none is open.
const LATER: Duration = Duration::from_secs(2);
/// Time between two writes of grants' uses and of the time.
const SETTLE: Duration = Duration::from_secs(60);
/// Rate limit of log lines about changes that cannot be read.
static UNREAD: LogTally = LogTally::of(1);

impl Approvals {
    /// Records a grant in `slot`. Once the record is on disk, writes the grant, puts it in force
    /// and closes its approval. A crash in between leaves a record without a grant. `undoes_denial`
    /// says that the approval was denied before.
    pub(super) async fn keep(
        &self,
        id: ApprovalId,
        grant: Arc<ApprovalGrant>,
        slot: RecordSlot,
        undoes_denial: bool,
    ) -> Result<ApprovalEnd, AnswerError> {
        let entry = journal::end_entry(&id, grant.asked(), ApprovalEnd::Granted, Some(ApprovalCloser::of(&grant)));
        let (done, closed) = oneshot::channel();
        let (inner, granted) = (Arc::clone(&self.inner), Arc::clone(&grant));
        let answers = (!undoes_denial).then(|| inner.owned(&id));
        slot.record_before(entry, move |recorded| inner.keep(id, granted, answers, recorded, done));
        // The log or the database ended before it answered.
        let ended = |_| self.inner.kept(&id, &grant, Err(UnrecordedError.to_string()));
        let closed = closed.await.unwrap_or_else(ended);
        if closed == Ok(ApprovalEnd::Superseded)
            && let Some(db) = &self.inner.db
        {
            // The grant is undone once this has run.
            drop(db.all_so_far().run().await);
        }
        closed
    }

    /// Uses up a once-grant in the store.
    ///
    /// # Errors
    /// [`GrantUseError`], if it is used up there, or the use cannot be written.
    pub(super) async fn consume_row(&self, id: Arc<str>) -> Result<(), GrantUseError> {
        let Some(db) = &self.inner.db else { return Ok(()) };
        let now = self.wall();
        let inner = Arc::clone(&self.inner);
        // The grant is used up even if the call stops waiting.
        let consumed = db.consume_grant(Arc::clone(&id), now).run_with(move |outcome| {
            // A look at the store that was under way may have brought the grant back.
            inner.drop_grants(|grant| *grant.id() == id);
            outcome
        });
        match consumed.await.and_then(|outcome| outcome) {
            Ok(true) => Ok(()),
            Ok(false) => Err(GrantUseError::Already),
            Err(error) => Err(GrantUseError::NotKept(error.to_string())),
        }
    }

    /// Revokes grants in the store and drops them from memory; records those that could not be
    /// read. If the write fails, the grants in `kept` are revoked once the store takes writes.
    /// Returns their number.
    pub(super) async fn revoke_rows(
        &self,
        id: Option<String>,
        by: Arc<str>,
        kept: Vec<Arc<str>>,
        hit: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<usize, DbError> {
        let Some(db) = &self.inner.db else { return Ok(0) };
        let now = self.wall();
        let inner = Arc::clone(&self.inner);
        let revoked = db.revoke_grants(id, now).run_with(move |outcome| {
            inner.drop_grants(|grant| hit(grant.id()));
            let unread = outcome.iter().flatten().filter(|revoked| revoked.row.is_none());
            unread.for_each(|revoked| inner.revoked_unread(&revoked.id, &by));
            if outcome.is_err() {
                inner.lock().undone.extend(kept);
            }
            outcome
        });
        Ok(revoked.await??.len())
    }

    /// Ends grants in the store and in memory, in the background. If the write fails, it is
    /// repeated once the store takes writes.
    pub(super) fn invalidate_rows(&self, dead: Vec<Arc<str>>) {
        let Some(db) = &self.inner.db else { return };
        let now = self.wall();
        let inner = Arc::clone(&self.inner);
        db.invalidate_grants(dead.clone(), now).then(move |outcome| {
            inner.drop_grants(|grant| dead.contains(grant.id()));
            if let Err(error) = outcome {
                // They cover nothing even so: each use compares definition and launch.
                tracing::warn!(error = %error, "ended grants are still in the store");
                inner.lock().undone.extend(dead);
            }
        });
    }

    /// Closes approvals at their time, follows other processes and writes uses, until `stop` fires.
    /// Then closes all approvals and writes uses once more.
    pub async fn run(self, stop: CancellationToken) {
        let mut settled = clock::now();
        let mut changes = self.inner.db.as_ref().map(|db| db.health().changes());
        loop {
            let pause = match (&self.inner.db, self.inner.lock().waiting.is_empty()) {
                (_, false) => SOON,
                (Some(_), true) if self.inner.has_predecessor.load(Ordering::Relaxed) => SOON,
                (Some(_), true) => LATER,
                (None, true) => SETTLE,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.inner.opened.notified() => {}
                () = wait_for_change(&mut changes) => {}
                () = stop.cancelled() => break,
            }
            self.expire();
            self.follow().await;
            if clock::now().duration_since(settled) >= SETTLE {
                settled = clock::now();
                self.settle().await;
            }
        }
        self.close_all();
        self.settle().await;
    }

    /// Closes all approvals: no process is left to take an answer.
    fn close_all(&self) {
        let mut open = self.inner.lock();
        let closed = open.desk.supersede(|_| true);
        closed.iter().for_each(|id| self.inner.close(&mut open, id, ApprovalEnd::Superseded, None));
    }

    /// Reads and applies the changes that other processes made in the database.
    pub async fn follow(&self) {
        let Some(db) = &self.inner.db else { return };
        self.end_undone(db);
        let inner = Arc::clone(&self.inner);
        let changed = db.approvals_changed(inner.owner(), inner.version.load(Ordering::Relaxed));
        let followed = changed.run_with(move |found| -> Result<Vec<ForeignAnswer>, DbError> {
            let Some(ApprovalChanges { version, live, answers, ended }) = found? else { return Ok(Vec::new()) };
            inner.follow(live);
            inner.close_answered(ended);
            inner.version.store(version, Ordering::Relaxed);
            Ok(answers)
        });
        let answers = followed.await.and_then(|answers| answers).unwrap_or_else(|error| {
            if let Some(count) = UNREAD.count(clock::uptime()) {
                tracing::warn!(error = %error, count, "other processes' changes cannot be read");
            }
            Vec::new()
        });
        for answered in answers {
            self.take(answered).await;
        }
    }

    /// Revokes in the store the grants that ended while it took no writes.
    fn end_undone(&self, db: &Db) {
        if !db.health().is_writable() {
            return;
        }
        let undone: Vec<Arc<str>> = self.inner.lock().undone.iter().map(Arc::clone).collect();
        for id in undone {
            let inner = Arc::clone(&self.inner);
            db.revoke_grants(Some(id.to_string()), self.wall()).then(move |outcome| {
                if outcome.is_ok() {
                    inner.lock().undone.remove(&id);
                }
            });
        }
    }

    /// Applies an answer that another process left in the store, and writes the outcome there. The
    /// answer counts as the operator's, since only the operator can write the file.
    pub(super) async fn take(&self, answered: ForeignAnswer) {
        let approval = ApprovalId::parse(&answered.approval);
        if approval.is_some_and(|id| self.inner.lock().passed.contains(&id)) {
            return;
        }
        if let Some(db) = &self.inner.db
            && !matches!(db.take_answer(answered.approval.clone()).run().await, Ok(true))
        {
            // Another owner of the approval judges it, or nobody can be told the outcome.
            return;
        }
        let outcome = match parse_left_answer(&answered) {
            _ if self.operator() == OperatorAccess::None => {
                "this gateway takes answers on its console's page alone".to_owned()
            }
            Some((id, shown, wish)) => {
                let answer = wish.answer(self.wall());
                let closed = match shown {
                    Some(shown) => {
                        self.answer_shown(&(id, shown), answer, ApprovalEvidence::Operator, &answered.by).await
                    }
                    None => self.answer(&id, answer, ApprovalEvidence::Operator, &answered.by).await,
                };
                let told = |how| AnswerOutcome::of(how, self.was_late(&id)).written();
                closed.map_or_else(|why| why.to_string(), told)
            }
            None => "the answer cannot be read".to_owned(),
        };
        if let Some(db) = &self.inner.db
            && let Err(error) = db.tell_outcome(answered.approval, outcome).run().await
        {
            tracing::warn!(error = %error, "the process that answered is not told what came of it");
        }
    }

    /// Drops expired grants, and writes uses and the time.
    pub(super) async fn settle(&self) {
        let now = self.wall();
        let grants = self.grants();
        let unused = grants.unused();
        self.inner.drop_grants(|grant| grant.is_over(now, unused));
        let Some(db) = &self.inner.db else { return };
        if !db.health().is_writable() {
            return;
        }
        let kept = grants.iter().filter(|grant| grant.lifetime() != GrantLifetime::Session && !grant.is_once());
        let used: Vec<(Arc<ApprovalGrant>, u64)> =
            kept.map(|grant| (Arc::clone(grant), grant.unwritten())).filter(|(_, more)| *more > 0).collect();
        let rows: Vec<UnwrittenGrantUses> = used
            .iter()
            .map(|(grant, more)| UnwrittenGrantUses {
                id: Arc::clone(grant.id()),
                more: *more,
                last_used: grant.last_used(),
            })
            .collect();
        match db.settle_approvals(rows, unused, now).run().await {
            Ok(()) => used.iter().for_each(|(grant, more)| grant.written(*more)),
            Err(error) => tracing::warn!(error = %error, "uses of grants are not written"),
        }
    }
}

/// Parses an answer as it was left: the approval, the digest of the text that was shown, and the
/// wish.
fn parse_left_answer(answered: &ForeignAnswer) -> Option<(ApprovalId, Option<Digest>, OperatorAnswer)> {
    let with_digest = |(wish, shown)| Some((wish, Digest::from_hex(shown)?));
    let (wish, shown) = match answered.answer.rsplit_once(' ').and_then(with_digest) {
        Some((wish, shown)) => (wish, Some(shown)),
        None => (answered.answer.as_str(), None),
    };
    Some((ApprovalId::parse(&answered.approval)?, shown, OperatorAnswer::parse(wish)?))
}

impl ApprovalsState {
    /// Drops the grants for which `gone` returns true from memory.
    pub(super) fn drop_grants(&self, gone: impl Fn(&ApprovalGrant) -> bool) {
        let open = self.lock();
        let grants = self.grants.load();
        if grants.iter().any(|grant| gone(grant)) {
            self.grants.store(Arc::new(grants.without(gone)));
            self.tell();
        }
        drop(open);
    }

    /// Writes a grant whose record is in the log, and ends the approval that it answers; a session
    /// grant stays in memory only. Sends the outcome to `done`.
    fn keep(
        self: Arc<Self>,
        id: ApprovalId,
        grant: Arc<ApprovalGrant>,
        answers: Option<OwnedApproval>,
        recorded: Result<(), UnrecordedError>,
        done: oneshot::Sender<Result<ApprovalEnd, AnswerError>>,
    ) {
        let db = self.db.clone().filter(|_| grant.lifetime() != GrantLifetime::Session);
        let row = grant.row();
        // The task that answered may be gone.
        let kept = move |outcome| drop(done.send(self.kept(&id, &grant, outcome)));
        match (recorded, db) {
            (Err(error), _) => kept(Err(error.to_string())),
            (Ok(()), None) => kept(Ok(true)),
            (Ok(()), Some(db)) => {
                let written = move |outcome: Result<bool, DbError>| kept(outcome.map_err(|error| error.to_string()));
                db.keep_grant(row, answers).then(written);
            }
        }
    }

    /// Applies the outcome of a grant's write: puts the grant in force and closes its approval;
    /// undoes the write if the grant was revoked meanwhile; or dismisses the approval if the write
    /// failed.
    fn kept(
        &self,
        id: &ApprovalId,
        grant: &Arc<ApprovalGrant>,
        outcome: Result<bool, String>,
    ) -> Result<ApprovalEnd, AnswerError> {
        let mut open = self.lock();
        let alive = open.writing.remove(grant.id()).is_some();
        match outcome {
            // Answered on another replica before: the next look at the store closes the approval.
            Ok(false) => {
                open.reserved.remove(id);
                Err(AnswerError::Unknown)
            }
            Ok(true) if alive => {
                self.add(Arc::clone(grant));
                self.close(&mut open, id, ApprovalEnd::Granted, Some(ApprovalCloser::of(grant).recorded()));
                self.release(&mut open, grant);
                Ok(ApprovalEnd::Granted)
            }
            Ok(true) => {
                self.close(&mut open, id, ApprovalEnd::Superseded, None);
                drop(open);
                self.undo(grant);
                Ok(ApprovalEnd::Superseded)
            }
            Err(error) => {
                self.close(&mut open, id, ApprovalEnd::Dismissed, None);
                Err(AnswerError::NotKept(error))
            }
        }
    }

    /// Ends a stored grant that was revoked or invalidated while it was written.
    fn undo(&self, grant: &ApprovalGrant) {
        let (dead, now) = (vec![Arc::clone(grant.id())], clock::since_1970().as_secs());
        if let Some(db) = &self.db {
            db.invalidate_grants(dead, now).then(log_unlisted);
        }
    }

    /// Replaces the grants by those in the store and those of sessions. Grants that are known stay
    /// the same values, with their claims.
    fn follow(&self, live: Vec<GrantRow>) {
        let mut open = self.lock();
        let before = self.grants.load();
        let known: HashMap<&str, &Arc<ApprovalGrant>> = before.iter().map(|grant| (&**grant.id(), grant)).collect();
        let mut grants = before.without(|grant| grant.lifetime() != GrantLifetime::Session);
        let mut fresh = Vec::new();
        for row in live.into_iter().filter(|row| !open.undone.contains(&row.id)) {
            let grant = match known.get(&*row.id) {
                Some(grant) => {
                    grant.also_used(row.last_used);
                    Arc::clone(grant)
                }
                None => {
                    let grant = Arc::new(ApprovalGrant::new(row));
                    fresh.push(Arc::clone(&grant));
                    grant
                }
            };
            grants = grants.with(grant);
        }
        let changed = !fresh.is_empty() || grants.len() != before.len();
        self.grants.store(Arc::new(grants));
        fresh.iter().for_each(|grant| self.release(&mut open, grant));
        drop(open);
        if changed {
            self.tell();
        }
    }
}
