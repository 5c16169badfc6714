//! The pins on disk: the table `pins`, and a number that counts its changes, by which processes notice those of others.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::book::{PinKey, PinKind, Record, Step};
use crate::catalog::name::UpstreamName;
use crate::policy::{Digest, Pin, PinState, Undecided};

/// Where the number of changes is in the table `meta`.
const EPOCH: &str = "pins_epoch";

const COLUMNS: &str = "upstream, kind, name, state, approved, approved_digest, waiting, waiting_digest, by, at";

/// The number of changes so far.
pub(super) fn epoch(connection: &Connection) -> rusqlite::Result<u64> {
    let value: Option<Vec<u8>> =
        connection.query_row("SELECT value FROM meta WHERE key = ?1", [EPOCH], |row| row.get(0)).optional()?;
    Ok(value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
}

/// Everything, with the number of changes that are in it. A row that this program cannot have written is an error: left out,
/// its item would count as never seen and be taken at first sight.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<(u64, Vec<(PinKey, Record)>)> {
    let epoch = epoch(connection)?;
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM pins"))?;
    let rows = statement.query_map([], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok((epoch, rows))
}

fn one(connection: &Connection, key: &PinKey) -> rusqlite::Result<Option<Record>> {
    let query = format!("SELECT {COLUMNS} FROM pins WHERE upstream = ?1 AND kind = ?2 AND name = ?3");
    let mut statement = connection.prepare_cached(&query)?;
    let found = statement.query_row(params![key.upstream.as_str(), key.kind.as_str(), key.name], read).optional()?;
    Ok(found.map(|(_, record)| record))
}

fn read(row: &Row<'_>) -> rusqlite::Result<(PinKey, Record)> {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let digest = |at: usize| Ok::<_, rusqlite::Error>(text(at)?.as_deref().and_then(Digest::from_hex));
    let upstream = UpstreamName::parse(&text(0)?.unwrap_or_default()).ok();
    let kind = PinKind::parse(&text(1)?.unwrap_or_default());
    let rejected = text(3)?.as_deref() == Some(PinState::Rejected.as_str());
    let pin = Pin::restore(digest(5)?, digest(7)?, rejected);
    let (Some(upstream), Some(kind), Some(pin)) = (upstream, kind, pin) else {
        return Err(rusqlite::Error::InvalidColumnType(3, "state".to_owned(), Type::Text));
    };
    let record = Record {
        pin,
        approved: text(4)?.map(Arc::from),
        waiting: text(6)?.map(Arc::from),
        by: Arc::from(text(8)?.unwrap_or_default()),
        at: u64::try_from(row.get::<_, i64>(9)?).unwrap_or_default(),
    };
    Ok((PinKey { upstream, kind, name: text(2)?.unwrap_or_default() }, record))
}

fn save(connection: &Connection, key: &PinKey, record: &Record) -> rusqlite::Result<()> {
    let query = format!("INSERT OR REPLACE INTO pins ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)");
    let hex = |digest: Option<Digest>| digest.map(|digest| digest.hex());
    connection.prepare_cached(&query)?.execute(params![
        key.upstream.as_str(),
        key.kind.as_str(),
        key.name,
        record.pin.state().as_str(),
        record.approved.as_deref(),
        hex(record.pin.approved()),
        record.waiting.as_deref(),
        hex(record.pin.waiting()),
        &*record.by,
        i64::try_from(record.at).unwrap_or(i64::MAX),
    ])?;
    Ok(())
}

/// What came of one step.
pub(super) type Stepped = (PinKey, Result<Record, Undecided>);

/// Takes steps from what is on disk at this moment, which another process may have changed.
pub(super) fn take(
    connection: &Connection,
    steps: Vec<(PinKey, Step)>,
    forget: &[PinKey],
    now: u64,
) -> rusqlite::Result<Vec<Stepped>> {
    let mut wrote = !forget.is_empty();
    for key in forget {
        let query = "DELETE FROM pins WHERE upstream = ?1 AND kind = ?2 AND name = ?3";
        connection.execute(query, params![key.upstream.as_str(), key.kind.as_str(), key.name])?;
    }
    let mut out = Vec::with_capacity(steps.len());
    for (key, step) in steps {
        let before = one(connection, &key)?;
        let after = Record::step(before.as_ref(), &step, now);
        if let Ok(record) = &after
            && before.is_none_or(|before| before.pin != record.pin)
        {
            save(connection, &key, record)?;
            wrote = true;
        }
        out.push((key, after));
    }
    if wrote {
        let next = epoch(connection)?.wrapping_add(1).to_be_bytes();
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)", params![EPOCH, &next[..]])?;
    }
    Ok(out)
}
