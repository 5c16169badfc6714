//! Operations on sessions of HTTP clients. The daemon alone enters rows: no other process serves
//! HTTP. Every process may remove those of ids that have expired.

use super::error::DbError;
use super::operation::DbOperation;
use crate::engine::sealed::ended::{EndedSession, EndedSessions, SessionFloor};
use crate::engine::sealed::session_id::SessionName;

/// The stored part of a session besides its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRows {
    pub level: Option<String>,
    /// The watched resources, each with its slot.
    pub resources: Vec<(u64, String)>,
}

/// Operations on ended sessions, and on the stored parts of live ones.
pub trait SessionOperations {
    /// Notes that a session has ended, and drops its stored part. A floor replaces the notes below
    /// it.
    fn end_session(&self, session: EndedSession, floor: Option<SessionFloor>) -> DbOperation<'_, ()>;

    /// Notes that the oldest sessions of a caller have ended, because there are too many. A floor
    /// replaces the notes below it.
    fn end_sessions_below(&self, floor: SessionFloor) -> DbOperation<'_, ()>;

    /// Returns the ended sessions whose ids have not expired, and removes the rows of others, if
    /// the store takes writes. Blocks.
    ///
    /// # Errors
    /// When they cannot be read.
    fn ended_sessions(&self, now: u64) -> Result<EndedSessions, DbError>;

    /// Removes the rows of sessions whose ids have expired.
    fn sweep_sessions(&self, now: u64) -> DbOperation<'_, ()>;

    /// Keeps the log level of a session, unless that has ended meanwhile.
    fn keep_level(&self, session: EndedSession, level: &'static str) -> DbOperation<'_, ()>;

    /// Keeps a resource that a session watches, at that place, unless the session has ended
    /// meanwhile.
    fn keep_resource(&self, session: EndedSession, slot: u64, uri: String) -> DbOperation<'_, ()>;

    /// Drops a resource that a session watches no longer.
    fn drop_resource(&self, name: SessionName, slot: u64) -> DbOperation<'_, ()>;

    /// Returns the stored part of a session; `None` if the session has ended, and if any of its
    /// part does not open, since its key is gone.
    fn kept_session(&self, session: EndedSession) -> DbOperation<'_, Option<SessionRows>>;
}
