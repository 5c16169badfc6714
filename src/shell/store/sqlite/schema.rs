//! The tables, as the ordered list of steps that made them; `PRAGMA user_version` of a file counts
//! the steps it has taken.
//!
//! A change of the tables is one more step at the end of [`STEPS`]. A step that was released never
//! changes: files that have taken it do not take it again. The steps that a file lacks are taken in
//! one transaction, so it is never between two versions.
//!
//! Not `rusqlite_migration`: version and tables have to be read by one statement, since other
//! processes open the same file, and a foreign file and one of a newer program are refused with
//! sentences of their own. What is left is the loop below.

use rusqlite::{Connection, TransactionBehavior};

/// The step at place 0 leads from an empty file to version 1, the next one to version 2, and so on.
const STEPS: &[&str] = &[
    TABLES,
    SEALED,
    SESSIONS,
    STATES,
    DETAILS,
    CONFIRMED,
    SIGN_INS,
    LOGINS,
    OWNERS,
    BELOW,
    CALLERS,
    APPROVALS,
    CLIENT_TOKENS,
    INSTRUCTIONS,
];
/// The version of this program.
pub(super) const VERSION: usize = STEPS.len();

/// Version 1. Digests are hexadecimal text, dates seconds since 1970.
const TABLES: &str = "
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

/// Version 2: private texts may lie sealed in the same tables. Opening approvals and pins seals
/// them, since that needs the key.
///
/// A program that knows version 1 alone would take a sealed launch for another one and lift what
/// was rejected, so it must not open such a file.
const SEALED: &str = "";

/// Version 3: sessions that outlive a restart. Times are seconds since 1970.
const SESSIONS: &str = "
-- Sessions of HTTP clients that have ended, until their ids expire.
CREATE TABLE ended_sessions (
    caller TEXT NOT NULL, opened INTEGER NOT NULL, name BLOB NOT NULL, until INTEGER NOT NULL,
    PRIMARY KEY (caller, opened, name)
) STRICT, WITHOUT ROWID;
-- Sessions of a caller that were opened then or before are over too: there were too many to list.
CREATE TABLE ended_floors (caller TEXT PRIMARY KEY, opened INTEGER NOT NULL, until INTEGER NOT NULL) STRICT;

-- The log level of a live session, and the resources that it watches, their URIs sealed.
CREATE TABLE session_levels (name BLOB PRIMARY KEY, level TEXT NOT NULL, until INTEGER NOT NULL) STRICT;
CREATE TABLE session_resources (
    name BLOB NOT NULL, slot INTEGER NOT NULL, uri TEXT NOT NULL, until INTEGER NOT NULL,
    PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;
";

/// Version 4: sealed states that continued a call. Each does so once, over all processes.
const STATES: &str = "
CREATE TABLE used_states (id BLOB PRIMARY KEY, until INTEGER NOT NULL) STRICT;
CREATE INDEX used_states_until ON used_states (until);
";

/// Version 5: what a person is shown of an open prompt beyond its message, its arguments among it:
/// JSON, sealed. NULL in rows of before.
const DETAILS: &str = "
ALTER TABLE prompts ADD COLUMN details TEXT;
";

/// Version 6: which tools are new. Digests of launches in `confirmed`; digests of texts in
/// `doubted`, with spaces between.
///
/// No row says when its tool appeared. The rows that are there count as the first inventory of the
/// launch that is approved: no rule went by the words of servers when they were listed, and a list
/// of a hundred new tools is confirmed unread. A tool that was never approved stays without a
/// launch, and so does an upstream that has listed nothing.
const CONFIRMED: &str = "
ALTER TABLE pins ADD COLUMN confirmed TEXT;
ALTER TABLE pins ADD COLUMN lacks_askers INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pins ADD COLUMN doubted TEXT;
UPDATE pins SET confirmed = (
    SELECT launch.approved_digest FROM pins AS launch WHERE launch.upstream = pins.upstream AND launch.kind = 'launch'
) WHERE kind = 'tool' AND approved_digest IS NOT NULL;
UPDATE pins SET confirmed = approved_digest WHERE kind = 'launch' AND EXISTS (
    SELECT 1 FROM pins AS item WHERE item.upstream = pins.upstream AND item.kind <> 'launch'
);
";

/// Version 7: browsers that are signed in to the console, by the digests of their cookies and of
/// the operator's token.
const SIGN_INS: &str = "
CREATE TABLE sign_ins (
    id BLOB PRIMARY KEY, token BLOB NOT NULL, until INTEGER NOT NULL, last INTEGER NOT NULL
) STRICT;
";

/// Version 8: logins at upstreams, and the clients that were registered for them. Values are sealed
/// JSON.
const LOGINS: &str = "
-- A login of a launch. `version` changes with its tokens. `tried`: its refresh token may have been used without an answer.
-- `claimed_by` is the process that renews it, until `claimed_until`, in seconds since 1970.
CREATE TABLE logins (
    launch TEXT PRIMARY KEY, issuer TEXT NOT NULL, version INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('live', 'expired')), value TEXT NOT NULL,
    tried INTEGER NOT NULL, claimed_by INTEGER, claimed_until INTEGER
) STRICT;
CREATE TABLE registrations (
    launch TEXT NOT NULL, issuer TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (launch, issuer)
) STRICT, WITHOUT ROWID;
";

