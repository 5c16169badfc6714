//! Reads the rows of the table `audit_heads`, and the secret of the installation.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::meta;
use crate::policy::Digest;
use crate::policy::records::chain::ChainHead;
use crate::store::port::{AuditHead, DbError, ReplicaLogs};
use crate::store::postgres::error::failed;
use crate::store::postgres::session::{PostgresSession, column};

/// Key in `meta` of the secret of the installation.
pub(super) const KEY: &str = "key";

/// Reads the heads of the logs of all replicas.
pub(in crate::store::postgres) async fn logs_of_replicas(session: &PostgresSession) -> Result<ReplicaLogs, DbError> {
    let sql = "SELECT replica, chain, seq, hash, segment FROM audit_heads ORDER BY replica, chain";
    let mut heads = BTreeMap::<String, Vec<AuditHead>>::new();
    for row in &session.rows(sql, &[]).await? {
        heads.entry(column(row, "replica")?).or_default().push(head_of_row(row)?);
    }
    Ok(ReplicaLogs { heads, key: installation_key(session).await? })
}

/// Returns the secret of the installation.
pub(super) async fn installation_key(session: &PostgresSession) -> Result<[u8; 32], DbError> {
    let key = meta::value(session, KEY).await?.and_then(|key| key.try_into().ok());
    key.ok_or_else(|| failed("has no key of the installation"))
}

/// Reads a head from a row of `audit_heads`.
pub(super) fn head_of_row(row: &Row) -> Result<AuditHead, DbError> {
    // A malformed digest or number fits no record, so that verification fails instead of skipping
    // the head.
    let hash = Digest::from_bytes(&column::<Vec<u8>>(row, "hash")?).unwrap_or_else(|| Digest::of(b""));
    let seq = u64::try_from(column::<i64>(row, "seq")?).unwrap_or(u64::MAX);
    let (chain, segment) = (column(row, "chain")?, column(row, "segment")?);
    Ok(AuditHead { chain, head: ChainHead { seq, hash }, segment })
}
