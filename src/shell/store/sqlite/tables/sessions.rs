//! Sessions of HTTP clients: the tables `ended_sessions`, `ended_floors`, `session_levels` and
//! `session_resources`.

use data_encoding::HEXLOWER;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::meta;
use crate::engine::sealed::ended::{EndedSession, EndedSessions, SessionFloor};
use crate::engine::sealed::session_id::SessionName;
use crate::policy::Caller;
use crate::store::port::{DbError, DbOperation, SessionOperations, SessionRows};
use crate::store::seal::UnsealedValue;
use crate::store::sqlite::{Sqlite, no_key, signed, unsigned};

impl SessionOperations for Sqlite {
    fn end_session(&self, session: EndedSession, floor: Option<SessionFloor>) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            forget(connection, &session.name)?;
            let EndedSession { caller, name, opened, until } = session;
            let sql = "INSERT OR REPLACE INTO ended_sessions (caller, opened, name, until) VALUES (?1, ?2, ?3, ?4)";
            let values = params![caller.key(), signed(opened), &name[..], signed(until)];
            connection.prepare_cached(sql)?.execute(values)?;
            floor.map_or(Ok(()), |floor| raise(connection, &floor))
        })
    }

    fn end_sessions_below(&self, floor: SessionFloor) -> DbOperation<'_, ()> {
        self.write(move |connection| raise(connection, &floor))
    }

    fn ended_sessions(&self, now: u64) -> Result<EndedSessions, DbError> {
        let swept = self.sweep_sessions(now).run_now();
        swept.or_else(|error| if error.is_unwritable() { Ok(()) } else { Err(error) })?;
        let read = self.read(move |connection| {
            let mut ended = EndedSessions::default();
            let mut select = connection.prepare("SELECT caller, opened, until FROM ended_floors WHERE until > ?1")?;
            let mut rows = select.query([signed(now)])?;
            while let Some(row) = rows.next()? {
                let Some(caller) = caller(row)? else { continue };
                ended.raise(SessionFloor { caller, opened: unsigned(row.get(1)?), until: unsigned(row.get(2)?) });
            }
            let mut select =
                connection.prepare("SELECT caller, opened, name, until FROM ended_sessions WHERE until > ?1")?;
            let mut rows = select.query([signed(now)])?;
            while let Some(row) = rows.next()? {
                // No id has a name of another length.
                let name = SessionName::try_from(row.get::<_, Vec<u8>>(2)?);
                let (Some(caller), Ok(name)) = (caller(row)?, name) else { continue };
                ended.restore(&EndedSession {
                    caller,
                    name,
                    opened: unsigned(row.get(1)?),
                    until: unsigned(row.get(3)?),
                });
            }
            Ok(ended)
        });
        read.run_now()
    }

    fn sweep_sessions(&self, now: u64) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let mut gone = 0;
            for table in ["ended_sessions", "ended_floors", "session_levels", "session_resources"] {
                gone += connection.execute(&format!("DELETE FROM {table} WHERE until <= ?1"), [signed(now)])?;
            }
            // The clock of no process goes back behind that, so what they named stays expired.
            if gone > 0 { meta::saw(connection, now) } else { Ok(()) }
        })
    }

    fn keep_level(&self, session: EndedSession, level: &'static str) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            if is_over(connection, &session)? {
                return Ok(());
            }
            let sql = "INSERT OR REPLACE INTO session_levels (name, level, until) VALUES (?1, ?2, ?3)";
            connection.prepare_cached(sql)?.execute(params![&session.name[..], level, signed(session.until)]).map(drop)
        })
    }

    fn keep_resource(&self, session: EndedSession, slot: u64, uri: String) -> DbOperation<'_, ()> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            if is_over(connection, &session)? {
                return Ok(());
            }
            let uri = seals.seal(&as_strs(&place(&session.name, slot)), &uri).ok_or_else(no_key)?;
            let sql = "INSERT OR REPLACE INTO session_resources (name, slot, uri, until) VALUES (?1, ?2, ?3, ?4)";
            let values = params![&session.name[..], signed(slot), uri, signed(session.until)];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        })
    }

    fn drop_resource(&self, name: SessionName, slot: u64) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let sql = "DELETE FROM session_resources WHERE name = ?1 AND slot = ?2";
            connection.prepare_cached(sql)?.execute(params![&name[..], signed(slot)]).map(drop)
        })
    }

    fn kept_session(&self, session: EndedSession) -> DbOperation<'_, Option<SessionRows>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            if is_over(connection, &session)? {
                return Ok(None);
            }
            let name = session.name;
            let sql = "SELECT level FROM session_levels WHERE name = ?1";
            let level = connection.prepare_cached(sql)?.query_row([&name[..]], |row| row.get(0)).optional()?;
            let sql = "SELECT slot, uri FROM session_resources WHERE name = ?1 ORDER BY slot";
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map([&name[..]], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut resources = Vec::new();
            for row in rows {
                let (slot, stored): (i64, String) = row?;
                let slot = unsigned(slot);
                let UnsealedValue::Text { text, .. } = seals.open(&as_strs(&place(&name, slot)), &stored) else {
                    return Ok(None);
                };
                resources.push((slot, text));
            }
            Ok(Some(SessionRows { level, resources }))
        })
    }
}

/// Returns the caller in the first column; `None` for a text that no session's caller has.
fn caller(row: &Row<'_>) -> rusqlite::Result<Option<Caller>> {
    Ok(Caller::from_key(&row.get::<_, String>(0)?))
}

/// Returns the place of a watched URI.
pub(super) fn place(name: &[u8], slot: u64) -> [String; 4] {
    ["session_resources".to_owned(), "uri".to_owned(), HEXLOWER.encode(name), slot.to_string()]
}

fn as_strs(place: &[String; 4]) -> [&str; 4] {
    place.each_ref().map(String::as_str)
}

/// Returns whether the end of a session is noted, so that nothing of it may be kept any more.
fn is_over(connection: &Connection, session: &EndedSession) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM ended_sessions WHERE caller = ?1 AND opened = ?2 AND name = ?3) \
               OR EXISTS (SELECT 1 FROM ended_floors WHERE caller = ?1 AND opened >= ?2)";
    let values = params![session.caller.key(), signed(session.opened), &session.name[..]];
    connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))
}

fn raise(connection: &Connection, floor: &SessionFloor) -> rusqlite::Result<()> {
    let SessionFloor { caller, opened, until } = floor;
    let sql = "INSERT INTO ended_floors (caller, opened, until) VALUES (?1, ?2, ?3) ON CONFLICT (caller) DO UPDATE \
               SET opened = max(opened, excluded.opened), until = max(until, excluded.until)";
    connection.execute(sql, params![caller.key(), signed(*opened), signed(*until)])?;
    let sql = "DELETE FROM ended_sessions WHERE caller = ?1 AND opened <= ?2";
    connection.execute(sql, params![caller.key(), signed(*opened)]).map(drop)
}

fn forget(connection: &Connection, name: &SessionName) -> rusqlite::Result<()> {
    for sql in ["DELETE FROM session_levels WHERE name = ?1", "DELETE FROM session_resources WHERE name = ?1"] {
        connection.prepare_cached(sql)?.execute([&name[..]])?;
    }
    Ok(())
}
