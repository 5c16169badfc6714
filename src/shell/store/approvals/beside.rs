//! Open approvals and grants of all processes on one store, for the command line and the console.

use std::sync::Arc;
use std::time::Duration;

use super::AnswerOutcome;
use super::journal::revocation_entry;
use super::{Approvals, OperatorAnswer};
use crate::base::clock;
use crate::policy::consent::{AnswerError, ApprovalId, ApprovalView, OpenApproval, SteadySeconds};
use crate::policy::{ApprovalEvidence, AuditEntry, Digest};
use crate::store::db::{Db, DbError};
use crate::store::disk::lock;
use crate::store::port::{ForeignAnswer, RevokedGrant};

/// Longest time in which the owner of an approval must take an answer.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

impl Approvals {
    /// Returns the open approvals of all processes that share the store, the oldest first, as rows.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn all_approvals(&self) -> Result<Vec<ApprovalView>, DbError> {
        let now = self.wall();
        let rows = match &self.inner.db {
            Some(db) => db.listed_approvals(now, true).run().await?,
            None => self.views().into_iter().map(ApprovalView::row).collect(),
        };
        let row = |row: ApprovalView| {
            // Only the process that asked knows whether the agent waits.
            let own = ApprovalId::parse(&row.id).filter(|id| self.approval(id).is_some());
            let row = row.at(now);
            own.map_or(row.clone(), |id| row.with_wait(self.agent_wait(&id)))
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Returns the open approvals of this process, the oldest first.
    pub fn views(&self) -> Vec<ApprovalView> {
        let now = self.wall();
        let open = self.open_approvals().into_iter().filter(|approval| approval.until > now);
        open.map(|approval| self.view_of(&approval)).collect()
    }

    /// Returns everything about an open approval of this process.
    pub fn view(&self, id: &ApprovalId) -> Option<ApprovalView> {
        self.approval(id).map(|approval| self.view_of(&approval))
    }

    fn view_of(&self, approval: &OpenApproval) -> ApprovalView {
        let view = ApprovalView::new(approval, self.grants().places());
        view.at(self.wall()).with_wait(self.agent_wait(&approval.id))
    }

    /// Returns an open approval of any process that shares the store, with everything that a person
    /// is shown; `None` if there is no such approval.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn show(&self, id: &str) -> Result<Option<ApprovalView>, DbError> {
        let now = self.wall();
        if let Some(view) = ApprovalId::parse(id).and_then(|id| self.view(&id)) {
            return Ok(Some(view));
        }
        let Some(db) = &self.inner.db else { return Ok(None) };
        let rows = db.listed_approvals(now, true).run().await?;
        let Some(row) = rows.into_iter().find(|row| row.id == id) else { return Ok(None) };
        let details = db.approval_details(id.to_owned()).run().await?;
        Ok(Some(details.unwrap_or(row).at(now)))
    }

    /// Answers an approval of any process as the operator, and returns the outcome. `shown` is the
    /// digest of the view that the operator saw.
    ///
    /// # Errors
    /// The reason why the answer does not count.
    pub async fn operator_answers(
        &self,
        id: &str,
        shown: Option<Digest>,
        wish: OperatorAnswer,
        by: &str,
    ) -> Result<AnswerOutcome, String> {
        let known = ApprovalId::parse(id).ok_or_else(|| AnswerError::Unknown.to_string())?;
        if self.approval(&known).is_some() || self.is_denied(&known) {
            let answer = wish.answer(self.wall());
            let closed = match shown {
                Some(shown) => self.answer_shown(&(known, shown), answer, ApprovalEvidence::Operator, by).await,
                None => self.answer(&known, answer, ApprovalEvidence::Operator, by).await,
            };
            return closed.map(|how| AnswerOutcome::of(how, self.was_late(&known))).map_err(|why| why.to_string());
        }
        match &self.inner.db {
            Some(db) => leave_answer(db, id, shown, wish, by).await,
            None => Err(AnswerError::Unknown.to_string()),
        }
    }
}

/// Returns the time of a store without a daemon, in seconds since 1970: no earlier than any of its
/// processes has seen. Blocks.
fn advance_and_read_clock(db: &Db) -> Result<SteadySeconds, DbError> {
    clock::advance_clock(db.latest_time().run_now()?);
    Ok(clock::since_1970().as_secs())
}

/// Returns the open approvals in a store without a daemon, the oldest first, as rows. Blocks.
/// Leaves out those of a daemon that was killed, which the next daemon ends.
///
/// # Errors
/// When the database cannot be read.
pub fn stored_approvals(db: &Db) -> Result<Vec<ApprovalView>, DbError> {
    let now = advance_and_read_clock(db)?;
    let without_daemons = lock::run_while_unlocked(db.dir(), || db.listed_approvals(now, false).run_now());
    let rows = without_daemons.unwrap_or_else(|| db.listed_approvals(now, true).run_now());
    Ok(rows?.into_iter().map(|row| row.at(now)).collect())
}

/// Returns an open approval in a store without a daemon, with everything that a person is shown;
/// `None` if there is no such approval. Blocks.
///
/// # Errors
/// When the database cannot be read.
pub fn details_of(db: &Db, id: &str) -> Result<Option<ApprovalView>, DbError> {
    let Some(row) = stored_approvals(db)?.into_iter().find(|row| row.id == id) else { return Ok(None) };
    let details = db.approval_details(id.to_owned()).run_now()?;
    Ok(Some(details.unwrap_or(row).at(advance_and_read_clock(db)?)))
}

/// Leaves the operator's answer to an approval of another process in the store, waits a few seconds
/// for its outcome, and returns that.
///
/// # Errors
/// The reason why the answer does not count, or that the other process did not take it.
pub async fn leave_answer(
    db: &Db,
    id: &str,
    shown: Option<Digest>,
    wish: OperatorAnswer,
    by: &str,
) -> Result<AnswerOutcome, String> {
    let answer = shown.map_or_else(|| wish.to_string(), |shown| format!("{wish} {}", shown.hex()));
    let answered = ForeignAnswer { approval: id.to_owned(), answer, by: by.to_owned() };
    let told = |error: DbError| error.to_string();
    clock::advance_clock(db.latest_time().run().await.map_err(told)?);
    if !db.leave_answer(answered, clock::since_1970().as_secs()).run().await.map_err(told)? {
        return Err(AnswerError::Unknown.to_string());
    }
    let deadline = clock::now() + PATIENCE;
    while clock::now() < deadline {
        let outcome = db.outcome(id.to_owned()).run().await;
        if let Some(outcome) = outcome.map_err(|error| error.to_string())? {
            return AnswerOutcome::parse(&outcome).ok_or(outcome);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err("the process that asked did not take the answer; it may be gone, so nothing was granted".to_owned())
}

/// Revokes one grant of a store without a daemon, or all, and returns their records. Other
/// processes notice within two seconds. Blocks.
///
/// # Errors
/// When the store cannot be written.
pub fn revoke_stored(db: &Db, id: Option<&str>, by: &str) -> Result<Vec<AuditEntry>, DbError> {
    let revoked = db.revoke_grants(id.map(str::to_owned), advance_and_read_clock(db)?).run_now()?;
    let by: Arc<str> = Arc::from(by);
    let told = |revoked: &RevokedGrant| {
        let asked = revoked.row.as_ref().map(|row| &row.asked);
        revocation_entry(asked, &revoked.id, &by)
    };
    Ok(revoked.iter().map(told).collect())
}
