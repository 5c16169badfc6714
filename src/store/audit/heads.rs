//! The last record of each chain, kept outside of the log, so that a log that was cut or rolled back is noticed.

use std::fmt;

use rusqlite::params;

use crate::policy::Digest;
use crate::policy::chain::Head;
use crate::store::db::{Db, DbError};

/// The last record of a chain that is known to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) chain: String,
    pub(crate) head: Head,
    /// The file that it stands in.
    pub(crate) segment: String,
}

/// The store, as far as the log needs it. Calls block.
pub(crate) trait Heads: fmt::Debug + Send {
    /// All chains.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn load(&self) -> Result<Vec<Kept>, DbError>;

    /// Replaces the head of its chain.
    ///
    /// # Errors
    /// When it cannot be written.
    fn save(&self, kept: &Kept) -> Result<(), DbError>;

    /// The secret of the installation.
    ///
    /// # Errors
    /// When the store has none.
    fn key(&self) -> Result<[u8; 32], DbError>;
}

impl Heads for Db {
    fn load(&self) -> Result<Vec<Kept>, DbError> {
        self.run_now(|connection| {
            let mut query = connection.prepare("SELECT chain, seq, hash, segment FROM audit_heads ORDER BY chain")?;
            let rows = query.query_map([], |row| {
                // What is no digest or number fits no record, so that verification fails instead of being left out.
                let hash = Digest::from_bytes(&row.get::<_, Vec<u8>>(2)?).unwrap_or_else(|| Digest::of(b""));
                let seq = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(u64::MAX);
                Ok(Kept { chain: row.get(0)?, head: Head { seq, hash }, segment: row.get(3)? })
            })?;
            rows.collect()
        })
    }

    fn save(&self, kept: &Kept) -> Result<(), DbError> {
        let Kept { chain, head, segment } = kept.clone();
        self.run_now(move |connection| {
            let mut replace = connection.prepare_cached(
                "INSERT OR REPLACE INTO audit_heads (chain, seq, hash, segment) VALUES (?1, ?2, ?3, ?4)",
            )?;
            let seq = i64::try_from(head.seq).unwrap_or(i64::MAX);
            replace.execute(params![chain, seq, &head.hash.bytes()[..], segment]).map(drop)
        })
    }

    fn key(&self) -> Result<[u8; 32], DbError> {
        self.run_now(|connection| {
            connection.query_row("SELECT value FROM meta WHERE key = 'key'", [], |row| row.get::<_, [u8; 32]>(0))
        })
    }
}
