//! The port of the store: the data that outlives the process, as plain requests and answers.
//! Engines implement it, one folder for each; [`crate::store::db`] opens one, and all other files
//! know the port alone.
//!
//! Each operation is
//! - *atomic*: all of it or nothing, and what it decides by reading is true when it writes, over
//!   all processes;
//! - *durable*: its outcome is told once it is on the disk, and an error says that nothing was
//!   written, or, if the answer of a server was lost, that it may have been;
//! - *in order*: those of one process happen one after the other as they were begun, and their
//!   replies are called in that order, so that memory follows the order of the disk.
//!
//! An operation that only reads needs the order alone. Each trait says which processes write its
//! tables. Where a text says that it is sealed, the engine seals it with the keys of
//! [`crate::store::seal`].
//!
//! A store that takes no writes stops nothing: operations that would write fail, all others go on,
//! and the engine tries again until it takes them ([`StoreHealth`]).

use std::sync::Arc;
use std::time::Duration;

mod approvals;
mod audit;
mod client_tokens;
mod error;
mod health;
mod limits;
mod logins;
mod operation;
mod pins;
mod replicas;
mod restored;
mod sealed;
mod sessions;
mod sign_ins;
mod states;
pub(super) mod threads;

pub use self::approvals::{
    AnsweredElsewhere, ApprovalChanges, ApprovalOperations, DAEMON, ENDED_GRANT_LIFE, ForeignAnswer, GrantOperations,
    OpenApprovalOperations, OwnedApproval, RevokedGrant, SettingOwner, UnwrittenGrantUses,
};
pub use self::audit::{AuditHead, AuditOperations, ReplicaLogs};
pub use self::client_tokens::{ClientToken, ClientTokenOperations, TOKEN_PREFIX_BYTES, TokenAddition};
pub use self::error::DbError;
pub use self::health::{StoreHealth, wait_for_change};
pub use self::limits::LimitOperations;
pub use self::logins::{ClaimKey, KeptLogin, LoginKey, LoginOperations, LoginRowClaim, NewLogin};
pub use self::operation::{DbOperation, DbReply};
pub use self::pins::{PinOperations, PinStepResult, PinStepResults, PinTable};
#[cfg(any(test, feature = "testing"))]
pub use self::replicas::MemoryReplicas;
pub use self::replicas::{
    DEAD_AFTER, DOUBTFUL_AFTER, KeptReplica, LEASE, LEASE_MARGIN, LeaseClaim, LeaseId, LeaseOutcome, ReplicaOperations,
    ReplicaRow, SessionClaim, SessionGift,
};
pub use self::restored::{BackupRows, ReplacementOperations, RestoreMark, RestoreOperations};
pub use self::sealed::{ResealPosition, ResealedPart, SealOperations};
pub use self::sessions::{SessionOperations, SessionRows};
pub use self::sign_ins::{ConsoleSignIn, SecretDigest, SignInOperations};
pub use self::states::StateOperations;

/// An open store.
pub trait StoreEngine:
    ApprovalOperations
    + AuditOperations
    + ClientTokenOperations
    + GrantOperations
    + LimitOperations
    + LoginOperations
    + PinOperations
    + OpenApprovalOperations
    + ReplacementOperations
    + RestoreOperations
    + SealOperations
    + SessionOperations
    + SignInOperations
    + StateOperations
    + std::fmt::Debug
    + Send
    + Sync
{
    /// Returns the health of the store: whether it takes writes.
    fn health(&self) -> &Arc<StoreHealth>;

    /// Returns the operations on replicas; `None` for a store of one machine.
    fn replicas(&self) -> Option<Arc<dyn ReplicaOperations>> {
        None
    }

    /// Waits for all operations begun before this one: their writes are on disk.
    fn all_so_far(&self) -> DbOperation<'_, ()>;

    /// Stores a time that was seen, in seconds since 1970, unless a later one is stored.
    fn see(&self, now: u64) -> DbOperation<'_, ()>;

    /// Returns the latest time that any process has seen, since 1970.
    fn latest_time(&self) -> DbOperation<'_, Duration>;

    /// Damages the data for a test, by a command in the engine's language.
    #[cfg(test)]
    fn damage(&self, words: &'static str);

    /// Makes the engine refuse writes, as a full disk does, or take them again.
    #[cfg(any(test, feature = "testing"))]
    fn refuse_writes(&self, on: bool);
}
