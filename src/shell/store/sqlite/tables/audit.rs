//! Heads of the audit log's chains, and the secret of the installation: tables `audit_heads` and
//! `meta`.

use rusqlite::params;

use crate::policy::Digest;
use crate::policy::records::chain::ChainHead;
use crate::store::port::{AuditHead, AuditOperations, DbOperation};
use crate::store::sqlite::Sqlite;

impl AuditOperations for Sqlite {
    fn audit_heads(&self) -> DbOperation<'_, Vec<AuditHead>> {
        self.read(|connection| {
            let mut query = connection.prepare("SELECT chain, seq, hash, segment FROM audit_heads ORDER BY chain")?;
            let rows = query.query_map([], |row| {
                // A malformed digest or number fits no record, so that verification fails instead
                // of skipping the head.
                let hash = Digest::from_bytes(&row.get::<_, Vec<u8>>(2)?).unwrap_or_else(|| Digest::of(b""));
                let seq = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(u64::MAX);
                Ok(AuditHead { chain: row.get(0)?, head: ChainHead { seq, hash }, segment: row.get(3)? })
            })?;
            rows.collect()
        })
    }

    fn keep_audit_head(&self, kept: AuditHead) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let AuditHead { chain, head, segment } = kept;
            let mut replace = connection.prepare_cached(
                "INSERT OR REPLACE INTO audit_heads (chain, seq, hash, segment) VALUES (?1, ?2, ?3, ?4)",
            )?;
            let seq = i64::try_from(head.seq).unwrap_or(i64::MAX);
            replace.execute(params![chain, seq, &head.hash.bytes()[..], segment]).map(drop)
        })
    }

    fn forget_audit_head(&self, chain: String) -> DbOperation<'_, ()> {
        self.write(move |connection| connection.execute("DELETE FROM audit_heads WHERE chain = ?1", [chain]).map(drop))
    }

    fn installation_key(&self) -> DbOperation<'_, [u8; 32]> {
        self.read(|connection| {
            connection.query_row("SELECT value FROM meta WHERE key = 'key'", [], |row| row.get::<_, [u8; 32]>(0))
        })
    }
}
