//! Pins: the table `pins`, and a number that counts its changes. Each step is taken from the record
//! that is there at this moment, so reading and writing one must not be parted.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::meta;
use crate::catalog::name::UpstreamName;
use crate::policy::{ConfirmedLaunches, Digest, Pin, PinState};
use crate::store::pin_record::{
    PinKey, PinKind, PinRecord, PinStep, PinTextForms, is_private, launch_place, open_text, seal_text,
};
use crate::store::port::{DbError, DbOperation, PinOperations, PinStepResults, PinTable};
use crate::store::seal::{Seals, UnsealedValue};
use crate::store::sqlite::{Sqlite, no_key};

/// The number of changes so far.
const EPOCH: &str = "pins_epoch";

const COLUMNS: &str = "upstream, kind, name, state, approved, approved_digest, waiting, waiting_digest, by, at, confirmed, lacks_askers, \
                       doubted";

impl PinOperations for Sqlite {
    fn open_pins(&self) -> Result<PinTable, DbError> {
        let seals = self.seals.clone();
        let (resealed, table) = self
            .write(move |connection| {
                // Looking without a key changes nothing.
                let resealed = seals.can_seal() && reseal(connection, &seals)?;
                Ok((resealed, load(connection, &seals)?))
            })
            .run_now()?;
        if resealed {
            self.forget_replaced();
        }
        Ok(table)
    }

    fn pins_changed(&self, known: u64) -> DbOperation<'_, Option<PinTable>> {
        let seals = self.seals.clone();
        self.read(
            move |connection| {
                if meta::number(connection, EPOCH)? == known { Ok(None) } else { load(connection, &seals).map(Some) }
            },
        )
    }

    fn take_steps(
        &self,
        steps: Vec<(PinKey, PinStep)>,
        forget: Vec<PinKey>,
        now: u64,
    ) -> DbOperation<'_, PinStepResults> {
        let seals = self.seals.clone();
        self.write(move |connection| take(connection, steps, &forget, now, &seals))
    }
}

/// Loads all pins. A row that this program cannot have written is an error: without it, its item
/// would count as never seen and be accepted at first sight.
fn load(connection: &Connection, seals: &Seals) -> rusqlite::Result<PinTable> {
    let epoch = meta::number(connection, EPOCH)?;
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM pins"))?;
    let rows = statement.query_map([], |row| read(row, seals))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok((epoch, rows))
}

fn one(connection: &Connection, key: &PinKey, seals: &Seals) -> rusqlite::Result<Option<PinRecord>> {
    let query = format!("SELECT {COLUMNS} FROM pins WHERE upstream = ?1 AND kind = ?2 AND name = ?3");
    let mut statement = connection.prepare_cached(&query)?;
    let place = params![key.upstream.as_str(), key.kind.into_str(), key.name];
    let found = statement.query_row(place, |row| read(row, seals)).optional()?;
    Ok(found.map(|(_, record)| record))
}

/// Seals the private texts of launch pins that are stored unsealed or sealed with an earlier key,
/// with the current key. Leaves texts whose key is missing. Returns whether any text was sealed.
fn reseal(connection: &Connection, seals: &Seals) -> rusqlite::Result<bool> {
    let query = "SELECT upstream, approved, approved_digest, waiting, waiting_digest FROM pins WHERE kind = 'launch'";
    let mut statement = connection.prepare(query)?;
    let text = |row: &Row<'_>, at| row.get::<_, Option<String>>(at);
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, [(text(row, 1)?, text(row, 2)?), (text(row, 3)?, text(row, 4)?)]))
    })?;
    let mut any = false;
    for (upstream, columns) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
        for ((text, digest), column) in columns.into_iter().zip(["approved", "waiting"]) {
            let Some((text, digest)) = text.zip(digest) else { continue };
            let text = match seals.open(&launch_place(&upstream, &digest), &text) {
                UnsealedValue::Clear if is_private(&text) => text,
                UnsealedValue::Text { text, current: false } => text,
                UnsealedValue::Clear | UnsealedValue::Text { current: true, .. } | UnsealedValue::Lost => continue,
            };
            let sealed = seals.seal(&launch_place(&upstream, &digest), &text).ok_or_else(no_key)?;
            let query = format!("UPDATE pins SET {column} = ?2 WHERE upstream = ?1 AND kind = 'launch' AND name = ''");
            connection.execute(&query, [&upstream, &sealed])?;
            any = true;
        }
    }
    Ok(any)
}

