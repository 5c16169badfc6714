//! Open approvals and the answers of operators: the tables `approvals` and `answers`.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use strum::VariantArray as _;

use super::meta;
use crate::policy::consent::{ApprovalView, SharedAnswer, SteadySeconds};
use crate::policy::{Caller, Digest};
use crate::store::port::{DAEMON, DbOperation, ForeignAnswer, OpenApprovalOperations, OwnedApproval, SettingOwner};
use crate::store::seal::{Seals, UnsealedValue};
use crate::store::sqlite::{Sqlite, no_key, signed, unsigned};

/// Time for which unclaimed answers are kept, in seconds.
const KEPT: SteadySeconds = 3600;
/// Columns of a row of the list.
const COLUMNS: &str =
    "id, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at, until";

impl OpenApprovalOperations for Sqlite {
    fn enter_approval(&self, owner: String, view: ApprovalView, _action: Digest) -> DbOperation<'_, String> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            insert(connection, &owner, &view, &seals)?;
            meta::saw(connection, view.opened_at)?;
            Ok(view.id)
        })
    }

    fn approval_details(&self, id: String) -> DbOperation<'_, Option<ApprovalView>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = "SELECT details FROM approvals WHERE id = ?1";
            let stored = connection.query_row(sql, [&id], |row| row.get::<_, Option<String>>(0)).optional()?.flatten();
            let text = stored.and_then(|stored| seals.opened(&place("details", &id), stored));
            let view = text.and_then(|text| serde_json::from_str::<ApprovalView>(&text).ok());
            Ok(view.filter(|view| view.id == id))
        })
    }

    fn remove_approval(&self, approval: OwnedApproval, _answer: Option<SharedAnswer>) -> DbOperation<'_, ()> {
        self.write(move |connection| delete(connection, &approval.id))
    }

    fn remove_approvals_of_daemons(&self, owner: String) -> DbOperation<'_, Vec<ApprovalView>> {
        self.write(move |connection| {
            let of_others = "substr(owner, 1, length(?1)) = ?1 AND owner <> ?2";
            let mut statement =
                connection.prepare(&format!("DELETE FROM approvals WHERE {of_others} RETURNING {COLUMNS}"))?;
            let rows = statement.query_map([DAEMON, &owner], |row| row_of(row, String::new()))?;
            rows.collect()
        })
    }

    fn listed_approvals(&self, now: SteadySeconds, with_daemons: bool) -> DbOperation<'_, Vec<ApprovalView>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM approvals WHERE until > ?1 AND (?2 OR substr(owner, 1, length(?3)) <> ?3) \
                 ORDER BY opened_at, id"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let now = signed(meta::not_before(connection, now)?);
            let rows = statement.query_map(params![now, with_daemons, DAEMON], |row| read(row, &seals))?;
            rows.filter_map(Result::transpose).collect()
        })
    }

    fn leave_answer(&self, answered: ForeignAnswer, now: SteadySeconds) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            let sql = "INSERT INTO answers (approval, answer, by, at) SELECT id, ?2, ?3, ?4 FROM approvals WHERE id = ?1 AND until > ?4 \
                       ON CONFLICT (approval) DO UPDATE SET answer = excluded.answer, by = excluded.by, at = excluded.at, \
                       outcome = NULL";
            let now = signed(meta::not_before(connection, now)?);
            let ForeignAnswer { approval, answer, by } = answered;
            Ok(connection.execute(sql, params![approval, answer, by, now])? == 1)
        })
    }

    fn take_answer(&self, _approval: String) -> DbOperation<'_, bool> {
        // An approval has one owner.
        self.read(|_| Ok(true))
    }

    fn outcome(&self, approval: String) -> DbOperation<'_, Option<String>> {
        self.read(move |connection| {
            let sql = "SELECT outcome FROM answers WHERE approval = ?1";
            Ok(connection.query_row(sql, [approval], |row| row.get(0)).optional()?.flatten())
        })
    }

    fn keep_operator(&self, keeper: SettingOwner, setting: u64) -> DbOperation<'_, ()> {
        self.write(move |connection| meta::put(connection, keeper.into_str(), setting))
    }

    fn operator(&self) -> DbOperation<'_, u64> {
        self.read(|connection| {
            let stricter = |strictest: u64, keeper: &SettingOwner| {
                meta::number(connection, keeper.into_str()).map(|setting| strictest.max(setting))
            };
            SettingOwner::VARIANTS.iter().try_fold(0, stricter)
        })
    }

    fn tell_outcome(&self, approval: String, outcome: String) -> DbOperation<'_, ()> {
        let sql = "UPDATE answers SET outcome = ?2 WHERE approval = ?1";
        self.write(move |connection| connection.execute(sql, [approval, outcome]).map(drop))
    }
}

