//! The thread of the store: runs the operations one after the other, looks for changes of other
//! replicas, and connects again after the connection was lost.
//!
//! The pauses between two attempts grow from 0.25 s to 2 s. Meanwhile operations fail at once.

use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::MissedTickBehavior;

use super::connect::{StoreLink, StoreServer};
use super::error::{failed, unavailable};
use super::job::PostgresJob;
use super::session::{PostgresSession, WorkKind};
use super::tables::meta;
use crate::base::clock;
use crate::store::port::{DbError, StoreHealth, threads};

/// The first and the longest pause before the next attempt to connect.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(2);
/// Time between two looks for changes that no notification told of.
const LOOK: Duration = Duration::from_secs(1);
/// Key in `meta` of the random number that is written to try the database.
const TRIED: &str = "tried";

/// The thread's work.
struct StoreThread {
    server: StoreServer,
    health: Arc<StoreHealth>,
    inbox: Receiver<Box<dyn PostgresJob>>,
}

/// Starts the thread, and waits until it is connected, for so long if the database is away. Blocks.
///
/// # Errors
/// When there is no usable database in that time.
pub(super) fn start(
    server: StoreServer,
    wait: Duration,
    health: Arc<StoreHealth>,
    inbox: Receiver<Box<dyn PostgresJob>>,
) -> Result<(), DbError> {
    let mut work = StoreThread { server, health, inbox };
    let (opened, outcome) = blocking::sync_channel(1);
    let run = threads::begin();
    #[cfg(any(test, feature = "testing"))]
    let process = clock::played::TestProcess::current();
    let started = std::thread::Builder::new().name("db".to_owned()).spawn(move || {
        #[cfg(any(test, feature = "testing"))]
        if let Some(process) = process {
            process.enter();
        }
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(opened.send(Err(failed(format!("start its thread: {error}"))))),
        };
        runtime.block_on(async move {
            match work.connect_first(wait).await {
                Ok(link) => {
                    work.health.confirm();
                    drop(opened.send(Ok(())));
                    Box::pin(work.run(link)).await;
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        });
        drop(run);
    });
    started.map_err(|error| failed(format!("start its thread: {error}")))?;
    outcome.recv().unwrap_or(Err(DbError::Closed))
}

impl StoreThread {
    /// Connects, and tries again for so long if the database is away.
    async fn connect_first(&mut self, wait: Duration) -> Result<StoreLink, DbError> {
        let mut last = match self.server.connect(&self.health).await {
            Err(error) if error.is_unwritable() => error,
            outcome => return outcome,
        };
        tracing::warn!(why = %last, "waiting for the store of the cluster");
        let again = async {
            loop {
                tokio::time::sleep(FIRST).await;
                match self.server.connect(&self.health).await {
                    Err(error) if error.is_unwritable() => last = error,
                    outcome => return outcome,
                }
            }
        };
        let outcome = tokio::time::timeout(wait, again).await;
        outcome.unwrap_or(Err(last))
    }

    /// Runs operations until the last sender is gone.
    async fn run(mut self, mut link: StoreLink) {
        while let Some(error) = self.serve(link).await {
            let error = unavailable(error);
            self.health.failed(&error);
            match self.connect_again(error).await {
                Some(connected) => link = connected,
                None => return,
            }
            // Readers load again what they know: it may have changed meanwhile.
            self.health.connected();
            self.health.confirm();
            self.health.wrote();
            self.health.changed();
        }
    }

    /// Runs operations on a connection. Returns the reason why it cannot be used any more, or
    /// `None` after the last operation.
    async fn serve(&mut self, mut link: StoreLink) -> Option<DbError> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;
        loop {
            let outcome = tokio::select! {
                job = self.inbox.recv() => self.perform(&mut link, job?).await,
                message = link.handle_message(&self.health) => message,
                _ = look.tick() => self.look(&mut link, &mut seen).await,
            };
            if let Err(error) = outcome {
                return Some(error);
            }
        }
    }

    /// Runs one operation and tells its outcome.
    ///
    /// # Errors
    /// When the connection cannot be used any more.
    async fn perform(&mut self, link: &mut StoreLink, mut job: Box<dyn PostgresJob>) -> Result<(), DbError> {
        let driven = link.drive(&self.health, async |session: &PostgresSession| transact(session, &mut *job).await);
        let outcome = driven.await.and_then(|outcome| outcome);
        match &outcome {
            Err(error) if error.is_away() => self.health.failed(error),
            Ok(()) if job.kind() != WorkKind::Read => self.health.wrote(),
            _ => {}
        }
        job.finish(outcome.clone());
        match outcome {
            Err(error) if link.session.is_over() => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells readers of changes that no notification told of. While writes fail, tries to write.
    async fn look(&mut self, link: &mut StoreLink, seen: &mut Option<i64>) -> Result<(), DbError> {
        let tries = !self.health.is_writable();
        let looked = link.drive(&self.health, async |session: &PostgresSession| {
            if tries {
                try_to_write(session).await?;
            }
            session.count_changes().await
        });
        match looked.await? {
            Ok(changes) => {
                self.health.confirm();
                if tries {
                    self.health.wrote();
                }
                if *seen != Some(changes) {
                    *seen = Some(changes);
                    self.health.changed();
                }
                Ok(())
            }
            Err(error) if link.session.is_over() => Err(error),
            Err(error) => {
                tracing::debug!(error = %error, "the store still takes no writes");
                Ok(())
            }
        }
    }

    /// Connects again. Operations fail at once meanwhile. `None` after the last operation.
    async fn connect_again(&mut self, mut error: DbError) -> Option<StoreLink> {
        let pauses = std::iter::successors(Some(FIRST), |pause| Some((*pause * 2).min(LONGEST)));
        for pause in pauses {
            let attempt = async {
                tokio::time::sleep(pause).await;
                self.server.connect(&self.health).await
            };
            tokio::pin!(attempt);
            let connected = loop {
                tokio::select! {
                    job = self.inbox.recv() => job?.finish(Err(error.clone())),
                    connected = &mut attempt => break connected,
                }
            };
            match connected {
                Ok(link) => return Some(link),
                Err(why) => {
                    tracing::debug!(error = %why, "the store of the cluster is still away");
                    error = unavailable(why);
                }
            }
        }
        None
    }
}

/// Runs an operation, in a transaction if it writes. After an error its changes are undone; only
/// after one of the commit may they be there.
async fn transact(session: &PostgresSession, job: &mut dyn PostgresJob) -> Result<(), DbError> {
    let kind = job.kind();
    if kind == WorkKind::Read {
        return job.run(session).await;
    }
    let outcome = async {
        session.begin().await?;
        job.run(session).await?;
        session.commit(kind).await
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        session.roll_back().await;
    }
    outcome
}

/// Writes something; a server that has become a standby is left.
async fn try_to_write(session: &PostgresSession) -> Result<(), DbError> {
    let outcome = async {
        session.begin().await?;
        meta::put(session, TRIED, &clock::random::<8>()).await?;
        session.commit(WorkKind::Write).await
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        session.roll_back().await;
        session.leave_standby().await;
    }
    outcome
}