fn read(row: &Row<'_>, seals: &Seals) -> rusqlite::Result<(PinKey, PinRecord)> {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let digest = |at: usize| Ok::<_, rusqlite::Error>(text(at)?.as_deref().and_then(Digest::from_hex));
    let upstream = UpstreamName::parse(&text(0)?.unwrap_or_default()).ok();
    let kind = text(1)?.unwrap_or_default().parse::<PinKind>().ok();
    let rejected = text(3)?.as_deref() == Some(PinState::Rejected.into_str());
    let pin = Pin::restore(digest(5)?, digest(7)?, rejected);
    let (Some(upstream), Some(kind), Some(pin)) = (upstream, kind, pin) else {
        return Err(rusqlite::Error::InvalidColumnType(3, "state".to_owned(), Type::Text));
    };
    let key = PinKey { upstream, kind, name: text(2)?.unwrap_or_default() };
    let digests = |at: usize| {
        let words = text(at)?.unwrap_or_default();
        Ok::<_, rusqlite::Error>(words.split_whitespace().filter_map(Digest::from_hex).collect::<Vec<_>>())
    };
    let record = PinRecord {
        pin,
        approved: open_text(seals, &key, text(4)?, digest(5)?),
        waiting: open_text(seals, &key, text(6)?, digest(7)?),
        by: Arc::from(text(8)?.unwrap_or_default()),
        at: u64::try_from(row.get::<_, i64>(9)?).unwrap_or_default(),
        confirmed: ConfirmedLaunches::restore(digests(10)?.into_iter(), row.get(11)?),
        doubted: digests(12)?,
        forms: PinTextForms::default(),
    };
    Ok((key, record))
}

/// Stores a record. A text sealed with a missing key does not open; its stored value stays while
/// its digest does, so that a command without the key loses nothing.
fn save(connection: &Connection, key: &PinKey, record: &PinRecord, seals: &Seals) -> rusqlite::Result<()> {
    let kept = |column: &str| {
        format!(
            "{column} = CASE WHEN excluded.{column} IS NOT NULL THEN excluded.{column}
                WHEN excluded.{column}_digest IS approved_digest THEN approved
                WHEN excluded.{column}_digest IS waiting_digest THEN waiting END"
        )
    };
    let query = format!(
        "INSERT INTO pins ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (upstream, kind, name) DO UPDATE SET state = excluded.state, {}, {}, by = excluded.by, at = excluded.at,
            approved_digest = excluded.approved_digest, waiting_digest = excluded.waiting_digest, confirmed = excluded.confirmed,
            lacks_askers = excluded.lacks_askers, doubted = excluded.doubted",
        kept("approved"),
        kept("waiting")
    );
    let hex = |digest: Option<Digest>| digest.map(|digest| digest.hex());
    let words =
        |digests: &mut dyn Iterator<Item = Digest>| digests.map(|digest| digest.hex()).collect::<Vec<_>>().join(" ");
    let (confirmed, doubted) = (words(&mut record.confirmed.launches()), words(&mut record.doubted.iter().copied()));
    connection.prepare_cached(&query)?.execute(params![
        key.upstream.as_str(),
        key.kind.into_str(),
        key.name,
        record.pin.state().into_str(),
        seal_text(seals, key, record.approved.as_ref(), record.pin.approved()).map_err(|_| no_key())?,
        hex(record.pin.approved()),
        seal_text(seals, key, record.waiting.as_ref(), record.pin.waiting()).map_err(|_| no_key())?,
        hex(record.pin.waiting()),
        &*record.by,
        i64::try_from(record.at).unwrap_or(i64::MAX),
        Some(confirmed).filter(|confirmed| !confirmed.is_empty()),
        record.confirmed.lacks_askers,
        (!doubted.is_empty()).then_some(doubted),
    ])?;
    Ok(())
}

