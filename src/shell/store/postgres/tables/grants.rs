//! Grants: the table `grants`. Every replica enters and ends grants. This file decides which of
//! several processes has the one use of a once-grant, by one conditional update.

use std::sync::Arc;

use tokio_postgres::Row;

use super::meta;
use crate::policy::consent::{
    ApprovalSubject, GrantArguments, GrantLifetime, GrantRow, ONCE_LIFE, SteadySeconds, parse_askable_kind,
};
use crate::policy::{ApprovalEvidence, Caller, Digest};
use crate::store::port::{DbError, DbOperation, ENDED_GRANT_LIFE, GrantOperations, RevokedGrant, UnwrittenGrantUses};
use crate::store::postgres::Postgres;
use crate::store::postgres::ends::WrittenEnd;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};

const COLUMNS: &str = "id, caller, upstream, kind, item, definition, launch, arguments, rule, need, destructive, scope, \
                       below, lifetime, until, evidence, by, granted_at, last_used, uses";

impl GrantOperations for Postgres {
    fn grants(&self) -> DbOperation<'_, Vec<GrantRow>> {
        self.read(async |session: &PostgresSession| live(session).await)
    }

    fn consume_grant(&self, id: Arc<str>, now: SteadySeconds) -> DbOperation<'_, bool> {
        self.announce(async move |session: &PostgresSession| {
            let sql = "UPDATE grants SET state = 'consumed', ended_at = $2, last_used = $2, uses = uses + 1 \
                       WHERE id = $1 AND state = 'live' AND lifetime = 'once'";
            Ok(session.execute(sql, &[&&*id, &signed(now)]).await? == 1)
        })
    }

    fn revoke_grants(&self, id: Option<String>, now: SteadySeconds) -> DbOperation<'_, Vec<RevokedGrant>> {
        let ends = Arc::clone(&self.ends);
        self.announce(async move |session: &PostgresSession| {
            let now = signed(meta::not_before(session, now).await?);
            let sql = format!(
                "UPDATE grants SET state = 'revoked', ended_at = $2 WHERE state = 'live' AND ($1 IS NULL OR id = $1) \
                 RETURNING {COLUMNS}"
            );
            let rows = session.rows(&sql, &[&id, &now]).await?;
            for row in &rows {
                ends.keep(WrittenEnd::Grant(column(row, "id")?));
            }
            rows.iter()
                .map(|row| Ok(RevokedGrant { id: Arc::from(column::<&str>(row, "id")?), row: readable(row) }))
                .collect()
        })
    }

    fn invalidate_grants(&self, ids: Vec<Arc<str>>, now: SteadySeconds) -> DbOperation<'_, ()> {
        self.announce(async move |session: &PostgresSession| {
            let ids: Vec<String> = ids.iter().map(|id| id.to_string()).collect();
            let sql = "UPDATE grants SET state = 'invalidated', ended_at = $2 WHERE state = 'live' AND id = ANY($1)";
            session.execute(sql, &[&ids, &signed(now)]).await.map(drop)
        })
    }
}

/// Enters a live grant.
pub(super) async fn insert(session: &PostgresSession, row: &GrantRow) -> Result<(), DbError> {
    let GrantRow { id, asked, arguments, lifetime, evidence, by, granted_at, last_used, uses } = row;
    let sql = format!(
        "INSERT INTO grants ({COLUMNS}, state) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
         $16, $17, $18, $19, $20, 'live')"
    );
    let below = arguments.below().map(|below| below.text().to_string());
    session
        .execute(
            &sql,
            &[
                &&**id,
                &asked.caller.key().to_string(),
                &&*asked.upstream,
                &asked.kind.into_str(),
                &&*asked.item,
                &asked.definition.hex(),
                &asked.launch.hex(),
                &asked.arguments.hex(),
                &&*asked.rule,
                &asked.need.into_str(),
                &asked.destructive,
                &arguments.into_str(),
                &below,
                &lifetime.into_str(),
                &lifetime.until().map(signed),
                &evidence.into_str(),
                &&**by,
                &signed(*granted_at),
                &signed(*last_used),
                &signed(*uses),
            ],
        )
        .await
        .map(drop)
}

