//! Used states of calls: the table `used_states`. Every process enters uses. This file decides
//! which of several processes may continue a call with a state, so looking for its use and entering
//! it must be one operation.

use rusqlite::{Connection, params};

use super::meta;
use crate::engine::sealed::state::StateUse;
use crate::store::port::{DbOperation, StateOperations};
use crate::store::sqlite::{Sqlite, signed, unsigned};

impl StateOperations for Sqlite {
    fn use_state(&self, state: StateUse, now: u64) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            let now = meta::not_before(connection, now)?;
            if state.until <= now {
                return Ok(false);
            }
            sweep(connection, now)?;
            let sql = "INSERT INTO used_states (id, until) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
            let values = params![&state.id[..], signed(state.until)];
            Ok(connection.prepare_cached(sql)?.execute(values)? == 1)
        })
    }

    fn used_states(&self, now: u64, most: usize) -> DbOperation<'_, Vec<StateUse>> {
        let most = signed(u64::try_from(most).unwrap_or(u64::MAX));
        self.read(move |connection| {
            let sql = "SELECT id, until FROM used_states WHERE until > ?1 ORDER BY until LIMIT ?2";
            let mut select = connection.prepare(sql)?;
            let rows = select.query_map([signed(now), most], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let read = |row: rusqlite::Result<(Vec<u8>, i64)>| {
                let (id, until) = row?;
                Ok(id.try_into().ok().map(|id| StateUse { id, until: unsigned(until) }))
            };
            rows.filter_map(|row| read(row).transpose()).collect()
        })
    }
}

/// Removes expired rows. The clock of no process goes back behind that, so what they named stays
/// expired.
fn sweep(connection: &Connection, now: u64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM used_states WHERE until <= ?1";
    if connection.prepare_cached(sql)?.execute([signed(now)])? > 0 {
        meta::saw(connection, now)?;
    }
    Ok(())
}
