//! The tables, as the ordered list of steps that made them. Each step is taken once, in one
//! transaction with its number in `versions`, by one of the replicas.
//!
//! A change of the tables is one more step at the end of [`STEPS`]; a step that was released never
//! changes. While a cluster is updated, replicas of the version before write the same tables, so a
//! step adds what they do not need to know; one that does not is refused to them by its number.

use super::error::refused;
use super::session::{PostgresSession, column};
use super::tables::meta;
use crate::base::clock;
use crate::store::port::DbError;

/// The step at place 0 makes version 1.
const STEPS: &[&str] = &[TABLES, LEASES];

/// Statements before the first step. The tables have a schema of their own, so that no table of
/// another program is taken for one of them.
const PREPARE: &str = "
CREATE SCHEMA IF NOT EXISTS headend;
CREATE TABLE IF NOT EXISTS headend.versions (version BIGINT PRIMARY KEY);
";

/// Version 1: the tables of version 14 of the engine `sqlite`, where their columns are explained.
/// Texts are ordered by their bytes. `replica` is the one that an owner of an approval, a sign-in
/// or a chain of audit records belongs to. `approval_owners`, `replicas` and `session_owners` are
/// of this engine alone.
///
/// `changes` has the number of transactions that the other replicas are told of.
///
/// `approvals.action` is the digest by which replicas find the open approval about an action;
/// further approvals of one process about it have none. An approval with `denied` was answered, and
/// stays until each of its owners knows.
const TABLES: &str = r#"
CREATE TABLE grants (
    id TEXT COLLATE "C" PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('live', 'consumed', 'expired', 'revoked', 'invalidated')),
    caller TEXT NOT NULL, upstream TEXT NOT NULL, kind TEXT NOT NULL, item TEXT NOT NULL,
    definition TEXT NOT NULL, launch TEXT NOT NULL, arguments TEXT NOT NULL,
    rule TEXT NOT NULL, need TEXT NOT NULL, destructive BOOLEAN NOT NULL,
    scope TEXT NOT NULL, below TEXT, lifetime TEXT NOT NULL, until BIGINT,
    evidence TEXT NOT NULL, by TEXT NOT NULL,
    granted_at BIGINT NOT NULL, last_used BIGINT NOT NULL, uses BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE INDEX grants_live ON grants (granted_at, id) WHERE state = 'live';
CREATE TABLE approvals (
    id TEXT COLLATE "C" PRIMARY KEY, action TEXT,
    caller TEXT NOT NULL, upstream TEXT NOT NULL, kind TEXT NOT NULL, item TEXT NOT NULL, exposed TEXT NOT NULL,
    rule TEXT NOT NULL, need TEXT NOT NULL, destructive BOOLEAN NOT NULL, session BOOLEAN NOT NULL,
    message TEXT NOT NULL, details TEXT NOT NULL, opened_at BIGINT NOT NULL, until BIGINT NOT NULL,
    denied BOOLEAN, evidence TEXT, by TEXT
);
CREATE UNIQUE INDEX approvals_action ON approvals (action) WHERE denied IS NULL;
CREATE TABLE approval_owners (
    approval TEXT COLLATE "C" NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    owner TEXT NOT NULL, replica TEXT NOT NULL,
    PRIMARY KEY (approval, owner)
);
CREATE TABLE answers (
    approval TEXT COLLATE "C" PRIMARY KEY,
    answer TEXT NOT NULL, by TEXT NOT NULL, at BIGINT NOT NULL,
    taken BOOLEAN NOT NULL, outcome TEXT
);
CREATE TABLE pins (
    upstream TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    state TEXT NOT NULL,
    approved TEXT, approved_digest TEXT,
    waiting TEXT, waiting_digest TEXT,
    by TEXT, at BIGINT NOT NULL,
    confirmed TEXT, lacks_askers BOOLEAN NOT NULL, doubted TEXT,
    PRIMARY KEY (upstream, kind, name)
);
CREATE TABLE limits (
    limit_id TEXT NOT NULL, bucket TEXT NOT NULL, day BIGINT NOT NULL, state BIGINT NOT NULL,
    PRIMARY KEY (limit_id, bucket)
);
CREATE TABLE audit_heads (
    replica TEXT NOT NULL, chain TEXT COLLATE "C" NOT NULL, seq BIGINT NOT NULL, hash BYTEA NOT NULL, segment TEXT NOT NULL,
    PRIMARY KEY (replica, chain)
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE changes (number BIGINT NOT NULL);
INSERT INTO changes VALUES (0);
CREATE TABLE ended_sessions (
    caller TEXT NOT NULL, opened BIGINT NOT NULL, name BYTEA NOT NULL, until BIGINT NOT NULL,
    PRIMARY KEY (caller, opened, name)
);
CREATE TABLE ended_floors (caller TEXT PRIMARY KEY, opened BIGINT NOT NULL, until BIGINT NOT NULL);
CREATE TABLE session_levels (name BYTEA PRIMARY KEY, level TEXT NOT NULL, until BIGINT NOT NULL);
CREATE TABLE session_resources (
    name BYTEA NOT NULL, slot BIGINT NOT NULL, uri TEXT NOT NULL, until BIGINT NOT NULL,
    PRIMARY KEY (name, slot)
);
CREATE TABLE used_states (id BYTEA PRIMARY KEY, until BIGINT NOT NULL);
CREATE INDEX used_states_until ON used_states (until);
CREATE TABLE replicas (run BYTEA PRIMARY KEY, sealed TEXT NOT NULL, beat TIMESTAMPTZ NOT NULL);
CREATE TABLE session_owners (name BYTEA PRIMARY KEY, run BYTEA NOT NULL, until BIGINT NOT NULL);
CREATE TABLE sign_ins (
    id BYTEA PRIMARY KEY, token BYTEA NOT NULL, until BIGINT NOT NULL, last BIGINT NOT NULL, replica TEXT NOT NULL
);
CREATE TABLE logins (
    upstream TEXT NOT NULL, launch TEXT NOT NULL, issuer TEXT NOT NULL, version BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('live', 'expired')), value TEXT NOT NULL,
    tried BOOLEAN NOT NULL, claimed_by BIGINT, claimed_until BIGINT,
    PRIMARY KEY (upstream, launch)
);
CREATE TABLE registrations (
    upstream TEXT NOT NULL, launch TEXT NOT NULL, issuer TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (upstream, launch, issuer)
);
CREATE TABLE login_issuers (
    upstream TEXT NOT NULL, launch TEXT NOT NULL, issuer TEXT NOT NULL, PRIMARY KEY (upstream, launch)
);
CREATE TABLE client_tokens (
    name TEXT COLLATE "C" PRIMARY KEY, prefix BYTEA NOT NULL UNIQUE, rest BYTEA NOT NULL, scopes TEXT NOT NULL,
    created BIGINT NOT NULL, expires BIGINT, last_used BIGINT
);
"#;

