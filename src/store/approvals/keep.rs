//! Grants and open approvals in the database: keeping grants, and looking for what other processes changed.
//!
//! Everything about the set of grants is done where the database's thread says that it is on the disk, so that the set follows
//! the order of the file.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::closed_by::By;
use super::mirror::{self, Answered};
use super::rows::{self, Used};
use super::{Approvals, Inner, Spent, Wish};
use crate::base::clock;
use crate::policy::Evidence;
use crate::policy::consent::{CannotAnswer, Closed, Grant, GrantRow, Lifetime, PromptId};
use crate::store::db::DbError;

/// How often other processes' answers are looked for while a prompt is open, and their revocations at all times.
const SOON: Duration = Duration::from_millis(250);
const LATER: Duration = Duration::from_secs(2);
/// How often uses and the time are written.
const SETTLE: Duration = Duration::from_secs(60);

impl Approvals {
    /// Writes a grant, then puts it in force and closes its prompt.
    pub(super) async fn keep(&self, id: PromptId, grant: Arc<Grant>) -> Result<Closed, CannotAnswer> {
        let Some(db) = &self.inner.db else { return Err(CannotAnswer::Unknown) };
        let (reply, answer) = oneshot::channel();
        let (row, prompt, inner) = (grant.row(), id.to_string(), Arc::clone(&self.inner));
        db.submit(
            move |connection| {
                rows::insert(connection, &row)?;
                mirror::delete(connection, &prompt)?;
                rows::seen(connection, row.granted_at)
            },
            // Nobody may be left to be told.
            move |outcome| drop(reply.send(inner.kept(&id, &grant, outcome))),
        );
        let closed =
            answer.await.unwrap_or_else(|_| Err(CannotAnswer::NotKept("the gateway is shutting down".to_owned())));
        if closed == Ok(Closed::Superseded) {
            // Jobs are done in order: after this one the grant is undone.
            drop(db.run(|_| Ok(())).await);
        }
        closed
    }

