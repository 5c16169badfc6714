//! The columns with sealed values, and what they hold.

use crate::store::port::DbError;
use crate::store::postgres::session::{PostgresSession, column, unsigned};

/// A column with sealed values.
pub(super) struct SealedColumn {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
    /// First names of the place that each value is sealed for.
    pub(super) place: &'static [&'static str],
    /// Further names of the place, as expressions over the columns of a row. They name the row.
    pub(super) keys: &'static [&'static str],
    /// The kind of the value, for the operator.
    pub(super) noun: &'static str,
    /// True if the first key is a name that the operator knows.
    pub(super) is_named: bool,
}

pub(super) const COLUMNS: &[SealedColumn] = &[
    SealedColumn {
        table: "approvals",
        column: "message",
        place: &["prompts", "message"],
        keys: &["id"],
        noun: "the text of approval",
        is_named: true,
    },
    SealedColumn {
        table: "approvals",
        column: "details",
        place: &["prompts", "details"],
        keys: &["id"],
        noun: "the details of approval",
        is_named: true,
    },
    SealedColumn {
        table: "pins",
        column: "approved",
        place: &["pins"],
        keys: &["upstream", "approved_digest"],
        noun: "the approved launch of",
        is_named: true,
    },
    SealedColumn {
        table: "pins",
        column: "waiting",
        place: &["pins"],
        keys: &["upstream", "waiting_digest"],
        noun: "the waiting launch of",
        is_named: true,
    },
    SealedColumn {
        table: "logins",
        column: "value",
        place: &["logins", "value"],
        keys: &["upstream", "launch"],
        noun: "the login of",
        is_named: true,
    },
    SealedColumn {
        table: "registrations",
        column: "value",
        place: &["registrations", "value"],
        keys: &["upstream", "launch", "issuer"],
        noun: "the client registration of",
        is_named: true,
    },
    SealedColumn {
        table: "session_resources",
        column: "uri",
        place: &["session_resources", "uri"],
        keys: &["encode(name, 'hex')", "slot::text"],
        noun: "a watched resource of a session",
        is_named: false,
    },
];

/// Counts the sealed values of each key, by the key's id.
pub(in crate::store::postgres) async fn count_by_key(session: &PostgresSession) -> Result<Vec<(String, u64)>, DbError> {
    let parts: Vec<String> = COLUMNS
        .iter()
        .map(|SealedColumn { table, column, .. }| {
            format!("SELECT substr({column}, 10, 16) AS key FROM {table} WHERE starts_with({column}, 'sealed:1:')")
        })
        .collect();
    let sql = format!(
        "SELECT key, count(*) AS count FROM ({}) AS found GROUP BY key ORDER BY key COLLATE \"C\"",
        parts.join(" UNION ALL ")
    );
    let rows = session.rows(&sql, &[]).await?;
    rows.iter().map(|row| Ok((column(row, "key")?, unsigned(row, "count")?))).collect()
}