/// Version 9: a login belongs to an upstream, not to all with its launch. Rows of before have the
/// empty name until an upstream adopts them, which the values are sealed anew for; a start of the
/// daemon does that.
const OWNERS: &str = "
CREATE TABLE owned_logins (
    upstream TEXT NOT NULL, launch TEXT NOT NULL, issuer TEXT NOT NULL, version INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('live', 'expired')), value TEXT NOT NULL,
    tried INTEGER NOT NULL, claimed_by INTEGER, claimed_until INTEGER, PRIMARY KEY (upstream, launch)
) STRICT;
INSERT INTO owned_logins SELECT '', launch, issuer, version, state, value, tried, claimed_by, claimed_until FROM logins;
DROP TABLE logins;
ALTER TABLE owned_logins RENAME TO logins;
CREATE TABLE owned_registrations (
    upstream TEXT NOT NULL, launch TEXT NOT NULL, issuer TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (upstream, launch, issuer)
) STRICT, WITHOUT ROWID;
INSERT INTO owned_registrations SELECT '', launch, issuer, value FROM registrations;
DROP TABLE registrations;
ALTER TABLE owned_registrations RENAME TO registrations;
-- The issuer of an upstream's last login. It outlives the login.
CREATE TABLE login_issuers (
    upstream TEXT NOT NULL, launch TEXT NOT NULL, issuer TEXT NOT NULL, PRIMARY KEY (upstream, launch)
) STRICT, WITHOUT ROWID;
";

/// Version 10: the folder or site of a grant with the scope `below`, as JSON. A program of before
/// would not know the scope; like a rule of the configuration it names no value of a call.
const BELOW: &str = "
ALTER TABLE grants ADD COLUMN below TEXT;
";

/// Version 11: a caller is kind and name, as [`crate::policy::Caller::key`] writes them. A program
/// of before would take the text for a name that no caller has.
///
/// Rows of before have the name alone. `local` and `uid:N` were users: no release took a token of
/// the configuration with the name `local` or with a colon. All other names were those of tokens.
/// Where no credential was required, HTTP clients were `local` as well, and no row says which. In
/// doubt a row allows less: a grant or an approval is our own user's, who is the operator; an ended
/// session has ended and a used limit is used for both.
const CALLERS: &str = "
INSERT INTO limits SELECT limit_id, '[\"anyone local\"' || substr(bucket, 9), day, state FROM limits
    WHERE substr(bucket, 1, 9) = '[\"local\",';
