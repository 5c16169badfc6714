//! Prompts and grants of all processes that share a store: what the command line and the console show and answer.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::journal::ended;
use super::mirror::{self, Answered};
use super::{Approvals, PromptRow, Wish, rows};
use crate::base::clock;
use crate::policy::consent::{CannotAnswer, Closed, GrantRow, PromptId, Wall};
use crate::policy::{Entry, Evidence};
use crate::store::db::{Db, DbError};

/// How long the owner of a prompt may take to take an answer.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

impl Approvals {
    /// The open prompts of all processes that share the store, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(crate) async fn all_prompts(&self) -> Result<Vec<PromptRow>, DbError> {
        let now = self.wall();
        match &self.inner.db {
            Some(db) => {
                let seals = db.seals();
                db.run(move |connection| mirror::list(connection, now, &seals)).await
            }
            None => Ok(self.prompts().iter().map(PromptRow::from).collect()),
        }
    }

    /// The operator's answer to a prompt of whichever process. Says what came of it, in one word.
    ///
    /// # Errors
    /// Why it does not count.
    pub(crate) async fn operator_answers(&self, id: &str, wish: Wish, by: &str) -> Result<String, String> {
        let known = PromptId::parse(id).ok_or_else(|| CannotAnswer::Unknown.to_string())?;
        if self.prompt(&known).is_some() {
            let answer = wish.answer(self.wall());
            let closed = self.answer(&known, answer, Evidence::Operator, by).await;
            return closed.map(|how| how.into_str().to_owned()).map_err(|why| why.to_string());
        }
        let Some(db) = &self.inner.db else { return Err(CannotAnswer::Unknown.to_string()) };
        let (answered, now) = (left(id, wish, by), self.wall());
        let is_open = db.run(move |connection| mirror::leave_answer(connection, &answered, now)).await;
        if !is_open.map_err(|error| error.to_string())? {
            return Err(CannotAnswer::Unknown.to_string());
        }
        let deadline = clock::now() + PATIENCE;
        while clock::now() < deadline {
            let prompt = id.to_owned();
            let outcome = db.run(move |connection| mirror::outcome(connection, &prompt)).await;
            if let Some(outcome) = outcome.map_err(|error| error.to_string())? {
                return judged(outcome);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(unheard())
    }
}

/// The open prompts in a store without a daemon, the oldest first. Blocks.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn prompts(db: &Db) -> Result<Vec<PromptRow>, DbError> {
    let seals = db.seals();
    db.run_now(move |connection| mirror::list(connection, wall(connection)?, &seals))
}

/// The operator's answer without a daemon: left in the store for the process whose prompt it is. Says what came of it.
/// Blocks for a few seconds at most.
///
/// # Errors
/// Why it does not count, or that nobody took it.
pub(crate) fn answer(db: &Db, id: &str, wish: Wish, by: &str) -> Result<String, String> {
    let answered = left(id, wish, by);
    let is_open = db.run_now(move |connection| mirror::leave_answer(connection, &answered, wall(connection)?));
    if !is_open.map_err(|error| error.to_string())? {
        return Err(CannotAnswer::Unknown.to_string());
    }
    let deadline = clock::now() + PATIENCE;
    while clock::now() < deadline {
        let prompt = id.to_owned();
        let outcome = db.run_now(move |connection| mirror::outcome(connection, &prompt));
        if let Some(outcome) = outcome.map_err(|error| error.to_string())? {
            return judged(outcome);
        }
        std::thread::sleep(PAUSE);
    }
    Err(unheard())
}

/// The live grants in a store without a daemon. Blocks.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn grants(db: &Db) -> Result<Vec<GrantRow>, DbError> {
    db.run_now(rows::live)
}

/// Revokes that grant of a store without a daemon, or all: what is to be recorded of each. Other processes notice within two
/// seconds. Blocks.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn revoke(db: &Db, id: Option<&str>, by: &str) -> Result<Vec<Entry>, DbError> {
    let id = id.map(str::to_owned);
    let by: Arc<str> = Arc::from(by);
    db.run_now(move |connection| {
        let mut live = rows::live(connection)?;
        live.retain(|row| id.as_deref().is_none_or(|id| *id == *row.id));
        let now = wall(connection)?;
        rows::revoke(connection, id.as_deref(), now)?;
        let told = |row: &GrantRow| Entry { by: Some(Arc::clone(&by)), ..ended(&row.asked, &row.id, "revoked") };
        Ok(live.iter().map(told).collect())
    })
}

fn left(id: &str, wish: Wish, by: &str) -> Answered {
    Answered { prompt: id.to_owned(), answer: wish.to_string(), by: by.to_owned() }
}

fn wall(connection: &Connection) -> rusqlite::Result<Wall> {
    Ok(rows::max_wall(connection)?.max(clock::unix_seconds()))
}

fn judged(outcome: String) -> Result<String, String> {
    let good = [Closed::Granted, Closed::Denied, Closed::Dismissed].iter().any(|how| how.into_str() == outcome);
    if good { Ok(outcome) } else { Err(outcome) }
}

fn unheard() -> String {
    "the process that asked did not take the answer; it may be gone, so nothing was granted".to_owned()
}