pub(super) async fn live(session: &PostgresSession) -> Result<Vec<GrantRow>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM grants WHERE state = 'live' ORDER BY granted_at, id");
    Ok(session.rows(&sql, &[]).await?.iter().filter_map(readable).collect())
}

/// Reads a grant; `None` if the row holds something that this program did not write. Such a row
/// covers nothing, and the others stay valid.
fn readable(row: &Row) -> Option<GrantRow> {
    let read = read(row).ok().flatten();
    if read.is_none() {
        tracing::warn!(
            grant = column::<&str>(row, "id").unwrap_or_default(),
            "a grant cannot be read and covers nothing"
        );
    }
    read
}

fn read(row: &Row) -> Result<Option<GrantRow>, DbError> {
    let text = |name: &str| column::<&str>(row, name);
    let digest = |name: &str| text(name).map(Digest::from_hex);
    let until = column::<Option<i64>>(row, "until")?.map(|until| u64::try_from(until).unwrap_or(0));
    let (definition, launch, arguments) = (digest("definition")?, digest("launch")?, digest("arguments")?);
    let (Some(definition), Some(launch), Some(digest_of_arguments)) = (definition, launch, arguments) else {
        return Ok(None);
    };
    let parts = (
        parse_askable_kind(text("kind")?),
        text("need")?.parse::<ApprovalEvidence>().ok(),
        Caller::from_key(text("caller")?),
        GrantArguments::parse(text("scope")?, column::<Option<&str>>(row, "below")?),
        GrantLifetime::parse(text("lifetime")?, until).filter(|lifetime| *lifetime != GrantLifetime::Session),
        text("evidence")?.parse::<ApprovalEvidence>().ok(),
    );
    let (Some(kind), Some(need), Some(caller), Some(arguments), Some(lifetime), Some(evidence)) = parts else {
        return Ok(None);
    };
    let asked = ApprovalSubject {
        caller,
        session: None,
        upstream: Arc::from(text("upstream")?),
        kind,
        item: Arc::from(text("item")?),
        definition,
        launch,
        arguments: digest_of_arguments,
        rule: Arc::from(text("rule")?),
        need,
        destructive: column(row, "destructive")?,
    };
    Ok(Some(GrantRow {
        id: Arc::from(text("id")?),
        asked,
        arguments,
        lifetime,
        evidence,
        by: Arc::from(text("by")?),
        granted_at: unsigned(row, "granted_at")?,
        last_used: unsigned(row, "last_used")?,
        uses: unsigned(row, "uses")?,
    }))
}

/// Adds uses, ends expired grants, removes old ones.
pub(super) async fn settle(
    session: &PostgresSession,
    used: &[UnwrittenGrantUses],
    unused: SteadySeconds,
    now: SteadySeconds,
) -> Result<(), DbError> {
    let sql =
        "UPDATE grants SET uses = uses + $2, last_used = greatest(last_used, $3) WHERE id = $1 AND state = 'live'";
    for one in used {
        session.execute(sql, &[&&*one.id, &signed(one.more), &signed(one.last_used)]).await?;
    }
    let sql = "UPDATE grants SET state = 'expired', ended_at = $1 WHERE state = 'live' AND ((until IS NOT NULL AND until <= $1) \
               OR greatest(last_used, granted_at) + CASE lifetime WHEN 'once' THEN $3 ELSE $2 END <= $1)";
    session.execute(sql, &[&signed(now), &signed(unused), &signed(unused.min(ONCE_LIFE))]).await?;
    let old = signed(now.saturating_sub(ENDED_GRANT_LIFE));
    session.execute("DELETE FROM grants WHERE state <> 'live' AND ended_at < $1", &[&old]).await.map(drop)
}
