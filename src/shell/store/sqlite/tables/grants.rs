//! Grants: the table `grants`. Every process enters and ends grants. This file decides which of
//! several processes has the one use of a once-grant, so finding it live and ending it must be one
//! operation.

use std::sync::Arc;

use rusqlite::{Connection, Row, named_params, params};

use super::meta;
use crate::policy::consent::{
    ApprovalSubject, GrantArguments, GrantLifetime, GrantRow, ONCE_LIFE, SteadySeconds, parse_askable_kind,
};
use crate::policy::{ApprovalEvidence, Caller, Digest};
use crate::store::port::{DbOperation, ENDED_GRANT_LIFE, GrantOperations, RevokedGrant, UnwrittenGrantUses};
use crate::store::sqlite::{Sqlite, signed, unsigned};

const COLUMNS: &str = "id, caller, upstream, kind, item, definition, launch, arguments, rule, need, destructive, scope, \
                       below, lifetime, until, evidence, by, granted_at, last_used, uses";

impl GrantOperations for Sqlite {
    fn grants(&self) -> DbOperation<'_, Vec<GrantRow>> {
        self.read(live)
    }

    fn consume_grant(&self, id: Arc<str>, now: SteadySeconds) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            let sql = "UPDATE grants SET state = 'consumed', ended_at = ?2, last_used = ?2, uses = uses + 1 \
                       WHERE id = ?1 AND state = 'live' AND lifetime = 'once'";
            Ok(connection.prepare_cached(sql)?.execute(params![id, signed(now)])? == 1)
        })
    }

    fn revoke_grants(&self, id: Option<String>, now: SteadySeconds) -> DbOperation<'_, Vec<RevokedGrant>> {
        self.write(move |connection| {
            let now = signed(meta::not_before(connection, now)?);
            let sql = format!(
                "UPDATE grants SET state = 'revoked', ended_at = ?2 WHERE state = 'live' AND (?1 IS NULL OR id = ?1) \
                 RETURNING {COLUMNS}"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement
                .query_map(params![id, now], |row| Ok(RevokedGrant { id: id_of(row)?, row: readable(row)? }))?;
            rows.collect()
        })
    }

    fn invalidate_grants(&self, ids: Vec<Arc<str>>, now: SteadySeconds) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let sql = "UPDATE grants SET state = 'invalidated', ended_at = ?2 WHERE state = 'live' AND id = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            ids.iter().try_for_each(|id| statement.execute(params![&**id, signed(now)]).map(drop))
        })
    }
}

/// Enters a live grant.
pub(in crate::store::sqlite) fn insert(connection: &Connection, row: &GrantRow) -> rusqlite::Result<()> {
    let GrantRow { id, asked, arguments, lifetime, evidence, by, granted_at, last_used, uses } = row;
    let sql = format!(
        "INSERT INTO grants ({COLUMNS}, state) VALUES (:id, :caller, :upstream, :kind, :item, :definition, :launch, \
         :arguments, :rule, :need, :destructive, :scope, :below, :lifetime, :until, :evidence, :by, :granted_at, :last_used, :uses, \
         'live')"
    );
    let values = named_params! {
        ":id": &**id, ":caller": asked.caller.key(), ":upstream": &*asked.upstream, ":kind": asked.kind.into_str(),
        ":item": &*asked.item, ":definition": asked.definition.hex(), ":launch": asked.launch.hex(),
        ":arguments": asked.arguments.hex(), ":rule": &*asked.rule, ":need": asked.need.into_str(),
        ":destructive": asked.destructive, ":scope": arguments.into_str(),
        ":below": arguments.below().map(|below| below.text()), ":lifetime": lifetime.into_str(),
        ":until": lifetime.until().map(signed), ":evidence": evidence.into_str(), ":by": &**by,
        ":granted_at": signed(*granted_at), ":last_used": signed(*last_used), ":uses": signed(*uses),
    };
    connection.prepare_cached(&sql)?.execute(values).map(|_| ())
}

