//! Used states of calls: the table `used_states`.

use std::sync::Arc;

use super::meta;
use crate::engine::sealed::state::StateUse;
use crate::store::port::{DbError, DbOperation, StateOperations};
use crate::store::postgres::Postgres;
use crate::store::postgres::ends::WrittenEnd;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};

impl StateOperations for Postgres {
    fn use_state(&self, state: StateUse, now: u64) -> DbOperation<'_, bool> {
        let ends = Arc::clone(&self.ends);
        self.write(async move |session: &PostgresSession| {
            let now = meta::not_before(session, now).await?;
            if state.until <= now {
                return Ok(false);
            }
            sweep(session, now).await?;
            ends.keep(WrittenEnd::State(state));
            let sql = "INSERT INTO used_states (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
            Ok(session.execute(sql, &[&&state.id[..], &signed(state.until)]).await? == 1)
        })
    }

    fn used_states(&self, now: u64, most: usize) -> DbOperation<'_, Vec<StateUse>> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read(async move |session: &PostgresSession| {
            let sql = "SELECT id, until FROM used_states WHERE until > $1 ORDER BY until LIMIT $2";
            let rows = session.rows(sql, &[&signed(now), &most]).await?;
            let read = |row| {
                let id = column::<Vec<u8>>(row, "id")?.try_into().ok();
                id.map(|id| Ok(StateUse { id, until: unsigned(row, "until")? })).transpose()
            };
            rows.iter().filter_map(|row| read(row).transpose()).collect()
        })
    }
}

/// Removes expired rows. The clock of no process goes back behind that, so what they named stays
/// expired.
async fn sweep(session: &PostgresSession, now: u64) -> Result<(), DbError> {
    if session.execute("DELETE FROM used_states WHERE until <= $1", &[&signed(now)]).await? > 0 {
        meta::saw(session, now).await?;
    }
    Ok(())
}