fn take(
    connection: &Connection,
    steps: Vec<(PinKey, PinStep)>,
    forget: &[PinKey],
    now: u64,
    seals: &Seals,
) -> rusqlite::Result<PinStepResults> {
    let epoch = meta::number(connection, EPOCH)?;
    let mut wrote = !forget.is_empty();
    for key in forget {
        let query = "DELETE FROM pins WHERE upstream = ?1 AND kind = ?2 AND name = ?3";
        connection.execute(query, params![key.upstream.as_str(), key.kind.into_str(), key.name])?;
    }
    let mut out = Vec::with_capacity(steps.len());
    // The launch pin of the last tool's upstream.
    let mut launch: Option<(PinKey, Option<PinRecord>)> = None;
    for (key, step) in steps {
        let before = one(connection, &key, seals)?;
        let place = PinKey::launch(&key.upstream);
        let is_tool = key.kind == PinKind::Tool;
        if is_tool && launch.as_ref().is_none_or(|(known, _)| *known != place) {
            let record = one(connection, &place, seals)?;
            launch = Some((place, record));
        } else if key.kind == PinKind::Launch {
            launch = None;
        }
        let known = launch.as_ref().filter(|_| is_tool).and_then(|(_, record)| record.as_ref());
        let after = PinRecord::step(before.as_ref(), known, &step, now);
        if let Ok(record) = &after
            && before.is_none_or(|before| before.differs(record))
        {
            save(connection, &key, record, seals)?;
            wrote = true;
        }
        out.push((key, after));
    }
    let after = epoch.saturating_add(u64::from(wrote));
    if wrote {
        meta::raise(connection, EPOCH, after)?;
    }
    Ok(PinStepResults { stepped: out, before: epoch, after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::seal::KeySource;
    use crate::store::sqlite::tests::open;

    /// Returns the records as a process that has the key, or has not, reads and writes them.
    fn at(dir: &tempfile::TempDir, seals: &Seals, change: impl FnOnce(&mut PinRecord) + Send + 'static) -> PinRecord {
        let (db, seals) = (open(dir.path()).unwrap(), seals.clone());
        let changed = db.write(move |connection| {
            let (key, mut record) = load(connection, &seals)?.1.pop().unwrap();
            change(&mut record);
            save(connection, &key, &record, &seals)?;
            Ok(load(connection, &seals)?.1.pop().unwrap().1)
        });
        changed.run_now().unwrap()
    }

    #[test]
    fn a_process_without_the_key_decides_and_loses_no_text() {
        let (dir, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let seals = Seals::of(keys.path(), &KeySource { make: true, ..KeySource::default() }).unwrap();
        let none = Seals::of(dir.path(), &KeySource::default()).unwrap();
        let text = |n: u8| Arc::<str>::from(format!(r#"{{"url":"https://a.example/?key={n}"}}"#));
        let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
        let key = PinKey { upstream: UpstreamName::parse("fx").unwrap(), kind: PinKind::Launch, name: String::new() };
        let pin = Pin::restore(Some(old), Some(new), false).unwrap();
        let (by, forms) = (Arc::from("x"), PinTextForms::default());
        let (confirmed, doubted) = (ConfirmedLaunches::restore([new, old].into_iter(), true), vec![old, new]);
        let record =
            PinRecord { pin, approved: Some(text(1)), waiting: Some(text(2)), by, at: 1, confirmed, doubted, forms };
        let (db, first) = (open(dir.path()).unwrap(), seals.clone());
        db.write(move |connection| save(connection, &key, &record, &first)).run_now().unwrap();
        drop(db);

        let seen = at(&dir, &none, |record| record.by = Arc::from("y"));
        assert_eq!((seen.approved, seen.waiting, &*seen.by), (None, None, "y"), "it cannot read them");
        let seen = at(&dir, &seals, |_| {});
        assert_eq!((seen.approved, seen.waiting), (Some(text(1)), Some(text(2))));
        assert_eq!((seen.confirmed, seen.doubted), (confirmed, vec![old, new]));
        // The waiting definition is approved: its text moves along with its digest.
        at(&dir, &none, move |record| record.pin = Pin::restore(Some(new), None, false).unwrap());
        let seen = at(&dir, &seals, |_| {});
        assert_eq!((seen.approved, seen.waiting, seen.pin.approved()), (Some(text(2)), None, Some(new)));
    }
}
