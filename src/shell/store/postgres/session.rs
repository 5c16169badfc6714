//! A session with the database: statements with their values, and the transactions around them.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Row};

use super::error::{describe_error, failed};
use crate::store::port::DbError;

/// Longest time for the answer to one message.
const ANSWER: Duration = Duration::from_secs(5);

/// Begins a transaction that writes. The lock makes transactions of all replicas follow each other;
/// each later statement sees all that was committed before. The number stands for this use.
const BEGIN: &str = "BEGIN; SELECT pg_advisory_xact_lock(4926140131)";

/// The effect of an operation on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    Read,
    Write,
    /// Writes, and tells the other replicas.
    Announced,
}

/// A session with the database.
pub(super) struct PostgresSession {
    client: Client,
    /// Statements that count a change and tell the other replicas of it.
    notify: String,
    /// True after a message was not answered in time: what it did is unknown.
    is_broken: Cell<bool>,
    refuses_writes: Cell<bool>,
}

/// A value of a statement, with its type in the database.
pub(super) trait SqlValue: ToSql + Sync {
    fn sql_type(&self) -> Type;
    fn as_sql(&self) -> &(dyn ToSql + Sync);
}

macro_rules! sql_values {
    ($($value:ty = $kind:ident;)*) => {
        $(
            impl SqlValue for $value {
                fn sql_type(&self) -> Type {
                    Type::$kind
                }
                fn as_sql(&self) -> &(dyn ToSql + Sync) {
                    self
                }
            }
        )*
    };
}

sql_values! {
    bool = BOOL;
    i64 = INT8;
    Option<i64> = INT8;
    &str = TEXT;
    String = TEXT;
    Option<&str> = TEXT;
    Option<String> = TEXT;
    &[u8] = BYTEA;
    Vec<String> = TEXT_ARRAY;
}

impl PostgresSession {
    /// `by` is the name by which this process knows its own notifications.
    pub(super) fn new(client: Client, by: &str) -> Self {
        let notify = format!("UPDATE changes SET number = number + 1; NOTIFY headend, '{by}'");
        Self { client, notify, is_broken: Cell::new(false), refuses_writes: Cell::new(false) }
    }

    /// Returns whether the session must not be used any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_broken.get() || self.client.is_closed()
    }

    /// Runs a statement and returns how many rows it changed.
    pub(super) async fn execute(&self, sql: &str, values: &[&dyn SqlValue]) -> Result<u64, DbError> {
        let typed: Vec<_> = values.iter().map(|value| (value.as_sql(), value.sql_type())).collect();
        self.answered(self.client.execute_typed(sql, &typed)).await
    }

    /// Runs a statement and returns its rows.
    pub(super) async fn rows(&self, sql: &str, values: &[&dyn SqlValue]) -> Result<Vec<Row>, DbError> {
        let typed: Vec<_> = values.iter().map(|value| (value.as_sql(), value.sql_type())).collect();
        self.answered(self.client.query_typed(sql, &typed)).await
    }

    /// Runs a statement and returns its first row.
    pub(super) async fn row(&self, sql: &str, values: &[&dyn SqlValue]) -> Result<Option<Row>, DbError> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// Runs statements without values.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), DbError> {
        self.answered(self.client.batch_execute(sql)).await
    }

    /// Begins the transaction of an operation that writes.
    pub(super) async fn begin(&self) -> Result<(), DbError> {
        if self.refuses_writes.get() {
            return self.batch("BEGIN READ ONLY").await;
        }
        self.batch(BEGIN).await
    }

    /// Ends a transaction, so that its changes are on the database's disk. After an error they may
    /// be there too.
    pub(super) async fn commit(&self, kind: WorkKind) -> Result<(), DbError> {
        let announced = format!("{}; COMMIT", self.notify);
        self.batch(if kind == WorkKind::Announced { &announced } else { "COMMIT" }).await
    }

    /// Undoes the transaction. If that fails, the session is not used any more.
    pub(super) async fn roll_back(&self) {
        if self.batch("ROLLBACK").await.is_err() {
            self.is_broken.set(true);
        }
    }

    /// Returns the number of changes that the other replicas are told of: heartbeats, limits and
    /// the like are none. It is counted in the transaction of the change.
    pub(super) async fn count_changes(&self) -> Result<i64, DbError> {
        let row = self.row("SELECT number FROM changes", &[]).await?;
        row.map_or(Err(failed("does not count its changes")), |row| column(&row, "number"))
    }

    /// Gives the session up if its server is a standby.
    pub(super) async fn leave_standby(&self) {
        let row = self.row("SELECT pg_is_in_recovery() AS is_standby", &[]).await;
        if row.is_ok_and(|row| row.is_some_and(|row| column(&row, "is_standby").unwrap_or(true))) {
            self.is_broken.set(true);
        }
    }

    /// Makes the session refuse writes for a test, as a full disk does.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn refuse_writes(&self, on: bool) {
        self.refuses_writes.set(on);
    }

    async fn answered<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, DbError> {
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(answer) => answer.map_err(|error| describe_error(&error)),
            Err(_) => {
                self.is_broken.set(true);
                Err(DbError::Unavailable { why: "it does not answer".to_owned() })
            }
        }
    }
}

/// Reads a column of a row.
pub(super) fn column<'r, T: FromSql<'r>>(row: &'r Row, name: &str) -> Result<T, DbError> {
    row.try_get(name).map_err(|_| failed(format!("a row has no readable {name}")))
}

/// Converts a number to the database's signed form.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a number that is never negative.
pub(super) fn unsigned(row: &Row, name: &str) -> Result<u64, DbError> {
    Ok(u64::try_from(column::<i64>(row, name)?).unwrap_or(0))
}