/// Version 2: which replica runs the program of an upstream that one of them runs at a time.
/// `until` is the end of the lease on the clock of the database, in milliseconds since 1970. A
/// replica that does not know the table runs no such program.
const LEASES: &str = r#"
CREATE TABLE leases (upstream TEXT PRIMARY KEY, lease BYTEA NOT NULL, run BYTEA NOT NULL, until BIGINT NOT NULL);
"#;

/// Takes the steps that the database lacks. One of several replicas takes them, the others find
/// them taken.
///
/// # Errors
/// When the tables are those of a newer program, or cannot be made; nothing has changed then.
pub(super) async fn migrate(session: &PostgresSession) -> Result<(), DbError> {
    if has_tables(session).await? && count_taken_steps(session).await? == STEPS.len() {
        return Ok(());
    }
    session.begin().await?;
    match take(session).await {
        Ok(()) => session.batch("COMMIT").await,
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

/// Checks that the database has the tables of this program, and changes nothing.
///
/// # Errors
/// When it has others or none.
pub(super) async fn check(session: &PostgresSession) -> Result<(), DbError> {
    if !has_tables(session).await? {
        return Err(refused("has no tables of headend yet; the first start makes them"));
    }
    match count_taken_steps(session).await? {
        taken if taken == STEPS.len() => Ok(()),
        _ => Err(refused("has the tables of an older headend; the start of this version changes them")),
    }
}

async fn has_tables(session: &PostgresSession) -> Result<bool, DbError> {
    let row = session.row("SELECT to_regclass('headend.versions') IS NOT NULL AS is_known", &[]).await?;
    Ok(row.is_some_and(|row| column(&row, "is_known").unwrap_or(false)))
}

async fn take(session: &PostgresSession) -> Result<(), DbError> {
    session.batch(PREPARE).await?;
    // Another replica may have been first.
    let before = count_taken_steps(session).await?;
    for (number, step) in (1_i64..).zip(STEPS).skip(before) {
        session.batch(step).await?;
        session.execute("INSERT INTO headend.versions (version) VALUES ($1)", &[&number]).await?;
    }
    if before == 0 {
        meta::put(session, "key", &clock::random::<32>()).await?;
    }
    Ok(())
}

/// Returns how many steps the database has taken.
async fn count_taken_steps(session: &PostgresSession) -> Result<usize, DbError> {
    let row = session.row("SELECT coalesce(max(version), 0) AS version FROM headend.versions", &[]).await?;
    let found = row.map_or(Ok(0), |row| column::<i64>(&row, "version"))?;
    match usize::try_from(found) {
        Ok(taken) if taken <= STEPS.len() => Ok(taken),
        _ => Err(refused(format!(
            "was written by a newer headend (its version is {found}, this program knows {}); run that one on all replicas",
            STEPS.len()
        ))),
    }
}
