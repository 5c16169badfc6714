//! Ends that this process has written lately, for a database that may have lost the last changes.
//!
//! After a fail-over each replica that still lives writes its ends again before anything else: used
//! states, ended sessions, revoked tokens and revoked grants stay what they are. The ends that a
//! dead replica alone knew of are lost with it. Pins count their changes, and each replica that has
//! read a rejection keeps to it in memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::session::{PostgresSession, signed};
use crate::base::clock;
use crate::engine::sealed::ended::{EndedSession, SessionFloor};
use crate::engine::sealed::state::StateUse;
use crate::store::port::DbError;

/// Time for which an end is kept: longer than a standby is behind.
const KEPT: Duration = Duration::from_secs(600);
/// Most ends that are kept; the oldest give way.
const MOST: usize = 65_536;

/// Something that has ended and must not become valid again.
#[derive(Clone, Debug)]
pub(super) enum WrittenEnd {
    State(StateUse),
    Session(EndedSession),
    Floor(SessionFloor),
    /// The digest of a revoked token, in the two parts of its row.
    Token(Vec<u8>, Vec<u8>),
    /// The id of a revoked grant.
    Grant(String),
}

/// The ends that this process has written lately.
#[derive(Debug, Default)]
pub(super) struct WrittenEnds(Mutex<VecDeque<(Instant, WrittenEnd)>>);

impl WrittenEnds {
    /// Keeps an end that is being written, and drops old ones. One whose commit fails is kept too:
    /// its answer may be all that is lost.
    pub(super) fn keep(&self, end: WrittenEnd) {
        let now = clock::now();
        let mut ends = self.0.lock();
        while ends.len() >= MOST || ends.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > KEPT) {
            ends.pop_front();
        }
        ends.push_back((now, end));
    }

    /// Writes the ends into a database that may lack them. Must be in a transaction.
    pub(super) async fn restore(&self, session: &PostgresSession) -> Result<(), DbError> {
        let ends: Vec<WrittenEnd> = self.0.lock().iter().map(|(_, end)| end.clone()).collect();
        for written in ends {
            match written {
                WrittenEnd::State(state) => {
                    let sql = "INSERT INTO used_states (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
                    session.execute(sql, &[&&state.id[..], &signed(state.until)]).await?;
                }
                WrittenEnd::Session(ended) => end(session, &ended).await?,
                WrittenEnd::Floor(floor) => raise(session, &floor).await?,
                WrittenEnd::Token(prefix, rest) => {
                    let sql = "DELETE FROM client_tokens WHERE prefix = $1 AND rest = $2";
                    session.execute(sql, &[&&prefix[..], &&rest[..]]).await?;
                }
                WrittenEnd::Grant(id) => {
                    let now = signed(clock::since_1970().as_secs());
                    let sql = "UPDATE grants SET state = 'revoked', ended_at = $2 WHERE id = $1 AND state = 'live'";
                    session.execute(sql, &[&id, &now]).await?;
                }
            }
        }
        Ok(())
    }
}

/// Notes the end of a session, and drops its stored part.
pub(super) async fn end(session: &PostgresSession, ended: &EndedSession) -> Result<(), DbError> {
    let name = &ended.name[..];
    session.execute("DELETE FROM session_levels WHERE name = $1", &[&name]).await?;
    session.execute("DELETE FROM session_resources WHERE name = $1", &[&name]).await?;
    let sql = "INSERT INTO ended_sessions (caller, opened, name, until) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (caller, opened, name) DO UPDATE SET until = excluded.until";
    let (caller, opened, until) = (ended.caller.key().to_string(), signed(ended.opened), signed(ended.until));
    session.execute(sql, &[&caller, &opened, &name, &until]).await.map(drop)
}

/// Raises the floor of a caller, and drops the notes below it.
pub(super) async fn raise(session: &PostgresSession, floor: &SessionFloor) -> Result<(), DbError> {
    let (caller, opened, until) = (floor.caller.key().to_string(), signed(floor.opened), signed(floor.until));
    let sql = "INSERT INTO ended_floors (caller, opened, until) VALUES ($1, $2, $3) ON CONFLICT (caller) DO UPDATE \
               SET opened = greatest(ended_floors.opened, excluded.opened), until = greatest(ended_floors.until, excluded.until)";
    session.execute(sql, &[&caller, &opened, &until]).await?;
    let sql = "DELETE FROM ended_sessions WHERE caller = $1 AND opened <= $2";
    session.execute(sql, &[&caller, &opened]).await.map(drop)
}