pub(in crate::store::sqlite) fn live(connection: &Connection) -> rusqlite::Result<Vec<GrantRow>> {
    let sql = format!("SELECT {COLUMNS} FROM grants WHERE state = 'live' ORDER BY granted_at, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([], readable)?;
    rows.filter_map(Result::transpose).collect()
}

/// Returns the id of a grant, also of one that is no text.
fn id_of(row: &Row<'_>) -> rusqlite::Result<Arc<str>> {
    let id = row.get_ref("id")?;
    Ok(Arc::from(String::from_utf8_lossy(id.as_bytes_or_null().ok().flatten().unwrap_or_default())))
}

/// Reads a grant; `None` if the row holds something that this program did not write. Such a row
/// covers nothing, and the others stay valid.
fn readable(row: &Row<'_>) -> rusqlite::Result<Option<GrantRow>> {
    let read = read(row).unwrap_or(None);
    if read.is_none() {
        tracing::warn!(grant = %id_of(row)?, "a grant cannot be read and covers nothing");
    }
    Ok(read)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Option<GrantRow>> {
    let text = |name: &str| row.get::<_, String>(name);
    let id = text("id")?;
    let until = row.get::<_, Option<i64>>("until")?.map(unsigned);
    let asked = || -> rusqlite::Result<Option<ApprovalSubject>> {
        let digest = |name: &str| text(name).map(|hex| Digest::from_hex(&hex));
        let kind = parse_askable_kind(&text("kind")?);
        let need = text("need")?.parse::<ApprovalEvidence>().ok();
        let caller = Caller::from_key(&text("caller")?);
        let (Some(kind), Some(need), Some(caller)) = (kind, need, caller) else { return Ok(None) };
        let (definition, launch, arguments) = (digest("definition")?, digest("launch")?, digest("arguments")?);
        let (Some(definition), Some(launch), Some(arguments)) = (definition, launch, arguments) else {
            return Ok(None);
        };
        Ok(Some(ApprovalSubject {
            caller,
            session: None,
            upstream: Arc::from(text("upstream")?),
            kind,
            item: Arc::from(text("item")?),
            definition,
            launch,
            arguments,
            rule: Arc::from(text("rule")?),
            need,
            destructive: row.get("destructive")?,
        }))
    };
    let parts = (
        asked()?,
        GrantArguments::parse(&text("scope")?, row.get::<_, Option<String>>("below")?.as_deref()),
        GrantLifetime::parse(&text("lifetime")?, until).filter(|lifetime| *lifetime != GrantLifetime::Session),
        text("evidence")?.parse::<ApprovalEvidence>().ok(),
    );
    let (Some(asked), Some(arguments), Some(lifetime), Some(evidence)) = parts else { return Ok(None) };
    Ok(Some(GrantRow {
        id: Arc::from(id),
        asked,
        arguments,
        lifetime,
        evidence,
        by: Arc::from(text("by")?),
        granted_at: unsigned(row.get("granted_at")?),
        last_used: unsigned(row.get("last_used")?),
        uses: unsigned(row.get("uses")?),
    }))
}

/// Adds uses, ends expired grants, removes old ones.
pub(in crate::store::sqlite) fn settle(
    connection: &Connection,
    used: &[UnwrittenGrantUses],
    unused: SteadySeconds,
    now: SteadySeconds,
) -> rusqlite::Result<()> {
    let sql = "UPDATE grants SET uses = uses + ?2, last_used = max(last_used, ?3) WHERE id = ?1 AND state = 'live'";
    let mut statement = connection.prepare_cached(sql)?;
    for one in used {
        statement.execute(params![&*one.id, signed(one.more), signed(one.last_used)])?;
    }
    connection.execute(
        "UPDATE grants SET state = 'expired', ended_at = ?1 WHERE state = 'live' AND ((until IS NOT NULL AND until <= ?1) \
         OR max(last_used, granted_at) + CASE lifetime WHEN 'once' THEN ?3 ELSE ?2 END <= ?1)",
        params![signed(now), signed(unused), signed(unused.min(ONCE_LIFE))],
    )?;
    let old = signed(now.saturating_sub(ENDED_GRANT_LIFE));
    connection.execute("DELETE FROM grants WHERE state <> 'live' AND ended_at < ?1", [old]).map(drop)
}
