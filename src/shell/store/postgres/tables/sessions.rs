//! Sessions of HTTP clients: the tables `ended_sessions`, `ended_floors`, `session_levels` and
//! `session_resources`.

use data_encoding::HEXLOWER;
use tokio_postgres::Row;

use super::meta;
use crate::engine::sealed::ended::{EndedSession, EndedSessions, SessionFloor};
use crate::engine::sealed::session_id::SessionName;
use crate::policy::Caller;
use crate::store::port::{DbError, DbOperation, SessionOperations, SessionRows};
use crate::store::postgres::Postgres;
use crate::store::postgres::ends::{WrittenEnd, end, raise};
use crate::store::postgres::error::no_key;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};
use crate::store::seal::UnsealedValue;

impl SessionOperations for Postgres {
    fn end_session(&self, ended: EndedSession, floor: Option<SessionFloor>) -> DbOperation<'_, ()> {
        self.ends.keep(WrittenEnd::Session(ended.clone()));
        floor.iter().for_each(|floor| self.ends.keep(WrittenEnd::Floor(floor.clone())));
        self.announce(async move |session: &PostgresSession| {
            end(session, &ended).await?;
            match floor {
                Some(floor) => raise(session, &floor).await,
                None => Ok(()),
            }
        })
    }

    fn end_sessions_below(&self, floor: SessionFloor) -> DbOperation<'_, ()> {
        self.ends.keep(WrittenEnd::Floor(floor.clone()));
        self.announce(async move |session: &PostgresSession| raise(session, &floor).await)
    }

    fn ended_sessions(&self, now: u64) -> Result<EndedSessions, DbError> {
        let swept = self.sweep_sessions(now).run_now();
        swept.or_else(|error| if error.is_unwritable() { Ok(()) } else { Err(error) })?;
        let read = self.read(async move |session: &PostgresSession| {
            let mut ended = EndedSessions::default();
            let sql = "SELECT caller, opened, until FROM ended_floors WHERE until > $1";
            for row in session.rows(sql, &[&signed(now)]).await? {
                let Some(caller) = caller(&row)? else { continue };
                let (opened, until) = (unsigned(&row, "opened")?, unsigned(&row, "until")?);
                ended.raise(SessionFloor { caller, opened, until });
            }
            let sql = "SELECT caller, opened, name, until FROM ended_sessions WHERE until > $1";
            for row in session.rows(sql, &[&signed(now)]).await? {
                // No id has a name of another length.
                let name = SessionName::try_from(column::<Vec<u8>>(&row, "name")?);
                let (Some(caller), Ok(name)) = (caller(&row)?, name) else { continue };
                let (opened, until) = (unsigned(&row, "opened")?, unsigned(&row, "until")?);
                ended.restore(&EndedSession { caller, name, opened, until });
            }
            Ok(ended)
        });
        read.run_now()
    }

    fn sweep_sessions(&self, now: u64) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let mut gone = 0;
            for table in ["ended_sessions", "ended_floors", "session_levels", "session_resources"] {
                gone += session.execute(&format!("DELETE FROM {table} WHERE until <= $1"), &[&signed(now)]).await?;
            }
            // The clock of no process goes back behind that, so what they named stays expired.
            if gone > 0 { meta::saw(session, now).await } else { Ok(()) }
        })
    }

    fn keep_level(&self, kept: EndedSession, level: &'static str) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            if is_over(session, &kept).await? {
                return Ok(());
            }
            let sql = "INSERT INTO session_levels (name, level, until) VALUES ($1, $2, $3) \
                       ON CONFLICT (name) DO UPDATE SET level = excluded.level, until = excluded.until";
            session.execute(sql, &[&&kept.name[..], &level, &signed(kept.until)]).await.map(drop)
        })
    }

    fn keep_resource(&self, kept: EndedSession, slot: u64, uri: String) -> DbOperation<'_, ()> {
        let seals = self.seals.clone();
        self.write(async move |session: &PostgresSession| {
            if is_over(session, &kept).await? {
                return Ok(());
            }
            let uri = seals.seal(&as_strs(&place(&kept.name, slot)), &uri).ok_or_else(no_key)?;
            let sql = "INSERT INTO session_resources (name, slot, uri, until) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (name, slot) DO UPDATE SET uri = excluded.uri, until = excluded.until";
            session.execute(sql, &[&&kept.name[..], &signed(slot), &uri, &signed(kept.until)]).await.map(drop)
        })
    }

    fn drop_resource(&self, name: SessionName, slot: u64) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let sql = "DELETE FROM session_resources WHERE name = $1 AND slot = $2";
            session.execute(sql, &[&&name[..], &signed(slot)]).await.map(drop)
        })
    }

    fn kept_session(&self, kept: EndedSession) -> DbOperation<'_, Option<SessionRows>> {
        let seals = self.seals.clone();
        self.read(async move |session: &PostgresSession| {
            if is_over(session, &kept).await? {
                return Ok(None);
            }
            let name = kept.name;
            let level = session.row("SELECT level FROM session_levels WHERE name = $1", &[&&name[..]]).await?;
            let level = level.map(|row| column(&row, "level")).transpose()?;
            let sql = "SELECT slot, uri FROM session_resources WHERE name = $1 ORDER BY slot";
            let mut resources = Vec::new();
            for row in session.rows(sql, &[&&name[..]]).await? {
                let slot = unsigned(&row, "slot")?;
                let stored = column(&row, "uri")?;
                let UnsealedValue::Text { text, .. } = seals.open(&as_strs(&place(&name, slot)), stored) else {
                    return Ok(None);
                };
                resources.push((slot, text));
            }
            Ok(Some(SessionRows { level, resources }))
        })
    }
}

/// Returns the caller of a row; `None` for a text that no session's caller has.
fn caller(row: &Row) -> Result<Option<Caller>, DbError> {
    column(row, "caller").map(Caller::from_key)
}

/// Returns the place of a watched URI.
fn place(name: &SessionName, slot: u64) -> [String; 4] {
    ["session_resources".to_owned(), "uri".to_owned(), HEXLOWER.encode(name), slot.to_string()]
}

fn as_strs(place: &[String; 4]) -> [&str; 4] {
    place.each_ref().map(String::as_str)
}

/// Returns whether the end of a session is noted, so that nothing of it may be kept any more.
async fn is_over(session: &PostgresSession, kept: &EndedSession) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM ended_sessions WHERE caller = $1 AND opened = $2 AND name = $3) \
               OR EXISTS (SELECT 1 FROM ended_floors WHERE caller = $1 AND opened >= $2) AS is_over";
    let (caller, opened) = (kept.caller.key().to_string(), signed(kept.opened));
    session.row(sql, &[&caller, &opened, &&kept.name[..]]).await?.map_or(Ok(true), |row| column(&row, "is_over"))
}
