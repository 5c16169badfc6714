//! All sealed columns, for work on every value under seal.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, ToSql};

use super::{logins, open_approvals, sessions};
use crate::store::pin_record::launch_place;
use crate::store::port::{DbError, DbOperation, LoginKey, ResealPosition, ResealedPart, SealOperations};
use crate::store::seal::{Seals, UnsealedValue};
use crate::store::sqlite::{FILE, Sqlite, error, no_key, open, signed, unsigned};

/// Length of `sealed:1:` with the id of a key, without the colon behind it.
const PREFIX: usize = "sealed:1:".len() + 16;

/// A column with sealed values.
struct SealedColumn {
    table: &'static str,
    column: &'static str,
    /// Columns that name a row, in the order in which [`Self::place`] takes their values.
    keys: &'static [&'static str],
    /// Returns the place that the value of a row is sealed for.
    place: fn(&RowKey) -> Vec<String>,
    /// The kind of the value, for the operator.
    noun: &'static str,
}

/// The values of the columns that name a row.
struct RowKey(Vec<Value>);

const COLUMNS: &[SealedColumn] = &[
    SealedColumn {
        table: "approvals",
        column: "message",
        keys: &["id"],
        place: |key| owned(&open_approvals::place("message", &key.text(0))),
        noun: "the text of approval",
    },
    SealedColumn {
        table: "approvals",
        column: "details",
        keys: &["id"],
        place: |key| owned(&open_approvals::place("details", &key.text(0))),
        noun: "the details of approval",
    },
    SealedColumn {
        table: "pins",
        column: "approved",
        keys: &["upstream", "kind", "name", "approved_digest"],
        place: |key| owned(&launch_place(&key.text(0), &key.text(3))),
        noun: "the approved launch of",
    },
    SealedColumn {
        table: "pins",
        column: "waiting",
        keys: &["upstream", "kind", "name", "waiting_digest"],
        place: |key| owned(&launch_place(&key.text(0), &key.text(3))),
        noun: "the waiting launch of",
    },
    SealedColumn {
        table: "logins",
        column: "value",
        keys: &["upstream", "launch"],
        place: |key| owned(&logins::login_place(&key.login())),
        noun: "the login of",
    },
    SealedColumn {
        table: "registrations",
        column: "value",
        keys: &["upstream", "launch", "issuer"],
        place: |key| owned(&logins::registration_place(&key.login(), &key.text(2))),
        noun: "the client registration of",
    },
    SealedColumn {
        table: "session_resources",
        column: "uri",
        keys: &["name", "slot"],
        place: |key| sessions::place(&key.bytes(0), key.number(1)).to_vec(),
        noun: "a watched resource of a session",
    },
];

impl SealOperations for Sqlite {
    fn reseal(&self, from: ResealPosition, most: usize) -> DbOperation<'_, ResealedPart> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let end = ResealedPart { sealed: 0, lost: Vec::new(), next: None };
            COLUMNS.get(from.column).map_or(Ok(end), |column| column.reseal(connection, &seals, from, most))
        })
    }

    fn forget_resealed(&self) -> DbOperation<'_, ()> {
        self.empty_journal()
    }
}

/// Counts the sealed values of the store in a directory, by the id of their key. Changes nothing,
/// and other processes may use the store meanwhile. Blocks.
///
/// # Errors
/// When the store cannot be read, or is not of this program's version.
pub(in crate::store) fn count_sealed_values(dir: &Path) -> Result<Vec<(String, u64)>, DbError> {
    let path = dir.join(FILE);
    let connection = open::open_to_look(&path)?;
    count_by_key(&connection).map_err(|error| error::describe_error(&path, &error))
}

/// Counts the sealed values of each key, by the key's id.
fn count_by_key(connection: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let parts: Vec<String> = COLUMNS
        .iter()
        .map(|SealedColumn { table, column, .. }| {
            format!("SELECT substr({column}, 10, 16) AS key FROM {table} WHERE {column} LIKE 'sealed:1:%'")
        })
        .collect();
    let sql = format!("SELECT key, count(*) FROM ({}) GROUP BY key ORDER BY key", parts.join(" UNION ALL "));
    let mut select = connection.prepare(&sql)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
    rows.collect()
}

impl SealedColumn {
    fn reseal(
        &self,
        connection: &Connection,
        seals: &Seals,
        from: ResealPosition,
        most: usize,
    ) -> rusqlite::Result<ResealedPart> {
        let current = seals.current_prefix().ok_or_else(no_key)?;
        let Self { table, column, keys, .. } = self;
        let names = keys.join(", ");
        let select = format!(
            "SELECT {column}, {names} FROM {table} WHERE {column} LIKE 'sealed:%' AND substr({column}, 1, {PREFIX} + 1) <> ?1 \
             ORDER BY {names} LIMIT ?2 OFFSET ?3"
        );
        let [limit, offset] = [most, from.skipped].map(|number| signed(u64::try_from(number).unwrap_or(u64::MAX)));
        let read = |row: &Row<'_>| {
            let key = (1..=keys.len()).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
            Ok((row.get::<_, String>(0)?, RowKey(key)))
        };
        let mut statement = connection.prepare_cached(&select)?;
        let rows = statement.query_map(rusqlite::params![current, limit, offset], read)?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let named: Vec<String> = keys.iter().enumerate().map(|(at, key)| format!("{key} IS ?{}", at + 2)).collect();
        let update = format!("UPDATE {table} SET {column} = ?1 WHERE {}", named.join(" AND "));
        let mut update = connection.prepare_cached(&update)?;
        let (count, mut sealed, mut lost) = (rows.len(), 0, Vec::new());
        for (stored, key) in rows {
            let place = (self.place)(&key);
            let place: Vec<&str> = place.iter().map(String::as_str).collect();
            let UnsealedValue::Text { text, .. } = seals.open(&place, &stored) else {
                lost.push(self.name(&key));
                continue;
            };
            let value = seals.seal(&place, &text).ok_or_else(no_key)?;
            let values = [&value as &dyn ToSql].into_iter().chain(key.0.iter().map(|value| value as &dyn ToSql));
            sealed += update.execute(rusqlite::params_from_iter(values))?;
        }
        let next = if count < most {
            ResealPosition { column: from.column + 1, skipped: 0 }
        } else {
            ResealPosition { skipped: from.skipped + lost.len(), ..from }
        };
        Ok(ResealedPart { sealed, lost, next: Some(next).filter(|next| next.column < COLUMNS.len()) })
    }

    /// Returns the name of a value for the operator.
    fn name(&self, key: &RowKey) -> String {
        match key.0.first() {
            Some(Value::Text(name)) => format!("{} {name}", self.noun),
            _ => self.noun.to_owned(),
        }
    }
}

impl RowKey {
    fn text(&self, at: usize) -> String {
        match self.0.get(at) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        match self.0.get(at) {
            Some(Value::Blob(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    fn number(&self, at: usize) -> u64 {
        match self.0.get(at) {
            Some(Value::Integer(number)) => unsigned(*number),
            _ => 0,
        }
    }

    /// Returns the key of a login, if the first two columns are those of one.
    fn login(&self) -> LoginKey {
        LoginKey { upstream: self.text(0), launch: self.text(1) }
    }
}

fn owned(place: &[&str]) -> Vec<String> {
    place.iter().map(|part| (*part).to_owned()).collect()
}
