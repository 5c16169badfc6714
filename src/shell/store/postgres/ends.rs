//! What this process has ended lately, for a database that may have lost the last changes.
//!
//! After a fail-over each replica that still lives writes its ends again before anything else: used
//! states, ended sessions, revoked tokens and revoked grants stay what they are. The ends that a dead
//! replica alone knew of are lost with it. Pins count their changes, and each replica that has read a
//! rejection keeps to it in memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::session::{PostgresSession, signed};
use super::tables::sessions;
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
        for end in ends {
            match end {
                WrittenEnd::State(state) => {
                    let sql = "INSERT INTO used_states (id, until) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
                    session.execute(sql, &[&&state.id[..], &signed(state.until)]).await?;
                }
                WrittenEnd::Session(ended) => sessions::end(session, &ended).await?,
                WrittenEnd::Floor(floor) => sessions::raise(session, &floor).await?,
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
