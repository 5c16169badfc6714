//! The tables. A change of them is another version and a step in [`migrate`].
//!
//! Not `rusqlite_migration`: the one step so far is no SQL, since texts are sealed with a key, and it would replace none of this
//! code. Readers have to know what a file holds as well, and version and tables have to come from one statement, since other
//! processes open the same file. The first version that changes tables is the time to look again.

use rusqlite::{Connection, TransactionBehavior};

/// Version of the tables; `PRAGMA user_version` of the file.
pub(super) const VERSION: i64 = 2;
/// The tables are the same, and no text in them is sealed. A program that knows no other would take sealed launches for other ones
/// and lift what was rejected, so it must not open what [`VERSION`] has become.
const UNSEALED: i64 = 1;

/// All tables. Digests are hexadecimal text, dates seconds since 1970.
const SCHEMA: &str = "
-- Remembered consents. Only those in state 'live' cover anything; the others are kept for a while to be looked at.
-- Session grants are not here: they end with the process.
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('live', 'consumed', 'expired', 'revoked', 'invalidated')),
    caller TEXT NOT NULL, upstream TEXT NOT NULL, kind TEXT NOT NULL, item TEXT NOT NULL,
    definition TEXT NOT NULL, launch TEXT NOT NULL, arguments TEXT NOT NULL,
    rule TEXT NOT NULL, need TEXT NOT NULL, destructive INTEGER NOT NULL,
    scope TEXT NOT NULL, lifetime TEXT NOT NULL, until INTEGER,
    evidence TEXT NOT NULL, by TEXT NOT NULL,
    granted_at INTEGER NOT NULL, last_used INTEGER NOT NULL, uses INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE INDEX grants_live ON grants (state);

-- Open prompts of every process that shares this file, for those that have no other way to see them.
CREATE TABLE prompts (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    caller TEXT NOT NULL, upstream TEXT NOT NULL, kind TEXT NOT NULL, item TEXT NOT NULL, exposed TEXT NOT NULL,
    rule TEXT NOT NULL, need TEXT NOT NULL, destructive INTEGER NOT NULL, session INTEGER NOT NULL,
    message TEXT NOT NULL, opened_at INTEGER NOT NULL, until INTEGER NOT NULL
) STRICT;

-- Answers to prompts of other processes; the owner of the prompt judges them and writes what came of it.
CREATE TABLE answers (
    prompt TEXT PRIMARY KEY,
    answer TEXT NOT NULL, by TEXT NOT NULL, at INTEGER NOT NULL,
    outcome TEXT
) STRICT;

-- What was approved of each item, and what waits for approval.
CREATE TABLE pins (
    upstream TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    state TEXT NOT NULL,
    approved TEXT, approved_digest TEXT,
    waiting TEXT, waiting_digest TEXT,
    by TEXT, at INTEGER NOT NULL,
    PRIMARY KEY (upstream, kind, name)
) STRICT;

-- Limits that outlive a restart.
CREATE TABLE limits (
    limit_id TEXT NOT NULL, bucket TEXT NOT NULL, day INTEGER NOT NULL, state INTEGER NOT NULL,
    PRIMARY KEY (limit_id, bucket)
) STRICT;

-- The end of each chain of audit records.
CREATE TABLE audit_heads (chain TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, segment TEXT NOT NULL) STRICT;

-- `key`: 32 random bytes of this installation. `max_wall`: the latest time that was seen.
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
";

/// What stands in the way of using a file.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// Made by a newer program.
    Newer(i64),
    /// A database, but none of ours.
    Foreign,
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Obstacle {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// What a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Tables of an earlier version.
    Unsealed,
    Current,
}

/// Makes the tables where there are none. Of several processes one does it, the others find it done.
pub(super) fn migrate(connection: &mut Connection, key: &[u8; 32]) -> Result<(), Obstacle> {
    if check(connection)? == Found::Current {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match check(&transaction)? {
        Found::Current => return Ok(()),
        // Whoever reads the texts seals them.
        Found::Unsealed => {}
        Found::Nothing => {
            transaction.execute_batch(SCHEMA)?;
            transaction.execute("INSERT INTO meta (key, value) VALUES ('key', ?1)", [&key[..]])?;
        }
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

/// Which tables are there. One statement sees one state of the file: between two, another process may make the tables.
pub(super) fn check(connection: &Connection) -> Result<Found, Obstacle> {
    let state = "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version";
    let (version, tables): (i64, i64) = connection.query_row(state, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    match version {
        0 if tables == 0 => Ok(Found::Nothing),
        UNSEALED if tables > 0 => Ok(Found::Unsealed),
        VERSION if tables > 0 => Ok(Found::Current),
        newer if newer > VERSION => Err(Obstacle::Newer(newer)),
        _ => Err(Obstacle::Foreign),
    }
}
