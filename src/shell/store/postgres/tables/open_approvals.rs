//! Open approvals and the answers of operators: the tables `approvals` and `answers`.

use strum::VariantArray as _;
use tokio_postgres::Row;

use super::meta;
use crate::policy::consent::{ApprovalView, SteadySeconds};
use crate::policy::{Caller, Digest};
use crate::store::port::{DAEMON, DbError, DbOperation, ForeignAnswer, OpenApprovalOperations, SettingOwner};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::{failed, no_key};
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};
use crate::store::seal::{Seals, UnsealedValue};

/// Time for which unclaimed answers, and expired approvals of other replicas' daemons, are kept, in
/// seconds.
const KEPT: SteadySeconds = 3600;
/// Columns of a row of the list.
const COLUMNS: &str =
    "id, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at, until";

impl OpenApprovalOperations for Postgres {
    fn enter_approval(&self, owner: String, view: ApprovalView) -> DbOperation<'_, ()> {
        let (seals, replica) = (self.seals.clone(), self.replica.to_string());
        self.announce(async move |session: &PostgresSession| {
            insert(session, &owner, &replica, &view, &seals).await?;
            meta::saw(session, view.opened_at).await
        })
    }

    fn approval_details(&self, id: String) -> DbOperation<'_, Option<ApprovalView>> {
        let seals = self.seals.clone();
        self.read(async move |session: &PostgresSession| {
            let Some(row) = session.row("SELECT details FROM approvals WHERE id = $1", &[&id]).await? else {
                return Ok(None);
            };
            let text = seals.opened(&place("details", &id), column(&row, "details")?);
            let view = text.and_then(|text| serde_json::from_str::<ApprovalView>(&text).ok());
            Ok(view.filter(|view| view.id == id))
        })
    }

    fn remove_approval(&self, id: String) -> DbOperation<'_, ()> {
        self.announce(async move |session: &PostgresSession| delete(session, &id).await)
    }

    fn remove_approvals_of_daemons(&self, owner: String) -> DbOperation<'_, Vec<ApprovalView>> {
        let replica = self.replica.to_string();
        self.announce(async move |session: &PostgresSession| {
            let sql = format!(
                "DELETE FROM approvals WHERE starts_with(owner, $1) AND replica = $2 AND owner <> $3 RETURNING {COLUMNS}"
            );
            let rows = session.rows(&sql, &[&DAEMON, &replica, &owner]).await?;
            rows.iter().map(|row| row_of(row, String::new())).collect()
        })
    }

    fn listed_approvals(&self, now: SteadySeconds, with_daemons: bool) -> DbOperation<'_, Vec<ApprovalView>> {
        let (seals, replica) = (self.seals.clone(), self.replica.to_string());
        self.read(async move |session: &PostgresSession| {
            // The daemons of other replicas may run, whether or not this one's does.
            let sql = format!(
                "SELECT {COLUMNS} FROM approvals WHERE until > $1 AND ($2 OR NOT starts_with(owner, $3) OR replica <> $4) \
                 ORDER BY opened_at, id"
            );
            let now = signed(meta::not_before(session, now).await?);
            let rows = session.rows(&sql, &[&now, &with_daemons, &DAEMON, &replica]).await?;
            rows.iter().filter_map(|row| read(row, &seals).transpose()).collect()
        })
    }

    fn leave_answer(&self, answered: ForeignAnswer, now: SteadySeconds) -> DbOperation<'_, bool> {
        self.announce(async move |session: &PostgresSession| {
            let sql = "INSERT INTO answers (approval, answer, by, at) SELECT id, $2, $3, $4 FROM approvals \
                       WHERE id = $1 AND until > $4 ON CONFLICT (approval) DO UPDATE SET answer = excluded.answer, \
                       by = excluded.by, at = excluded.at, outcome = NULL";
            let now = signed(meta::not_before(session, now).await?);
            let ForeignAnswer { approval, answer, by } = answered;
            Ok(session.execute(sql, &[&approval, &answer, &by, &now]).await? == 1)
        })
    }

    fn outcome(&self, approval: String) -> DbOperation<'_, Option<String>> {
        self.read(async move |session: &PostgresSession| {
            let row = session.row("SELECT outcome FROM answers WHERE approval = $1", &[&approval]).await?;
            row.map_or(Ok(None), |row| column(&row, "outcome"))
        })
    }

    fn tell_outcome(&self, approval: String, outcome: String) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let sql = "UPDATE answers SET outcome = $2 WHERE approval = $1";
            session.execute(sql, &[&approval, &outcome]).await.map(drop)
        })
    }

    fn keep_operator(&self, keeper: SettingOwner, setting: u64) -> DbOperation<'_, ()> {
        let key = setting_key(keeper, &self.replica);
        self.write(async move |session: &PostgresSession| meta::put(session, &key, &setting.to_be_bytes()).await)
    }

    fn operator(&self) -> DbOperation<'_, u64> {
        let keys: Vec<String> =
            SettingOwner::VARIANTS.iter().map(|keeper| setting_key(*keeper, &self.replica)).collect();
        self.read(async move |session: &PostgresSession| {
            let mut strictest = 0;
            for key in keys {
                strictest = meta::number(session, &key).await?.max(strictest);
            }
            Ok(strictest)
        })
    }
}

