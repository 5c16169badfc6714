//! The replicas of the cluster: the tables `replicas`, `session_owners` and `leases`.
//!
//! Ages are measured when the lock of the database is held, so a wait for it makes no replica
//! older. If the clock of the database jumps forward, the replica that asks looks as old as the
//! others, and takes none for dead; if it jumps back, dead ones are noticed later by as much.

use std::time::Duration;

use tokio_postgres::Row;

use crate::base::clock::millis;
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::SessionName;
use crate::store::port::{
    DEAD_AFTER, DOUBTFUL_AFTER, DbError, DbOperation, KeptReplica, LEASE, LEASE_MARGIN, LeaseClaim, LeaseId,
    LeaseOutcome, ReplicaOperations, ReplicaRow, SessionClaim, SessionGift,
};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::failed;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};
use crate::store::postgres::tables::meta;
use crate::store::postgres::tables::replaced::{LEASES_FROM, time};

/// Time since a heartbeat in milliseconds, as an expression over a row of `replicas`.
const AGE: &str = "(extract(epoch FROM clock_timestamp() - beat) * 1000)::bigint";
/// Most rows that are read; those with the latest heartbeats come first.
const MOST: i64 = 1024;

impl ReplicaOperations for Postgres {
    fn beat(&self, row: ReplicaRow, begins: bool, now: u64) -> DbOperation<'_, Option<Vec<KeptReplica>>> {
        self.write(async move |session: &PostgresSession| {
            let sql = if begins {
                "INSERT INTO replicas (run, sealed, beat) VALUES ($1, $2, clock_timestamp()) \
                 ON CONFLICT (run) DO UPDATE SET sealed = excluded.sealed, beat = excluded.beat"
            } else {
                "UPDATE replicas SET sealed = $2, beat = clock_timestamp() WHERE run = $1"
            };
            let before = find_age(session, row.run).await?;
            if session.execute(sql, &[&&row.run.bytes()[..], &row.sealed]).await? == 0 {
                return Ok(None);
            }
            session.execute("DELETE FROM replicas WHERE beat < clock_timestamp() - interval '1 hour'", &[]).await?;
            session.execute("DELETE FROM session_owners WHERE until <= $1", &[&signed(now)]).await?;
            let sql = format!("SELECT run, sealed, {AGE} AS age FROM replicas ORDER BY beat DESC LIMIT $1");
            let rows = session.rows(&sql, &[&MOST]).await?;
            let mut kept = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let own = kept.iter_mut().find(|kept| kept.row.run == row.run);
            if let (Some(own), Some(before)) = (own, before) {
                own.age = before;
            }
            Ok(Some(kept))
        })
    }

    fn leave(&self, run: RunId) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| remove(session, run).await)
    }

    fn claim_session(&self, claim: SessionClaim) -> DbOperation<'_, RunId> {
        self.write(async move |session: &PostgresSession| {
            if let Some(refused) = claim.refused {
                remove(session, refused).await?;
            }
            let holder = find_holder(session, &claim.name, claim.named).await?;
            let by_age = claim.by_age && find_age(session, claim.by).await?.is_some_and(|own| own < DOUBTFUL_AFTER);
            if find_age(session, holder).await?.is_some_and(|age| !by_age || age < DEAD_AFTER) {
                return Ok(holder);
            }
            remove(session, holder).await?;
            set_holder(session, &claim.name, claim.by, claim.until).await?;
            Ok(claim.by)
        })
    }

    fn give_session(&self, gift: SessionGift) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            if find_holder(session, &gift.name, gift.named).await? == gift.from {
                set_holder(session, &gift.name, gift.to, gift.until).await?;
            }
            Ok(())
        })
    }

    fn claim_lease(&self, claim: LeaseClaim) -> DbOperation<'_, LeaseOutcome> {
        self.write(async move |session: &PostgresSession| {
            let now = time(session).await?;
            let (lease, by) = (&claim.lease[..], &claim.by.bytes()[..]);
            let until = signed(now.saturating_add(millis(LEASE)));
            let renewed = "UPDATE leases SET run = $3, until = $4 WHERE upstream = $1 AND lease = $2";
            if session.execute(renewed, &[&claim.upstream, &lease, &by, &until]).await? > 0 {
                return Ok(LeaseOutcome::Taken);
            }
            if meta::number(session, LEASES_FROM).await? > now {
                return Ok(LeaseOutcome::Unknown);
            }
            let over = signed(now.saturating_sub(millis(LEASE_MARGIN)));
            session.execute("DELETE FROM leases WHERE until < $1", &[&over]).await?;
            let sql = "INSERT INTO leases (upstream, lease, run, until) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
            if session.execute(sql, &[&claim.upstream, &lease, &by, &until]).await? > 0 {
                return Ok(LeaseOutcome::Taken);
            }
            let row = session.row("SELECT run FROM leases WHERE upstream = $1", &[&claim.upstream]).await?;
            row.map_or(Ok(LeaseOutcome::Unknown), |row| run(&row).map(LeaseOutcome::HeldBy))
        })
    }

    fn release_lease(&self, upstream: String, lease: LeaseId) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let sql = "DELETE FROM leases WHERE upstream = $1 AND lease = $2";
            session.execute(sql, &[&upstream, &&lease[..]]).await.map(drop)
        })
    }
}

fn read(row: &Row) -> Result<KeptReplica, DbError> {
    let replica = ReplicaRow { run: run(row)?, sealed: column(row, "sealed")? };
    Ok(KeptReplica { row: replica, age: age(row)? })
}

fn run(row: &Row) -> Result<RunId, DbError> {
    let bytes = column::<Vec<u8>>(row, "run")?.try_into().ok();
    bytes.and_then(RunId::new).ok_or_else(|| failed("a row has no readable run"))
}

fn age(row: &Row) -> Result<Duration, DbError> {
    unsigned(row, "age").map(Duration::from_millis)
}

async fn remove(session: &PostgresSession, run: RunId) -> Result<(), DbError> {
    session.execute("DELETE FROM replicas WHERE run = $1", &[&&run.bytes()[..]]).await.map(drop)
}

/// Returns the time since the last heartbeat of a run that has a row.
async fn find_age(session: &PostgresSession, run: RunId) -> Result<Option<Duration>, DbError> {
    let sql = format!("SELECT {AGE} AS age FROM replicas WHERE run = $1");
    session.row(&sql, &[&&run.bytes()[..]]).await?.map(|row| age(&row)).transpose()
}

/// Returns the run that claimed a session last, or the one that its id names.
async fn find_holder(session: &PostgresSession, name: &SessionName, named: RunId) -> Result<RunId, DbError> {
    let row = session.row("SELECT run FROM session_owners WHERE name = $1", &[&&name[..]]).await?;
    row.map_or(Ok(named), |row| run(&row))
}

async fn set_holder(session: &PostgresSession, name: &SessionName, run: RunId, until: u64) -> Result<(), DbError> {
    let sql = "INSERT INTO session_owners (name, run, until) VALUES ($1, $2, $3) \
               ON CONFLICT (name) DO UPDATE SET run = excluded.run, until = excluded.until";
    session.execute(sql, &[&&name[..], &&run.bytes()[..], &signed(until)]).await.map(drop)
}
