//! Grants as rows, and the time that was seen.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};

use crate::policy::consent::{Arguments, Asked, GrantRow, Lifetime, ONCE_LIFE, Wall, askable};
use crate::policy::{Digest, Evidence};

/// How long grants that cover nothing any more are kept to be looked at, in seconds.
const KEPT: Wall = 90 * 24 * 3600;

const COLUMNS: &str = "id, caller, upstream, kind, item, definition, launch, arguments, rule, need, destructive, scope, \
                       lifetime, until, evidence, by, granted_at, last_used, uses";

/// `SQLite` counts in signed numbers.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Enters a live grant.
pub(super) fn insert(connection: &Connection, row: &GrantRow) -> rusqlite::Result<()> {
    let GrantRow { id, asked, arguments, lifetime, evidence, by, granted_at, last_used, uses } = row;
    let sql = format!(
        "INSERT INTO grants ({COLUMNS}, state) VALUES (:id, :caller, :upstream, :kind, :item, :definition, :launch, \
         :arguments, :rule, :need, :destructive, :scope, :lifetime, :until, :evidence, :by, :granted_at, :last_used, :uses, \
         'live')"
    );
    let values = named_params! {
        ":id": &**id, ":caller": &*asked.caller, ":upstream": &*asked.upstream, ":kind": asked.kind.into_str(),
        ":item": &*asked.item, ":definition": asked.definition.hex(), ":launch": asked.launch.hex(),
        ":arguments": asked.arguments.hex(), ":rule": &*asked.rule, ":need": asked.need.into_str(),
        ":destructive": asked.destructive, ":scope": arguments.into_str(), ":lifetime": lifetime.into_str(),
        ":until": lifetime.until().map(signed), ":evidence": evidence.into_str(), ":by": &**by,
        ":granted_at": signed(*granted_at), ":last_used": signed(*last_used), ":uses": signed(*uses),
    };
    connection.prepare_cached(&sql)?.execute(values).map(|_| ())
}

/// All live grants. A row that says nothing sensible covers nothing.
pub(super) fn live(connection: &Connection) -> rusqlite::Result<Vec<GrantRow>> {
    let sql = format!("SELECT {COLUMNS} FROM grants WHERE state = 'live' ORDER BY granted_at, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([], read)?;
    rows.filter_map(Result::transpose).collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Option<GrantRow>> {
    let text = |name: &str| row.get::<_, String>(name);
    let id = text("id")?;
    let until = row.get::<_, Option<i64>>("until")?.map(unsigned);
    let asked = || -> rusqlite::Result<Option<Asked>> {
        let digest = |name: &str| text(name).map(|hex| Digest::from_hex(&hex));
        let kind = askable(&text("kind")?);
        let need = Evidence::parse(&text("need")?);
        let (Some(kind), Some(need)) = (kind, need) else { return Ok(None) };
        let (definition, launch, arguments) = (digest("definition")?, digest("launch")?, digest("arguments")?);
        let (Some(definition), Some(launch), Some(arguments)) = (definition, launch, arguments) else {
            return Ok(None);
        };
        Ok(Some(Asked {
            caller: Arc::from(text("caller")?),
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
        Arguments::parse(&text("scope")?),
        Lifetime::parse(&text("lifetime")?, until).filter(|lifetime| *lifetime != Lifetime::Session),
        Evidence::parse(&text("evidence")?),
    );
    let (Some(asked), Some(arguments), Some(lifetime), Some(evidence)) = parts else {
        tracing::warn!(grant = %id, "a grant cannot be read and covers nothing");
        return Ok(None);
    };
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

/// Takes the one use of a once-grant: true for exactly one caller over all processes.
pub(super) fn consume(connection: &Connection, id: &str, now: Wall) -> rusqlite::Result<bool> {
    let sql = "UPDATE grants SET state = 'consumed', ended_at = ?2, last_used = ?2, uses = uses + 1 \
               WHERE id = ?1 AND state = 'live' AND lifetime = 'once'";
    Ok(connection.prepare_cached(sql)?.execute(params![id, signed(now)])? == 1)
}

/// Ends live grants: that one, or all. Returns how many.
pub(super) fn revoke(connection: &Connection, id: Option<&str>, now: Wall) -> rusqlite::Result<usize> {
    let sql = "UPDATE grants SET state = 'revoked', ended_at = ?2 WHERE state = 'live' AND (?1 IS NULL OR id = ?1)";
    connection.execute(sql, params![id, signed(now)])
}

/// Ends grants whose definition or launch is no more.
pub(super) fn invalidate(connection: &Connection, ids: &[Arc<str>], now: Wall) -> rusqlite::Result<()> {
    let sql = "UPDATE grants SET state = 'invalidated', ended_at = ?2 WHERE state = 'live' AND id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    ids.iter().try_for_each(|id| statement.execute(params![&**id, signed(now)]).map(|_| ()))
}

/// A grant's uses that are not written yet.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) id: Arc<str>,
    pub(super) more: u64,
    pub(super) last_used: Wall,
}

/// The work of each minute: uses are added, what is over ends, what is old goes.
pub(super) fn settle(connection: &Connection, used: &[Used], unused: Wall, now: Wall) -> rusqlite::Result<()> {
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
    let old = signed(now.saturating_sub(KEPT));
    connection.execute("DELETE FROM grants WHERE state <> 'live' AND ended_at < ?1", [old])?;
    seen(connection, now)
}

/// The latest time that any process has seen.
pub(super) fn max_wall(connection: &Connection) -> rusqlite::Result<Wall> {
    let sql = "SELECT value FROM meta WHERE key = 'max_wall'";
    let value: Option<Vec<u8>> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(value.and_then(|bytes| bytes.try_into().ok()).map_or(0, Wall::from_be_bytes))
}

/// Remembers the time; it never goes back.
pub(super) fn seen(connection: &Connection, now: Wall) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta (key, value) VALUES ('max_wall', ?1) \
               ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";
    connection.execute(sql, [&now.to_be_bytes()[..]]).map(|_| ())
}