/// Returns the key in `meta` of a setting, which each replica has of its own.
fn setting_key(keeper: SettingOwner, replica: &str) -> String {
    format!("{}/{replica}", keeper.into_str())
}

/// Returns the place under which an approval's message or details are sealed.
const fn place<'p>(column: &'p str, id: &'p str) -> [&'p str; 3] {
    ["prompts", column, id]
}

fn sealed(seals: &Seals, column: &str, id: &str, text: &str) -> Result<String, DbError> {
    seals.seal(&place(column, id), text).ok_or_else(no_key)
}

/// Seals messages and details that were sealed with an earlier key.
pub(super) async fn reseal(session: &PostgresSession, seals: &Seals) -> Result<(), DbError> {
    for name in ["message", "details"] {
        for row in session.rows(&format!("SELECT id, {name} AS stored FROM approvals"), &[]).await? {
            let (id, stored): (String, &str) = (column(&row, "id")?, column(&row, "stored")?);
            if let UnsealedValue::Text { text, current: false } = seals.open(&place(name, &id), stored) {
                let update = format!("UPDATE approvals SET {name} = $2 WHERE id = $1");
                session.execute(&update, &[&id, &sealed(seals, name, &id, &text)?]).await?;
            }
        }
    }
    Ok(())
}

async fn insert(
    session: &PostgresSession,
    owner: &str,
    replica: &str,
    view: &ApprovalView,
    seals: &Seals,
) -> Result<(), DbError> {
    let sql = format!(
        "INSERT INTO approvals ({COLUMNS}, owner, replica, details) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
    );
    let message = sealed(seals, "message", &view.id, &view.message)?;
    let details = serde_json::to_string(view).map_err(|error| failed(error.to_string()))?;
    let details = sealed(seals, "details", &view.id, &details)?;
    delete(session, &view.id).await?;
    session
        .execute(
            &sql,
            &[
                &view.id,
                &view.caller.key().to_string(),
                &view.upstream,
                &view.kind,
                &view.item,
                &view.exposed,
                &view.rule,
                &view.min_evidence,
                &view.destructive,
                &view.session,
                &message,
                &signed(view.opened_at),
                &signed(view.until),
                &owner,
                &replica,
                &details,
            ],
        )
        .await
        .map(drop)
}

pub(super) async fn delete(session: &PostgresSession, id: &str) -> Result<(), DbError> {
    session.execute("DELETE FROM approvals WHERE id = $1", &[&id]).await.map(drop)
}

fn read(row: &Row, seals: &Seals) -> Result<Option<ApprovalView>, DbError> {
    let message = seals.opened(&place("message", column(row, "id")?), column(row, "message")?);
    message.map(|message| row_of(row, message)).transpose()
}

/// Reads [`COLUMNS`] but the message, which is sealed.
fn row_of(row: &Row, message: String) -> Result<ApprovalView, DbError> {
    let caller: &str = column(row, "caller")?;
    Ok(ApprovalView {
        id: column(row, "id")?,
        caller: Caller::from_key(caller).unwrap_or_else(|| Caller::named(caller)),
        upstream: column(row, "upstream")?,
        kind: column(row, "kind")?,
        item: column(row, "item")?,
        exposed: column(row, "exposed")?,
        rule: column(row, "rule")?,
        min_evidence: column(row, "need")?,
        destructive: column(row, "destructive")?,
        session: column(row, "session")?,
        digest: Digest::of(message.as_bytes()).hex(),
        message,
        opened_at: unsigned(row, "opened_at")?,
        until: unsigned(row, "until")?,
        ..ApprovalView::default()
    })
}

/// Answers for the approvals of the process `owner` that it has not judged.
pub(super) async fn answers(session: &PostgresSession, owner: &str) -> Result<Vec<ForeignAnswer>, DbError> {
    let sql = "SELECT answers.approval, answers.answer, answers.by FROM answers JOIN approvals ON approvals.id = answers.approval \
               WHERE approvals.owner = $1 AND answers.outcome IS NULL ORDER BY answers.at, answers.approval";
    let read = |row| {
        Ok(ForeignAnswer { approval: column(row, "approval")?, answer: column(row, "answer")?, by: column(row, "by")? })
    };
    session.rows(sql, &[&owner]).await?.iter().map(read).collect()
}

/// Drops expired rows, also those of processes that ended without doing so. The next daemon of a
/// replica ends and records those of its daemons, if it comes soon.
pub(super) async fn sweep(session: &PostgresSession, now: SteadySeconds) -> Result<(), DbError> {
    let old = signed(now.saturating_sub(KEPT));
    let sql = "DELETE FROM approvals WHERE until <= $1 AND (NOT starts_with(owner, $2) OR until <= $3)";
    session.execute(sql, &[&signed(now), &DAEMON, &old]).await?;
    session.execute("DELETE FROM answers WHERE at <= $1", &[&old]).await.map(drop)
}
