//! Operations over grants and open approvals together.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::grants::{self, live};
use super::{meta, open_approvals};
use crate::base::clock;
use crate::policy::consent::{GrantRow, SteadySeconds};
use crate::store::port::{
    ApprovalChanges, ApprovalOperations, DbError, DbOperation, OwnedApproval, StoreEngine as _, UnwrittenGrantUses,
};
use crate::store::sqlite::Sqlite;

impl ApprovalOperations for Sqlite {
    fn open_approvals(&self, unused: SteadySeconds, now: SteadySeconds) -> Result<Vec<GrantRow>, DbError> {
        let seals = self.seals.clone();
        let opened = self
            .write(move |connection| {
                let now = meta::not_before(connection, now)?;
                settle(connection, &[], unused, now)?;
                Ok((live(connection)?, open_approvals::reseal(connection, &seals)?))
            })
            .run_now();
        let (grants, resealed) = match opened {
            Err(error) if error.is_unwritable() => self.read(|connection| Ok((live(connection)?, false))).run_now()?,
            opened => opened?,
        };
        if resealed {
            self.forget_replaced();
        }
        Ok(grants)
    }

    fn keep_grant(&self, row: GrantRow, approval: Option<OwnedApproval>) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            grants::insert(connection, &row)?;
            if let Some(approval) = approval {
                open_approvals::delete(connection, &approval.id)?;
            }
            meta::saw(connection, row.granted_at)?;
            Ok(true)
        })
    }

    fn approvals_changed(&self, owner: String, version: i64) -> DbOperation<'_, Option<ApprovalChanges>> {
        let health = Arc::clone(self.health());
        self.read(move |connection| {
            let now: i64 = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
            // Each connection counts its own versions.
            let now = now.wrapping_add(i64::try_from(health.connections()).unwrap_or(0) << 32);
            if now == version {
                return Ok(None);
            }
            // A process whose clock is behind would let the grants of the others live longer than
            // they promised.
            clock::advance_clock(Duration::from_secs(meta::number(connection, meta::LATEST_TIME)?));
            let (live, answers) = (live(connection)?, open_approvals::answers(connection, &owner)?);
            Ok(Some(ApprovalChanges { version: now, live, answers, ended: Vec::new() }))
        })
    }

    fn settle_approvals(
        &self,
        used: Vec<UnwrittenGrantUses>,
        unused: SteadySeconds,
        now: SteadySeconds,
    ) -> DbOperation<'_, ()> {
        self.write(move |connection| settle(connection, &used, unused, now))
    }
}

fn settle(
    connection: &Connection,
    used: &[UnwrittenGrantUses],
    unused: SteadySeconds,
    now: SteadySeconds,
) -> rusqlite::Result<()> {
    grants::settle(connection, used, unused, now)?;
    open_approvals::sweep(connection, now)?;
    meta::saw(connection, now)
}
