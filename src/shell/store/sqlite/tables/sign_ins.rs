//! Sign-ins to the console: the table `sign_ins`.

use rusqlite::{Connection, params};

use super::meta;
use crate::store::port::{ConsoleSignIn, DbOperation, SecretDigest, SignInOperations};
use crate::store::sqlite::{Sqlite, signed, unsigned};

impl SignInOperations for Sqlite {
    fn sign_ins(&self, token: SecretDigest, now: u64) -> DbOperation<'_, Vec<ConsoleSignIn>> {
        self.write(move |connection| {
            let now = meta::not_before(connection, now)?;
            let sql = "DELETE FROM sign_ins WHERE token <> ?1 OR until <= ?2";
            if connection.execute(sql, params![&token[..], signed(now)])? > 0 {
                // The clock of no process goes back behind that, so what is over stays over.
                meta::saw(connection, now)?;
            }
            let mut select = connection.prepare("SELECT id, until, last FROM sign_ins")?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            let read = |row: rusqlite::Result<(Vec<u8>, i64, i64)>| {
                let (id, until, last) = row?;
                // No digest has another length.
                let id = SecretDigest::try_from(id).ok();
                Ok(id.map(|id| ConsoleSignIn { id, until: unsigned(until), last: unsigned(last) }))
            };
            rows.filter_map(|row| read(row).transpose()).collect()
        })
    }

    fn keep_sign_in(&self, one: ConsoleSignIn, token: SecretDigest, most: usize) -> DbOperation<'_, ()> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.write(move |connection| {
            let sql = "INSERT OR REPLACE INTO sign_ins (id, token, until, last) VALUES (?1, ?2, ?3, ?4)";
            connection.execute(sql, params![&one.id[..], &token[..], signed(one.until), signed(one.last)])?;
            let sql = "DELETE FROM sign_ins WHERE id NOT IN (SELECT id FROM sign_ins ORDER BY until DESC LIMIT ?1)";
            connection.execute(sql, [most]).map(drop)
        })
    }

    fn end_sign_in(&self, id: SecretDigest) -> DbOperation<'_, ()> {
        self.write(move |connection| remove(connection, "WHERE id = ?1", &id))
    }

    fn end_other_sign_ins(&self, token: SecretDigest) -> DbOperation<'_, ()> {
        self.write(move |connection| remove(connection, "WHERE token <> ?1", &token))
    }
}

fn remove(connection: &Connection, of: &str, key: &SecretDigest) -> rusqlite::Result<()> {
    connection.execute(&format!("DELETE FROM sign_ins {of}"), [&key[..]]).map(drop)
}
