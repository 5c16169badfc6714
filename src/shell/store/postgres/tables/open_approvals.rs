//! Open approvals and the answers of operators: the tables `approvals`, `approval_owners` and
//! `answers`.

use strum::VariantArray as _;
use tokio_postgres::Row;

use super::meta;
use crate::policy::consent::{ApprovalView, SharedAnswer, SteadySeconds};
use crate::policy::{ApprovalEvidence, Caller, Digest};
use crate::store::port::{
    AnsweredElsewhere, DAEMON, DbError, DbOperation, ForeignAnswer, OpenApprovalOperations, OwnedApproval, SettingOwner,
};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::{failed, no_key};
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};
use crate::store::seal::{Seals, UnsealedValue};

/// Time for which unclaimed answers, and expired approvals of other replicas' daemons, are kept, in
/// seconds.
const KEPT: SteadySeconds = 3600;
/// Condition of approvals that no process has open.
const WITHOUT_OWNER: &str = "NOT EXISTS (SELECT 1 FROM approval_owners WHERE approval = id)";
/// Columns of a row of the list.
const COLUMNS: &str =
    "id, caller, upstream, kind, item, exposed, rule, need, destructive, session, message, opened_at, until";

impl OpenApprovalOperations for Postgres {
    fn enter_approval(&self, owner: String, view: ApprovalView, action: Digest) -> DbOperation<'_, String> {
        let (seals, replica, action) = (self.seals.clone(), self.replica.to_string(), action.hex());
        self.announce(async move |session: &PostgresSession| {
            let shared = share(session, &owner, &view, &action).await?;
            if shared.is_none() {
                insert(session, &view, &action, &seals).await?;
            }
            let id = shared.unwrap_or(view.id);
            let sql =
                "INSERT INTO approval_owners (approval, owner, replica) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            session.execute(sql, &[&id, &owner, &replica]).await?;
            meta::saw(session, view.opened_at).await?;
            Ok(id)
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

    fn remove_approval(&self, approval: OwnedApproval, answer: Option<SharedAnswer>) -> DbOperation<'_, ()> {
        self.announce(async move |session: &PostgresSession| {
            if !end(session, &approval, answer.as_ref()).await? {
                end(session, &approval, None).await?;
            }
            Ok(())
        })
    }

    fn remove_approvals_of_daemons(&self, owner: String) -> DbOperation<'_, Vec<ApprovalView>> {
        let replica = self.replica.to_string();
        self.announce(async move |session: &PostgresSession| {
            let sql = "DELETE FROM approval_owners WHERE starts_with(owner, $1) AND replica = $2 AND owner <> $3";
            session.execute(sql, &[&DAEMON, &replica, &owner]).await?;
            let sql = format!("DELETE FROM approvals WHERE {WITHOUT_OWNER} RETURNING {COLUMNS}");
            session.rows(&sql, &[]).await?.iter().map(|row| row_of(row, String::new())).collect()
        })
    }

    fn listed_approvals(&self, now: SteadySeconds, with_daemons: bool) -> DbOperation<'_, Vec<ApprovalView>> {
        let (seals, replica) = (self.seals.clone(), self.replica.to_string());
        self.read(async move |session: &PostgresSession| {
            // The daemons of other replicas may run, whether or not this one's does.
            let sql = format!(
                "SELECT {COLUMNS} FROM approvals WHERE until > $1 AND denied IS NULL AND ($2 OR EXISTS (SELECT 1 \
                 FROM approval_owners WHERE approval = id AND (NOT starts_with(owner, $3) OR replica <> $4))) \
                 ORDER BY opened_at, id"
            );
            let now = signed(meta::not_before(session, now).await?);
            let rows = session.rows(&sql, &[&now, &with_daemons, &DAEMON, &replica]).await?;
            rows.iter().filter_map(|row| read(row, &seals).transpose()).collect()
        })
    }

    fn leave_answer(&self, answered: ForeignAnswer, now: SteadySeconds) -> DbOperation<'_, bool> {
        self.announce(async move |session: &PostgresSession| {
            let sql = "INSERT INTO answers (approval, answer, by, at, taken) SELECT id, $2, $3, $4, false FROM approvals \
                       WHERE id = $1 AND until > $4 AND denied IS NULL ON CONFLICT (approval) DO UPDATE SET \
                       answer = excluded.answer, by = excluded.by, at = excluded.at, taken = false, outcome = NULL";
            let now = signed(meta::not_before(session, now).await?);
            let ForeignAnswer { approval, answer, by } = answered;
            Ok(session.execute(sql, &[&approval, &answer, &by, &now]).await? == 1)
        })
    }

    fn take_answer(&self, approval: String) -> DbOperation<'_, bool> {
        self.write(async move |session: &PostgresSession| {
            let sql = "SELECT 1 FROM answers WHERE approval = $1 AND taken";
            if session.row(sql, &[&approval]).await?.is_some() {
                return Ok(false);
            }
            session.execute("UPDATE answers SET taken = true WHERE approval = $1", &[&approval]).await?;
            Ok(true)
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

/// Returns the open approval of another process about the action, which then lasts as long as this
/// one would.
async fn share(
    session: &PostgresSession,
    owner: &str,
    view: &ApprovalView,
    action: &str,
) -> Result<Option<String>, DbError> {
    let (now, until) = (signed(view.opened_at), signed(view.until));
    session.execute("UPDATE approvals SET action = NULL WHERE action = $1 AND until <= $2", &[&action, &now]).await?;
    let sql = "UPDATE approvals SET until = greatest(until, $4) WHERE action = $1 AND denied IS NULL AND id <> $2 \
               AND NOT EXISTS (SELECT 1 FROM approval_owners WHERE approval = id AND owner = $3) RETURNING id";
    let shared = session.row(sql, &[&action, &view.id, &owner, &until]).await?;
    shared.map(|row| column(&row, "id")).transpose()
}

/// Enters an approval, or its present text and end if it is there.
async fn insert(session: &PostgresSession, view: &ApprovalView, action: &str, seals: &Seals) -> Result<(), DbError> {
    let sql = format!(
        "INSERT INTO approvals ({COLUMNS}, details, action) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
         $14, (SELECT $15 WHERE NOT EXISTS (SELECT 1 FROM approvals WHERE action = $15 AND denied IS NULL))) \
         ON CONFLICT (id) DO UPDATE SET message = excluded.message, details = excluded.details, \
         until = greatest(approvals.until, excluded.until)"
    );
    let message = sealed(seals, "message", &view.id, &view.message)?;
    let details = serde_json::to_string(view).map_err(|error| failed(error.to_string()))?;
    let details = sealed(seals, "details", &view.id, &details)?;
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
                &details,
                &action,
            ],
        )
        .await
        .map(drop)
}

