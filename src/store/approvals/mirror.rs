//! Open prompts as rows, so that a process without the prompt can show and answer it: `headend approvals` without a daemon,
//! or a daemon beside a `headend stdio` of its own. The message, which has the arguments in it, is sealed.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::rows::{signed, unsigned};
use crate::policy::consent::{Prompt, Wall};
use crate::store::db::no_key;
use crate::store::seal::{Opened, Seals};

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
            kind: asked.kind.into_str().to_owned(),
            item: asked.item.to_string(),
            exposed: prompt.shown.exposed.clone(),
            rule: asked.rule.to_string(),
            need: asked.need.into_str().to_owned(),
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

/// The place of a prompt's message.
fn place(id: &str) -> [&str; 3] {
    ["prompts", "message", id]
}

fn sealed(seals: &Seals, id: &str, message: &str) -> rusqlite::Result<String> {
    seals.seal(&place(id), message).ok_or_else(no_key)
}

/// Seals messages that were written before there was a key, or with an earlier key. True where there was one.
pub(super) fn reseal(connection: &Connection, seals: &Seals) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare("SELECT id, message FROM prompts")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut any = false;
    for (id, stored) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
        let message = match seals.open(&place(&id), &stored) {
            Opened::Clear => stored,
            Opened::Text { text, current: false } => text,
            Opened::Text { current: true, .. } | Opened::Lost => continue,
        };
        connection.execute("UPDATE prompts SET message = ?2 WHERE id = ?1", [&id, &sealed(seals, &id, &message)?])?;
        any = true;
    }
    Ok(any)
}

pub(super) fn insert(connection: &Connection, owner: &str, row: &PromptRow, seals: &Seals) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO prompts (id, owner, caller, upstream, kind, item, exposed, rule, need, destructive, \
               session, message, opened_at, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let PromptRow { id, caller, upstream, kind, item, exposed, rule, need, destructive, session, .. } = row;
    let (opened, until) = (signed(row.opened_at), signed(row.until));
    let message = sealed(seals, id, &row.message)?;
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
        message,
        opened,
        until
    ];
    connection.prepare_cached(sql)?.execute(values).map(|_| ())
}

/// The prompt is closed.
pub(super) fn delete(connection: &Connection, id: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM prompts WHERE id = ?1")?.execute([id]).map(|_| ())
}

/// The open prompts of all processes, the oldest first. One whose message does not open is as if it were not there.
pub(super) fn list(connection: &Connection, now: Wall, seals: &Seals) -> rusqlite::Result<Vec<PromptRow>> {
    let sql = "SELECT id, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at, until \
               FROM prompts WHERE until > ?1 ORDER BY opened_at, id";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([signed(now)], |row| read(row, seals))?;
    rows.filter_map(Result::transpose).collect()
}

fn read(row: &Row<'_>, seals: &Seals) -> rusqlite::Result<Option<PromptRow>> {
    let (id, stored): (String, String) = (row.get(0)?, row.get(10)?);
    let message = match seals.open(&place(&id), &stored) {
        Opened::Clear => stored,
        Opened::Text { text, .. } => text,
        Opened::Lost => return Ok(None),
    };
    Ok(Some(PromptRow {
        id,
        caller: row.get(1)?,
        upstream: row.get(2)?,
        kind: row.get(3)?,
        item: row.get(4)?,
        exposed: row.get(5)?,
        rule: row.get(6)?,
        need: row.get(7)?,
        destructive: row.get(8)?,
        session: row.get(9)?,
        message,
        opened_at: unsigned(row.get(11)?),
        until: unsigned(row.get(12)?),
    }))
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