    pub(super) async fn consume_row(&self, id: Arc<str>) -> Result<(), Spent> {
        let Some(db) = &self.inner.db else { return Ok(()) };
        let now = self.wall();
        let inner = Arc::clone(&self.inner);
        let (reply, answer) = oneshot::channel();
        let row = Arc::clone(&id);
        db.submit(
            move |connection| rows::consume(connection, &row, now),
            move |outcome| {
                // A look at the file that was under way may have brought it back.
                inner.drop_grants(|grant| *grant.id() == id);
                let verdict = match outcome {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Spent::Already),
                    Err(error) => Err(Spent::NotKept(error.to_string())),
                };
                // Then the consent is used up for a call that nobody waits for.
                drop(reply.send(verdict));
            },
        );
        answer.await.unwrap_or_else(|_| Err(Spent::NotKept("the gateway is shutting down".to_owned())))
    }

    pub(super) async fn revoke_rows(
        &self,
        id: Option<String>,
        hit: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<usize, DbError> {
        let Some(db) = &self.inner.db else { return Ok(0) };
        let now = self.wall();
        let inner = Arc::clone(&self.inner);
        let (reply, answer) = oneshot::channel();
        db.submit(
            move |connection| rows::revoke(connection, id.as_deref(), now),
            move |outcome| {
                inner.drop_grants(|grant| hit(grant.id()));
                drop(reply.send(outcome));
            },
        );
        answer.await.unwrap_or_else(|_| Err(DbError::Closed { path: db.path().to_owned() }))
    }

    pub(super) fn invalidate_rows(&self, dead: Vec<Arc<str>>) {
        let Some(db) = &self.inner.db else { return };
        let now = self.wall();
        let inner = Arc::clone(&self.inner);
        let gone = dead.clone();
        db.submit(
            move |connection| rows::invalidate(connection, &dead, now),
            move |outcome| {
                inner.drop_grants(|grant| gone.contains(grant.id()));
                if let Err(error) = outcome {
                    // They cover nothing all the same: definition and launch are compared at each use.
                    tracing::warn!(error = %error, "ended grants are still in the store");
                }
            },
        );
    }

    /// Keeps prompts to their time, follows other processes and writes uses; until `stop`, and once more then.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut settled = clock::now();
        loop {
            let pause = match (&self.inner.db, self.inner.lock().waiting.is_empty()) {
                (_, false) => SOON,
                (Some(_), true) => LATER,
                (None, true) => SETTLE,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.inner.opened.notified() => {}
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

    /// Nobody is left who could take an answer.
    fn close_all(&self) {
        let mut open = self.inner.lock();
        let closed = open.desk.supersede(|_| true);
        closed.iter().for_each(|id| self.inner.close(&mut open, id, Closed::Superseded, None));
    }

    /// Takes over what other processes changed in the database.
    pub(super) async fn follow(&self) {
        let Some(db) = &self.inner.db else { return };
        let inner = Arc::clone(&self.inner);
        let (owner, seen) = (inner.owner.clone(), inner.version.load(Ordering::Relaxed));
        let (reply, answers) = oneshot::channel();
        db.look(
            move |connection| {
                let version: i64 = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
                if version == seen {
                    return Ok(None);
                }
                Ok(Some((version, rows::live(connection)?, mirror::answers(connection, &owner)?)))
            },
            move |found| match found {
                Ok(Some((version, live, answers))) => {
                    inner.follow(live);
                    inner.version.store(version, Ordering::Relaxed);
                    drop(reply.send(answers));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(error = %error, "other processes' changes cannot be read"),
            },
        );
        for answered in answers.await.unwrap_or_default() {
            self.take(answered).await;
        }
    }

    /// An answer that another process left. Who can write the file is the operator.
    async fn take(&self, answered: Answered) {
        let wish = Wish::parse(&answered.answer).zip(PromptId::parse(&answered.prompt));
        let outcome = match wish {
            Some((wish, id)) => {
                let answer = wish.answer(self.wall());
                let closed = self.answer(&id, answer, Evidence::Operator, &answered.by).await;
                closed.map_or_else(|why| why.to_string(), |how| how.into_str().to_owned())
            }
            None => "the answer cannot be read".to_owned(),
        };
        if let Some(db) = &self.inner.db {
            let told = db.run(move |connection| mirror::tell(connection, &answered.prompt, &outcome)).await;
            if let Err(error) = told {
                tracing::warn!(error = %error, "who answered is not told what came of it");
            }
        }
    }

    /// Ends what is over, and writes uses and the time.
    pub(super) async fn settle(&self) {
        let now = self.wall();
        let grants = self.grants();
        let unused = grants.unused();
        self.inner.drop_grants(|grant| grant.is_over(now, unused));
        let Some(db) = &self.inner.db else { return };
        let kept = grants.iter().filter(|grant| grant.lifetime() != Lifetime::Session && !grant.is_once());
        let used: Vec<(Arc<Grant>, u64)> =
            kept.map(|grant| (Arc::clone(grant), grant.unwritten())).filter(|(_, more)| *more > 0).collect();
        let rows: Vec<Used> = used
            .iter()
            .map(|(grant, more)| Used { id: Arc::clone(grant.id()), more: *more, last_used: grant.last_used() })
            .collect();
        let written = db.run(move |connection| {
            rows::settle(connection, &rows, unused, now)?;
            mirror::sweep(connection, now)
        });
        match written.await {
            Ok(()) => used.iter().for_each(|(grant, more)| grant.written(*more)),
            Err(error) => tracing::warn!(error = %error, "uses of grants are not written"),
        }
    }
}

impl Inner {
    /// A grant is on the disk, or is not.
    fn kept(&self, id: &PromptId, grant: &Arc<Grant>, outcome: Result<(), DbError>) -> Result<Closed, CannotAnswer> {
        let mut open = self.lock();
        let alive = open.writing.remove(grant.id()).is_some();
        match outcome {
            Ok(()) if alive => {
                self.add(Arc::clone(grant));
                self.close(&mut open, id, Closed::Granted, Some(By::of(grant)));
                Ok(Closed::Granted)
            }
            Ok(()) => {
                self.close(&mut open, id, Closed::Superseded, None);
                drop(open);
                self.undo(grant);
                Ok(Closed::Superseded)
            }
            Err(error) => {
                self.close(&mut open, id, Closed::Dismissed, None);
                Err(CannotAnswer::NotKept(error.to_string()))
            }
        }
    }

    /// What it was given for changed while it was written.
    fn undo(&self, grant: &Grant) {
        let (dead, now) = (vec![Arc::clone(grant.id())], self.clock.now());
        if let Some(db) = &self.db {
            db.submit(move |connection| rows::invalidate(connection, &dead, now), super::unlisted);
        }
    }

    /// The grants of the file, and those of sessions. Grants that are known stay the same values, with their claims.
    fn follow(&self, live: Vec<GrantRow>) {
        let open = self.lock();
        let before = self.grants.load();
        let known: HashMap<&str, &Arc<Grant>> = before.iter().map(|grant| (&**grant.id(), grant)).collect();
        let mut grants = before.without(|grant| grant.lifetime() != Lifetime::Session);
        let mut fresh = false;
        for row in live {
            let grant = match known.get(&*row.id) {
                Some(grant) => {
                    grant.also_used(row.last_used);
                    Arc::clone(grant)
                }
                None => {
                    fresh = true;
                    Arc::new(Grant::new(row))
                }
            };
            grants = grants.with(grant);
        }
        let changed = fresh || grants.len() != before.len();
        self.grants.store(Arc::new(grants));
        drop(open);
        if changed {
            self.tell();
        }
    }
}