/// Returns the place under which an approval's message or details are sealed. It has the table's
/// first name, under which stored values are sealed already.
pub(super) const fn place<'p>(column: &'p str, id: &'p str) -> [&'p str; 3] {
    ["prompts", column, id]
}

fn sealed(seals: &Seals, column: &str, id: &str, text: &str) -> rusqlite::Result<String> {
    seals.seal(&place(column, id), text).ok_or_else(no_key)
}

/// Seals messages and details that were written before there was a key, or with an earlier key.
/// Returns whether there were any.
pub(crate) fn reseal(connection: &Connection, seals: &Seals) -> rusqlite::Result<bool> {
    let mut any = false;
    for column in ["message", "details"] {
        let mut statement =
            connection.prepare(&format!("SELECT id, {column} FROM approvals WHERE {column} IS NOT NULL"))?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let update = format!("UPDATE approvals SET {column} = ?2 WHERE id = ?1");
        for (id, stored) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
            let text = match seals.open(&place(column, &id), &stored) {
                UnsealedValue::Clear => stored,
                UnsealedValue::Text { text, current: false } => text,
                UnsealedValue::Text { current: true, .. } | UnsealedValue::Lost => continue,
            };
            connection.execute(&update, [&id, &sealed(seals, column, &id, &text)?])?;
            any = true;
        }
    }
    Ok(any)
}

fn insert(connection: &Connection, owner: &str, view: &ApprovalView, seals: &Seals) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO approvals (id, owner, caller, upstream, kind, item, exposed, rule, need, destructive, \
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

pub(crate) fn delete(connection: &Connection, id: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM approvals WHERE id = ?1")?.execute([id]).map(|_| ())
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

/// Returns the caller of a row; only its name is known if a running process of version 10 wrote the
/// row.
fn caller(row: &Row<'_>) -> rusqlite::Result<Caller> {
    let text: String = row.get(1)?;
    Ok(Caller::from_key(&text).unwrap_or_else(|| Caller::named(&text)))
}

/// Answers for the approvals of the process `owner` that it has not judged.
pub(crate) fn answers(connection: &Connection, owner: &str) -> rusqlite::Result<Vec<ForeignAnswer>> {
    let sql = "SELECT answers.approval, answers.answer, answers.by FROM answers JOIN approvals ON approvals.id = answers.approval \
               WHERE approvals.owner = ?1 AND answers.outcome IS NULL ORDER BY answers.at, answers.approval";
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &Row<'_>| Ok(ForeignAnswer { approval: row.get(0)?, answer: row.get(1)?, by: row.get(2)? });
    statement.query_map([owner], read)?.collect()
}

/// Drops expired rows, also those of processes that ended without doing so. The next daemon ends
/// and records those of daemons.
pub(crate) fn sweep(connection: &Connection, now: SteadySeconds) -> rusqlite::Result<()> {
    let sql = "DELETE FROM approvals WHERE until <= ?1 AND substr(owner, 1, length(?2)) <> ?2";
    connection.execute(sql, params![signed(now), DAEMON])?;
    connection.execute("DELETE FROM answers WHERE at <= ?1", [signed(now.saturating_sub(KEPT))]).map(|_| ())
}
