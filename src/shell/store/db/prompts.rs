//! Open prompts and the answers of operators: tables `prompts` and `answers`, so that a process without the prompt can show and answer
//! it: `headend approvals` without a daemon, or a daemon beside a `headend stdio` of its own.
//!
//! The process that opened a prompt is its owner: it alone enters and removes it, judges the answers to it, and says what came of
//! them. Every process may leave an answer. Message and details, which have the arguments in them, are sealed.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use strum::VariantArray as _;

use super::{Db, Operation, Work, meta, no_key, number, signed, unsigned};
use crate::policy::consent::{ApprovalView, Wall};
use crate::policy::{Caller, Digest};
use crate::store::approvals::{Answered, DAEMON, Keeper};
use crate::store::seal::{Opened, Seals};

/// How long unclaimed answers are kept, in seconds.
const KEPT: Wall = 3600;
/// Columns of a row of the list.
const COLUMNS: &str =
    "id, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at, until";

impl Db {
    /// Enters a prompt of the process `owner`.
    pub fn enter_prompt(&self, owner: String, view: ApprovalView) -> Operation<'_, impl Work<Out = ()>> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            insert(connection, &owner, &view, &seals)?;
            meta::saw(connection, view.opened_at)
        })
    }

    /// Everything that is kept about an open approval of any process; `None` where there is none,
    /// it does not open, or a process of an earlier release wrote it.
    pub fn prompt_details(&self, id: String) -> Operation<'_, impl Work<Out = Option<ApprovalView>>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = "SELECT details FROM prompts WHERE id = ?1";
            let stored = connection.query_row(sql, [&id], |row| row.get::<_, Option<String>>(0)).optional()?.flatten();
            let text = stored.and_then(|stored| seals.opened(&place("details", &id), stored));
            let view = text.and_then(|text| serde_json::from_str::<ApprovalView>(&text).ok());
            Ok(view.filter(|view| view.id == id))
        })
    }

    /// Removes a closed prompt.
    pub fn remove_prompt(&self, id: String) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| delete(connection, &id))
    }

    /// Removes the open approvals of all daemons, and returns them with an empty message. The
    /// caller has the lock of the state directory and opened none itself.
    pub fn remove_prompts_of_daemons(&self) -> Operation<'_, impl Work<Out = Vec<ApprovalView>>> {
        self.write(move |connection| {
            let sql = format!("DELETE FROM prompts WHERE substr(owner, 1, length(?1)) = ?1 RETURNING {COLUMNS}");
            let mut statement = connection.prepare(&sql)?;
            let rows = statement.query_map([DAEMON], |row| row_of(row, String::new()))?;
            rows.collect()
        })
    }

    /// The open prompts of all processes, oldest first. One whose message does not open is left out.
    pub fn prompts(&self, now: Wall) -> Operation<'_, impl Work<Out = Vec<ApprovalView>>> {
        self.prompts_of(now, true)
    }

    /// The same without those of daemons, for commands that know that no daemon runs.
    pub fn prompts_without_daemons(&self, now: Wall) -> Operation<'_, impl Work<Out = Vec<ApprovalView>>> {
        self.prompts_of(now, false)
    }

    fn prompts_of(&self, now: Wall, with_daemons: bool) -> Operation<'_, impl Work<Out = Vec<ApprovalView>>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM prompts WHERE until > ?1 AND (?2 OR substr(owner, 1, length(?3)) <> ?3) \
                 ORDER BY opened_at, id"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let now = signed(meta::not_before(connection, now)?);
            let rows = statement.query_map(params![now, with_daemons, DAEMON], |row| read(row, &seals))?;
            rows.filter_map(Result::transpose).collect()
        })
    }

    /// Leaves an answer for the owner of an open prompt; false where there is no such prompt. A second answer replaces one that was
    /// not taken.
    pub fn leave_answer(&self, answered: Answered, now: Wall) -> Operation<'_, impl Work<Out = bool>> {
        self.write(move |connection| {
            let sql = "INSERT INTO answers (prompt, answer, by, at) SELECT id, ?2, ?3, ?4 FROM prompts WHERE id = ?1 AND until > ?4 \
                       ON CONFLICT (prompt) DO UPDATE SET answer = excluded.answer, by = excluded.by, at = excluded.at, \
                       outcome = NULL";
            let now = signed(meta::not_before(connection, now)?);
            let Answered { prompt, answer, by } = answered;
            Ok(connection.execute(sql, params![prompt, answer, by, now])? == 1)
        })
    }

    /// The owner's verdict about an answer, once there is one.
    pub fn outcome(&self, prompt: String) -> Operation<'_, impl Work<Out = Option<String>>> {
        self.read(move |connection| {
            let sql = "SELECT outcome FROM answers WHERE prompt = ?1";
            Ok(connection.query_row(sql, [prompt], |row| row.get(0)).optional()?.flatten())
        })
    }

    /// Keeps a gateway's setting for the operator's commands.
    pub fn keep_operator(&self, keeper: Keeper, setting: u64) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| number::put(connection, keeper.into_str(), setting))
    }

    /// The strictest setting of the gateways that ran last, 0 where there was none.
    pub fn operator(&self) -> Operation<'_, impl Work<Out = u64>> {
        self.read(|connection| {
            let stricter = |strictest: u64, keeper: &Keeper| {
                number::number(connection, keeper.into_str()).map(|setting| strictest.max(setting))
            };
            Keeper::VARIANTS.iter().try_fold(0, stricter)
        })
    }

    /// Reports the outcome to the process that left an answer.
    pub fn tell_outcome(&self, prompt: String, outcome: String) -> Operation<'_, impl Work<Out = ()>> {
        let sql = "UPDATE answers SET outcome = ?2 WHERE prompt = ?1";
        self.write(move |connection| connection.execute(sql, [prompt, outcome]).map(drop))
    }
}