UPDATE limits SET bucket =
    iif(substr(bucket, 1, 9) = '[\"local\",' OR substr(bucket, 1, 6) = '[\"uid:', '[\"user ', '[\"token ') || substr(bucket, 3)
    WHERE substr(bucket, 1, 2) = '[\"' AND substr(bucket, 3, 1) <> '\"' AND substr(bucket, 1, 15) <> '[\"anyone local\"';
INSERT INTO ended_sessions SELECT 'anyone local', opened, name, until FROM ended_sessions WHERE caller = 'local';
UPDATE ended_sessions SET caller = iif(caller = 'local' OR substr(caller, 1, 4) = 'uid:', 'user ', 'token ') || caller
    WHERE caller <> 'anyone local';
INSERT INTO ended_floors SELECT 'anyone local', opened, until FROM ended_floors WHERE caller = 'local';
UPDATE ended_floors SET caller = iif(caller = 'local' OR substr(caller, 1, 4) = 'uid:', 'user ', 'token ') || caller
    WHERE caller <> 'anyone local';
UPDATE grants SET caller = iif(caller = 'local' OR substr(caller, 1, 4) = 'uid:', 'user ', 'token ') || caller;
UPDATE prompts SET caller = iif(caller = 'local' OR substr(caller, 1, 4) = 'uid:', 'user ', 'token ') || caller;
";

/// Version 12: an approval is called an approval; a prompt is an item of MCP.
const APPROVALS: &str = "
ALTER TABLE prompts RENAME TO approvals;
ALTER TABLE answers RENAME COLUMN prompt TO approval;
";

/// Version 13: tokens of clients, by their digests: the first 8 bytes find a token. Scopes have
/// spaces between. Times are seconds since 1970. A program of before would accept none of them.
const CLIENT_TOKENS: &str = "
CREATE TABLE client_tokens (
    name TEXT PRIMARY KEY, prefix BLOB NOT NULL UNIQUE, rest BLOB NOT NULL, scopes TEXT NOT NULL,
    created INTEGER NOT NULL, expires INTEGER, last_used INTEGER
) STRICT;
";

/// Version 14. Pins can be of the kinds `instructions` and `app`, which an earlier program refuses
/// to read.
const INSTRUCTIONS: &str = "";

/// A reason not to use a file.
#[derive(Debug)]
pub(super) enum SchemaObstacle {
    /// A file of a newer version of this program.
    Newer(i64),
    /// A database of another program.
    Foreign,
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for SchemaObstacle {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Takes the steps that the file lacks. One of several processes takes them, the others find them
/// taken. `key` is the secret of a new installation.
pub(super) fn migrate(connection: &mut Connection, key: &[u8; 32]) -> Result<(), SchemaObstacle> {
    take(connection, STEPS, key)
}

fn take(connection: &mut Connection, steps: &[&str], key: &[u8; 32]) -> Result<(), SchemaObstacle> {
    if count_taken_steps(connection, steps.len())? == steps.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been first.
    let before = count_taken_steps(&transaction, steps.len())?;
    for step in steps.iter().skip(before) {
        transaction.execute_batch(step)?;
    }
    if before == 0 {
        transaction.execute("INSERT INTO meta (key, value) VALUES ('key', ?1)", [&key[..]])?;
    }
    transaction.pragma_update(None, "user_version", i64::try_from(steps.len()).unwrap_or(i64::MAX))?;
    Ok(transaction.commit()?)
}

/// Returns how many of so many steps the file has taken. One statement sees one state of the file:
/// between two statements, another process may make the tables.
pub(super) fn count_taken_steps(connection: &Connection, steps: usize) -> Result<usize, SchemaObstacle> {
    let state = "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version";
    let (version, tables): (i64, i64) = connection.query_row(state, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    match usize::try_from(version) {
        Ok(newer) if newer > steps => Err(SchemaObstacle::Newer(version)),
        // Nothing is there yet, or the tables of a version are.
        Ok(taken) if (taken == 0) == (tables == 0) => Ok(taken),
        _ => Err(SchemaObstacle::Foreign),
    }
}

#[cfg(test)]
mod tests;
