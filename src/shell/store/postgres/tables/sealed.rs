//! Seals all values of the database anew, table by table.

use tokio_postgres::Row;

use super::sealed_columns::{COLUMNS, SealedColumn};
use crate::store::port::{DbError, DbOperation, ResealPosition, ResealedPart, SealOperations};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::no_key;
use crate::store::postgres::session::{PostgresSession, column, signed};
use crate::store::seal::{Seals, UnsealedValue};

/// Length of `sealed:1:` with the id of a key, and the colon behind it.
const PREFIX: usize = "sealed:1:".len() + 16 + 1;

impl SealOperations for Postgres {
    fn reseal(&self, from: ResealPosition, most: usize) -> DbOperation<'_, ResealedPart> {
        let seals = self.seals.clone();
        self.write(async move |session: &PostgresSession| match COLUMNS.get(from.column) {
            Some(column) => column.reseal(session, &seals, from, most).await,
            None => Ok(ResealedPart { sealed: 0, lost: Vec::new(), next: None }),
        })
    }

    /// Does nothing: the server reuses the space of replaced values when it likes, and its journal
    /// and backups belong to its operator.
    fn forget_resealed(&self) -> DbOperation<'_, ()> {
        self.read(async |_: &PostgresSession| Ok(()))
    }
}

impl SealedColumn {
    async fn reseal(
        &self,
        session: &PostgresSession,
        seals: &Seals,
        from: ResealPosition,
        most: usize,
    ) -> Result<ResealedPart, DbError> {
        let current = seals.current_prefix().ok_or_else(no_key)?;
        let Self { table, column: name, keys, .. } = self;
        let keys = keys.join(", ");
        // All who write hold one lock, so no row moves before it is updated.
        let select = format!(
            "SELECT {name} AS stored, ctid::text AS place, ARRAY[{keys}]::text[] AS keys FROM {table} \
             WHERE starts_with({name}, 'sealed:') AND substr({name}, 1, {PREFIX}) <> $1 ORDER BY {keys} LIMIT $2 OFFSET $3"
        );
        let update = format!("UPDATE {table} SET {name} = $1 WHERE ctid = $2::tid");
        let [limit, offset] = [most, from.skipped].map(|number| signed(u64::try_from(number).unwrap_or(u64::MAX)));
        let rows = session.rows(&select, &[&current, &limit, &offset]).await?;
        let (mut sealed, mut lost) = (0, Vec::new());
        for row in &rows {
            let keys: Vec<String> = keys_of(row)?;
            let place: Vec<&str> = self.place.iter().copied().chain(keys.iter().map(String::as_str)).collect();
            let UnsealedValue::Text { text, .. } = seals.open(&place, column(row, "stored")?) else {
                lost.push(self.name(&keys));
                continue;
            };
            let value = seals.seal(&place, &text).ok_or_else(no_key)?;
            let changed = session.execute(&update, &[&value, &column::<String>(row, "place")?]).await?;
            sealed += usize::try_from(changed).unwrap_or(0);
        }
        let next = if rows.len() < most {
            ResealPosition { column: from.column + 1, skipped: 0 }
        } else {
            ResealPosition { skipped: from.skipped + lost.len(), ..from }
        };
        Ok(ResealedPart { sealed, lost, next: Some(next).filter(|next| next.column < COLUMNS.len()) })
    }

    /// Returns the name of a value for the operator.
    fn name(&self, keys: &[String]) -> String {
        match keys.first() {
            Some(name) if self.is_named => format!("{} {name}", self.noun),
            _ => self.noun.to_owned(),
        }
    }
}

/// Returns the texts that name a row; one that is missing is empty.
fn keys_of(row: &Row) -> Result<Vec<String>, DbError> {
    let keys: Vec<Option<String>> = column(row, "keys")?;
    Ok(keys.into_iter().map(Option::unwrap_or_default).collect())
}