/// Ends an approval for one of its owners, and by an answer for all. Changes nothing and returns
/// false if another answer was first.
pub(super) async fn end(
    session: &PostgresSession,
    approval: &OwnedApproval,
    answer: Option<&SharedAnswer>,
) -> Result<bool, DbError> {
    let OwnedApproval { id, owner } = approval;
    let sql = "SELECT 1 FROM approvals WHERE id = $1 AND denied IS NOT NULL";
    if answer.is_some() && session.row(sql, &[id]).await?.is_some() {
        return Ok(false);
    }
    session.execute("DELETE FROM approval_owners WHERE approval = $1 AND owner = $2", &[id, owner]).await?;
    session.execute(&format!("DELETE FROM approvals WHERE id = $1 AND {WITHOUT_OWNER}"), &[id]).await?;
    if let Some(SharedAnswer { is_denial, evidence, by }) = answer {
        let sql = "UPDATE approvals SET denied = $2, evidence = $3, by = $4 WHERE id = $1";
        session.execute(sql, &[id, is_denial, &evidence.into_str(), by]).await?;
    }
    Ok(true)
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

/// Answers for the approvals of the process `owner` that no process has taken.
pub(super) async fn answers(session: &PostgresSession, owner: &str) -> Result<Vec<ForeignAnswer>, DbError> {
    let sql = "SELECT answers.approval, answers.answer, answers.by FROM answers JOIN approval_owners USING (approval) \
               WHERE owner = $1 AND NOT taken AND outcome IS NULL ORDER BY at, approval";
    let read = |row| {
        Ok(ForeignAnswer { approval: column(row, "approval")?, answer: column(row, "answer")?, by: column(row, "by")? })
    };
    session.rows(sql, &[&owner]).await?.iter().map(read).collect()
}

/// Approvals of the process `owner` that were answered on other replicas.
pub(super) async fn answered_elsewhere(
    session: &PostgresSession,
    owner: &str,
) -> Result<Vec<AnsweredElsewhere>, DbError> {
    let sql = "SELECT id, denied, evidence, by FROM approvals JOIN approval_owners ON approval = id \
               WHERE owner = $1 AND denied IS NOT NULL ORDER BY id";
    let read = |row| {
        // An evidence that this program does not know counts as the least.
        let evidence = column::<&str>(row, "evidence")?.parse().unwrap_or(ApprovalEvidence::Client);
        let answer = SharedAnswer { is_denial: column(row, "denied")?, evidence, by: column(row, "by")? };
        Ok(AnsweredElsewhere { approval: column(row, "id")?, answer })
    };
    session.rows(sql, &[&owner]).await?.iter().map(read).collect()
}

/// Drops expired rows, also those of processes that ended without doing so. The next daemon of a
/// replica ends and records those of its daemons, if it comes soon.
pub(super) async fn sweep(session: &PostgresSession, now: SteadySeconds) -> Result<(), DbError> {
    let old = signed(now.saturating_sub(KEPT));
    let sql = "DELETE FROM approvals WHERE until <= $1 AND (until <= $3 OR NOT EXISTS (SELECT 1 FROM approval_owners \
               WHERE approval = id AND starts_with(owner, $2)))";
    session.execute(sql, &[&signed(now), &DAEMON, &old]).await?;
    session.execute("DELETE FROM answers WHERE at <= $1", &[&old]).await.map(drop)
}
