//! Sign-ins to the console: the table `sign_ins`.

use super::meta;
use crate::store::port::{ConsoleSignIn, DbOperation, SecretDigest, SignInOperations};
use crate::store::postgres::Postgres;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};

impl SignInOperations for Postgres {
    fn sign_ins(&self, token: SecretDigest, now: u64) -> DbOperation<'_, Vec<ConsoleSignIn>> {
        let replica = self.replica.to_string();
        self.write(async move |session: &PostgresSession| {
            let now = meta::not_before(session, now).await?;
            let sql = "DELETE FROM sign_ins WHERE replica = $3 AND (token <> $1 OR until <= $2)";
            if session.execute(sql, &[&&token[..], &signed(now), &replica]).await? > 0 {
                // The clock of no process goes back behind that, so what is over stays over.
                meta::saw(session, now).await?;
            }
            let rows = session.rows("SELECT id, until, last FROM sign_ins WHERE replica = $1", &[&replica]).await?;
            let read = |row| {
                // No digest has another length.
                let id = SecretDigest::try_from(column::<Vec<u8>>(row, "id")?).ok();
                let (until, last) = (unsigned(row, "until")?, unsigned(row, "last")?);
                Ok(id.map(|id| ConsoleSignIn { id, until, last }))
            };
            rows.iter().filter_map(|row| read(row).transpose()).collect()
        })
    }

    fn keep_sign_in(&self, one: ConsoleSignIn, token: SecretDigest, most: usize) -> DbOperation<'_, ()> {
        let (replica, most) = (self.replica.to_string(), i64::try_from(most).unwrap_or(i64::MAX));
        self.write(async move |session: &PostgresSession| {
            let sql = "INSERT INTO sign_ins (id, token, until, last, replica) VALUES ($1, $2, $3, $4, $5) \
                       ON CONFLICT (id) DO UPDATE SET token = excluded.token, until = excluded.until, last = excluded.last, \
                       replica = excluded.replica";
            let (until, last) = (signed(one.until), signed(one.last));
            session.execute(sql, &[&&one.id[..], &&token[..], &until, &last, &replica]).await?;
            let sql = "DELETE FROM sign_ins WHERE replica = $2 AND id NOT IN \
                       (SELECT id FROM sign_ins WHERE replica = $2 ORDER BY until DESC LIMIT $1)";
            session.execute(sql, &[&most, &replica]).await.map(drop)
        })
    }

    fn end_sign_in(&self, id: SecretDigest) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            session.execute("DELETE FROM sign_ins WHERE id = $1", &[&&id[..]]).await.map(drop)
        })
    }

    fn end_other_sign_ins(&self, token: SecretDigest) -> DbOperation<'_, ()> {
        let replica = self.replica.to_string();
        self.write(async move |session: &PostgresSession| {
            let sql = "DELETE FROM sign_ins WHERE replica = $2 AND token <> $1";
            session.execute(sql, &[&&token[..], &replica]).await.map(drop)
        })
    }
}