/// The place of a prompt's message or details.
const fn place<'p>(column: &'p str, id: &'p str) -> [&'p str; 3] {
    ["prompts", column, id]
}

fn sealed(seals: &Seals, column: &str, id: &str, text: &str) -> rusqlite::Result<String> {
    seals.seal(&place(column, id), text).ok_or_else(no_key)
}

/// Seals messages and details that were written before there was a key, or with an earlier key. True where there was one.
pub(super) fn reseal(connection: &Connection, seals: &Seals) -> rusqlite::Result<bool> {
    let mut any = false;
    for column in ["message", "details"] {
        let mut statement =
            connection.prepare(&format!("SELECT id, {column} FROM prompts WHERE {column} IS NOT NULL"))?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let update = format!("UPDATE prompts SET {column} = ?2 WHERE id = ?1");
        for (id, stored) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
            let text = match seals.open(&place(column, &id), &stored) {
                Opened::Clear => stored,
                Opened::Text { text, current: false } => text,
                Opened::Text { current: true, .. } | Opened::Lost => continue,
            };
            connection.execute(&update, [&id, &sealed(seals, column, &id, &text)?])?;
            any = true;
        }
    }
    Ok(any)
}

fn insert(connection: &Connection, owner: &str, view: &ApprovalView, seals: &Seals) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO prompts (id, owner, caller, upstream, kind, item, exposed, rule, need, destructive, \
               session, message, opened_at, until, details) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    let ApprovalView { id, caller, upstream, kind, item, exposed, rule, min_evidence, destructive, session, .. } = view;
    let (opened, until) = (signed(view.opened_at), signed(view.until));
    let message = sealed(seals, "message", id, &view.message)?;
    let details = serde_json::to_string(view).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let details = sealed(seals, "details", id, &details)?;
    let values = params![
        id,
        owner,
        caller.key(),
        upstream,
        kind,
        item,
        exposed,
        rule,
        min_evidence,
        destructive,
        session,
        message,
        opened,
        until,
        details
    ];
    connection.prepare_cached(sql)?.execute(values).map(|_| ())
}

pub(super) fn delete(connection: &Connection, id: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM prompts WHERE id = ?1")?.execute([id]).map(|_| ())
}

fn read(row: &Row<'_>, seals: &Seals) -> rusqlite::Result<Option<ApprovalView>> {
    let (id, stored): (String, String) = (row.get(0)?, row.get(10)?);
    seals.opened(&place("message", &id), stored).map(|message| row_of(row, message)).transpose()
}

/// Reads [`COLUMNS`] but the message, which is sealed.
fn row_of(row: &Row<'_>, message: String) -> rusqlite::Result<ApprovalView> {
    Ok(ApprovalView {
        id: row.get(0)?,
        caller: caller(row)?,
        upstream: row.get(2)?,
        kind: row.get(3)?,
        item: row.get(4)?,
        exposed: row.get(5)?,
        rule: row.get(6)?,
        min_evidence: row.get(7)?,
        destructive: row.get(8)?,
        session: row.get(9)?,
        digest: Digest::of(message.as_bytes()).hex(),
        message,
        opened_at: unsigned(row.get(11)?),
        until: unsigned(row.get(12)?),
        ..ApprovalView::default()
    })
}

/// The caller of a row, by its name if a process of version 10 wrote it that still runs.
fn caller(row: &Row<'_>) -> rusqlite::Result<Caller> {
    let text: String = row.get(1)?;
    Ok(Caller::from_key(&text).unwrap_or_else(|| Caller::named(&text)))
}

/// Answers for the prompts of the process `owner` that it has not judged.
pub(super) fn answers(connection: &Connection, owner: &str) -> rusqlite::Result<Vec<Answered>> {
    let sql = "SELECT answers.prompt, answers.answer, answers.by FROM answers JOIN prompts ON prompts.id = answers.prompt \
               WHERE prompts.owner = ?1 AND answers.outcome IS NULL ORDER BY answers.at, answers.prompt";
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &Row<'_>| Ok(Answered { prompt: row.get(0)?, answer: row.get(1)?, by: row.get(2)? });
    statement.query_map([owner], read)?.collect()
}

/// Drops expired rows, also those of processes that ended without doing so. The next daemon ends
/// and records those of daemons.
pub(super) fn sweep(connection: &Connection, now: Wall) -> rusqlite::Result<()> {
    let sql = "DELETE FROM prompts WHERE until <= ?1 AND substr(owner, 1, length(?2)) <> ?2";
    connection.execute(sql, params![signed(now), DAEMON])?;
    connection.execute("DELETE FROM answers WHERE at <= ?1", [signed(now.saturating_sub(KEPT))]).map(|_| ())
}
