//! Heads of the audit logs' chains, and the secret of the installation: tables `audit_heads` and
//! `meta`. Each replica has a log of its own, whose chains may have the names of another's.

use super::audit_rows::{head_of_row, installation_key};
use crate::store::port::{AuditHead, AuditOperations, DbOperation};
use crate::store::postgres::Postgres;
use crate::store::postgres::session::{PostgresSession, signed};

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
