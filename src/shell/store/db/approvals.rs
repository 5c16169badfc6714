//! Operations over grants and open prompts together.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::grants::{self, live};
use super::{Db, DbError, Operation, Work, meta, prompts};
use crate::base::clock;
use crate::policy::consent::{GrantRow, Wall};
use crate::store::approvals::{Answered, Used};

/// The version of the store, its live grants, and answers.
pub(super) type Changed = (i64, Vec<GrantRow>, Vec<Answered>);

impl Db {
    /// Ends expired grants, seals prompts with the current key, and returns the live grants. A
    /// store that takes no writes is only read: the process ends expired grants in its memory anyway. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn open_approvals(&self, unused: Wall, now: Wall) -> Result<Vec<GrantRow>, DbError> {
        let seals = self.seals.clone();
        let opened = self
            .write(move |connection| {
                let now = meta::not_before(connection, now)?;
                settle(connection, &[], unused, now)?;
                Ok((live(connection)?, prompts::reseal(connection, &seals)?))
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

    /// Enters a live grant and removes the prompt that it answers.
    pub fn keep_grant(&self, row: GrantRow, prompt: String) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| {
            grants::insert(connection, &row)?;
            prompts::delete(connection, &prompt)?;
            meta::saw(connection, row.granted_at)
        })
    }

    /// If another process has changed the store since `version`: its version, the live grants, and the answers to
    /// prompts of the process `owner`.
    pub fn approvals_changed(&self, owner: String, version: i64) -> Operation<'_, impl Work<Out = Option<Changed>>> {
        let health = Arc::clone(self.health());
        self.read(move |connection| {
            let now: i64 = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
            // Each connection counts its own versions.
            let now = now.wrapping_add(i64::try_from(health.connections()).unwrap_or(0) << 32);
            if now == version {
                return Ok(None);
            }
            // A process whose clock is behind would let the grants of the others live longer than they promised.
            clock::not_before(Duration::from_secs(meta::number(connection, meta::LATEST_TIME)?));
            Ok(Some((now, live(connection)?, prompts::answers(connection, &owner)?)))
        })
    }

    /// The work of each minute: adds uses, ends expired grants, drops old ones.
    pub fn settle_approvals(&self, used: Vec<Used>, unused: Wall, now: Wall) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| settle(connection, &used, unused, now))
    }
}

fn settle(connection: &Connection, used: &[Used], unused: Wall, now: Wall) -> rusqlite::Result<()> {
    grants::settle(connection, used, unused, now)?;
    prompts::sweep(connection, now)?;
    meta::saw(connection, now)
}
