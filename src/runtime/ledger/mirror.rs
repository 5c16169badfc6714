//! Open prompts as rows, so that a process without the prompt can show and answer it: `headend approvals` without a daemon,
//! or a daemon beside a `headend stdio` of its own.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::rows::{signed, unsigned};
use crate::policy::consent::{Prompt, Wall};

/// Answers that nobody took are kept for so long, in seconds.
const KEPT: Wall = 3600;

/// A prompt as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptRow {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) upstream: String,
    pub(crate) kind: String,
    pub(crate) item: String,
    /// The name by which the client called it.
    pub(crate) exposed: String,
    pub(crate) rule: String,
    /// The least evidence: `L1`, `L2`, `L3`.
    pub(crate) need: String,
    pub(crate) destructive: bool,
    /// Whether it can be allowed for a session.
    pub(crate) session: bool,
    /// [`Prompt::message`].
    pub(crate) message: String,
    pub(crate) opened_at: Wall,
    pub(crate) until: Wall,
}

impl From<&Prompt> for PromptRow {
    fn from(prompt: &Prompt) -> Self {
        let asked = &prompt.asked;
        Self {
            id: prompt.id.to_string(),
            caller: asked.caller.to_string(),
            upstream: asked.upstream.to_string(),
            kind: asked.kind.as_str().to_owned(),
            item: asked.item.to_string(),
            exposed: prompt.shown.exposed.clone(),
            rule: asked.rule.to_string(),
            need: asked.need.as_str().to_owned(),
            destructive: asked.destructive,
            session: asked.session.is_some(),
            message: prompt.message(),
            opened_at: prompt.opened_at,
            until: prompt.until,
        }
    }
}

/// An answer of another process.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) prompt: String,
    pub(super) answer: String,
    pub(super) by: String,
}

pub(super) fn insert(connection: &Connection, owner: &str, row: &PromptRow) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO prompts (id, owner, caller, upstream, kind, item, exposed, rule, need, destructive, \
               session, message, opened_at, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let PromptRow { id, caller, upstream, kind, item, exposed, rule, need, destructive, session, .. } = row;
    let (opened, until) = (signed(row.opened_at), signed(row.until));
    let values = params![
        id,
        owner,
        caller,
        upstream,
        kind,
        item,
        exposed,
        rule,
        need,
        destructive,
        session,
        row.message,
        opened,
        until
    ];
    connection.prepare_cached(sql)?.execute(values).map(|_| ())
}

/// The prompt is closed.
pub(super) fn delete(connection: &Connection, id: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM prompts WHERE id = ?1")?.execute([id]).map(|_| ())
}

/// The open prompts of all processes, the oldest first.
pub(super) fn list(connection: &Connection, now: Wall) -> rusqlite::Result<Vec<PromptRow>> {
    let sql = "SELECT id, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at, until \
               FROM prompts WHERE until > ?1 ORDER BY opened_at, id";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([signed(now)], read)?.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<PromptRow> {
    Ok(PromptRow {
        id: row.get(0)?,
        caller: row.get(1)?,
        upstream: row.get(2)?,
        kind: row.get(3)?,
        item: row.get(4)?,
        exposed: row.get(5)?,
        rule: row.get(6)?,
        need: row.get(7)?,
        destructive: row.get(8)?,
        session: row.get(9)?,
        message: row.get(10)?,
        opened_at: unsigned(row.get(11)?),
        until: unsigned(row.get(12)?),
    })
}

/// Leaves an answer for the owner of an open prompt; false where there is no such prompt. A second answer replaces one that was
/// not taken.
pub(super) fn leave_answer(connection: &Connection, answered: &Answered, now: Wall) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO answers (prompt, answer, by, at) SELECT id, ?2, ?3, ?4 FROM prompts WHERE id = ?1 AND until > ?4 \
               ON CONFLICT (prompt) DO UPDATE SET answer = excluded.answer, by = excluded.by, at = excluded.at, outcome = NULL";
    let Answered { prompt, answer, by } = answered;
    Ok(connection.execute(sql, params![prompt, answer, by, signed(now)])? == 1)
}

/// What the owner of the prompt made of an answer, once it has.
pub(super) fn outcome(connection: &Connection, prompt: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT outcome FROM answers WHERE prompt = ?1";
    Ok(connection.query_row(sql, [prompt], |row| row.get(0)).optional()?.flatten())
}

/// Answers for this process's prompts.
pub(super) fn answers(connection: &Connection, owner: &str) -> rusqlite::Result<Vec<Answered>> {
    let sql = "SELECT answers.prompt, answers.answer, answers.by FROM answers JOIN prompts ON prompts.id = answers.prompt \
               WHERE prompts.owner = ?1 AND answers.outcome IS NULL ORDER BY answers.at, answers.prompt";
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &Row<'_>| Ok(Answered { prompt: row.get(0)?, answer: row.get(1)?, by: row.get(2)? });
    statement.query_map([owner], read)?.collect()
}

/// Tells whoever answered what came of it.
pub(super) fn tell(connection: &Connection, prompt: &str, outcome: &str) -> rusqlite::Result<()> {
    connection.execute("UPDATE answers SET outcome = ?2 WHERE prompt = ?1", [prompt, outcome]).map(|_| ())
}

/// Drops what is over, also of processes that did not live to do it.
pub(super) fn sweep(connection: &Connection, now: Wall) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM prompts WHERE until <= ?1", [signed(now)])?;
    connection.execute("DELETE FROM answers WHERE at <= ?1", [signed(now.saturating_sub(KEPT))]).map(|_| ())
}
