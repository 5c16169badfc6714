//! Heads of the audit logs' chains, and the secret of the installation: tables `audit_heads` and
//! `meta`. Each replica has a log of its own, whose chains may have the names of another's.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::meta;
use crate::policy::Digest;
use crate::policy::records::chain::ChainHead;
use crate::store::port::{AuditHead, AuditOperations, DbError, DbOperation, ReplicaLogs};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::failed;
use crate::store::postgres::session::{PostgresSession, column, signed};

/// Key in `meta` of the secret of the installation.
pub(super) const KEY: &str = "key";

impl AuditOperations for Postgres {
    fn audit_heads(&self) -> DbOperation<'_, Vec<AuditHead>> {
        let replica = self.replica.to_string();
        self.read(async move |session: &PostgresSession| {
            let sql = "SELECT chain, seq, hash, segment FROM audit_heads WHERE replica = $1 ORDER BY chain";
            session.rows(sql, &[&replica]).await?.iter().map(head_of_row).collect()
        })
    }

    fn keep_audit_head(&self, kept: AuditHead) -> DbOperation<'_, ()> {
        let replica = self.replica.to_string();
        self.write(async move |session: &PostgresSession| {
            let AuditHead { chain, head, segment } = kept;
            let sql = "INSERT INTO audit_heads (chain, seq, hash, segment, replica) VALUES ($1, $2, $3, $4, $5) \
                       ON CONFLICT (replica, chain) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, segment = excluded.segment";
            session.execute(sql, &[&chain, &signed(head.seq), &&head.hash.bytes()[..], &segment, &replica]).await.map(drop)
        })
    }

    fn forget_audit_head(&self, chain: String) -> DbOperation<'_, ()> {
        let replica = self.replica.to_string();
        self.write(async move |session: &PostgresSession| {
            let sql = "DELETE FROM audit_heads WHERE replica = $1 AND chain = $2";
            session.execute(sql, &[&replica, &chain]).await.map(drop)
        })
    }

    fn installation_key(&self) -> DbOperation<'_, [u8; 32]> {
        self.read(installation_key)
    }
}

/// Reads the heads of the logs of all replicas.
pub(in crate::store::postgres) async fn logs_of_replicas(session: &PostgresSession) -> Result<ReplicaLogs, DbError> {
    let sql = "SELECT replica, chain, seq, hash, segment FROM audit_heads ORDER BY replica, chain";
    let mut heads = BTreeMap::<String, Vec<AuditHead>>::new();
    for row in &session.rows(sql, &[]).await? {
        heads.entry(column(row, "replica")?).or_default().push(head_of_row(row)?);
    }
    Ok(ReplicaLogs { heads, key: installation_key(session).await? })
}

async fn installation_key(session: &PostgresSession) -> Result<[u8; 32], DbError> {
    let key = meta::value(session, KEY).await?.and_then(|key| key.try_into().ok());
    key.ok_or_else(|| failed("has no key of the installation"))
}

fn head_of_row(row: &Row) -> Result<AuditHead, DbError> {
    // A malformed digest or number fits no record, so that verification fails instead of skipping
    // the head.
    let hash = Digest::from_bytes(&column::<Vec<u8>>(row, "hash")?).unwrap_or_else(|| Digest::of(b""));
    let seq = u64::try_from(column::<i64>(row, "seq")?).unwrap_or(u64::MAX);
    let (chain, segment) = (column(row, "chain")?, column(row, "segment")?);
    Ok(AuditHead { chain, head: ChainHead { seq, hash }, segment })
}
