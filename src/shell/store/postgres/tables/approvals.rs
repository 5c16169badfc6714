//! Operations over grants and open approvals together.

use std::sync::Arc;
use std::time::Duration;

use super::grants::{self, live};
use super::{meta, open_approvals};
use crate::base::clock;
use crate::policy::Digest;
use crate::policy::consent::{GrantRow, SharedAnswer, SteadySeconds};
use crate::store::port::{
    ApprovalChanges, ApprovalOperations, DbError, DbOperation, OwnedApproval, StoreEngine as _, UnwrittenGrantUses,
};
use crate::store::postgres::Postgres;
use crate::store::postgres::session::PostgresSession;

impl ApprovalOperations for Postgres {
    fn open_approvals(&self, unused: SteadySeconds, now: SteadySeconds) -> Result<Vec<GrantRow>, DbError> {
        let seals = self.seals.clone();
        let opened = self.announce(async move |session: &PostgresSession| {
            let now = meta::not_before(session, now).await?;
            settle(session, &[], unused, now).await?;
            open_approvals::reseal(session, &seals).await?;
            live(session).await
        });
        match opened.run_now() {
            Err(error) if error.is_unwritable() => self.grants_now(),
            opened => opened,
        }
    }

    fn keep_grant(&self, row: GrantRow, approval: Option<OwnedApproval>) -> DbOperation<'_, bool> {
        self.announce(async move |session: &PostgresSession| {
            if let Some(approval) = &approval {
                let answer = SharedAnswer { is_denial: false, evidence: row.evidence, by: row.by.to_string() };
                if !open_approvals::end(session, approval, Some(&answer)).await? {
                    return Ok(false);
                }
            }
            grants::insert(session, &row).await?;
            meta::saw(session, row.granted_at).await?;
            Ok(true)
        })
    }

    fn approvals_changed(&self, owner: String, version: i64) -> DbOperation<'_, Option<ApprovalChanges>> {
        let health = Arc::clone(self.health());
        self.read(async move |session: &PostgresSession| {
            let now = digest_of(session.count_changes().await?, health.connections());
            if now == version {
                return Ok(None);
            }
            // A process whose clock is behind would let the grants of the others live longer than
            // they promised.
            clock::advance_clock(Duration::from_secs(meta::number(session, meta::LATEST_TIME).await?));
            let (live, answers) = (live(session).await?, open_approvals::answers(session, &owner).await?);
            let ended = open_approvals::answered_elsewhere(session, &owner).await?;
            Ok(Some(ApprovalChanges { version: now, live, answers, ended }))
        })
    }

    fn settle_approvals(
        &self,
        used: Vec<UnwrittenGrantUses>,
        unused: SteadySeconds,
        now: SteadySeconds,
    ) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| settle(session, &used, unused, now).await)
    }
}

impl Postgres {
    fn grants_now(&self) -> Result<Vec<GrantRow>, DbError> {
        self.read(async |session: &PostgresSession| live(session).await).run_now()
    }
}

/// Returns a number for what a connection sees of the database.
fn digest_of(changes: i64, connection: u64) -> i64 {
    let digest = Digest::of(format!("{connection} {changes}").as_bytes());
    let first = digest.bytes().first_chunk().copied();
    first.map_or(0, i64::from_be_bytes)
}

async fn settle(
    session: &PostgresSession,
    used: &[UnwrittenGrantUses],
    unused: SteadySeconds,
    now: SteadySeconds,
) -> Result<(), DbError> {
    grants::settle(session, used, unused, now).await?;
    open_approvals::sweep(session, now).await?;
    meta::saw(session, now).await
}
