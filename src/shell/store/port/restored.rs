//! Operations on the mark of a store that was restored from a backup, and on the identity of a
//! store. A backup has the mark from the beginning; the first start of a daemon on it and the
//! operator's review change it.

use super::operation::DbOperation;

/// A restore that no person has reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreMark {
    /// Time of the backup, in seconds since 1970.
    pub backup_time: u64,
    /// Whether the restore is in the audit log.
    pub is_recorded: bool,
}

/// The numbers of rows in a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupRows {
    /// Live grants.
    pub grants: usize,
    pub pins: usize,
    /// Logins at upstreams, sealed.
    pub logins: usize,
}

/// Operations on the mark of a restore and the identity of the store.
pub trait RestoreOperations {
    /// Returns the restore that waits for a review.
    fn restore_mark(&self) -> DbOperation<'_, Option<RestoreMark>>;

    /// Gives the store a new identity, so that two restores of one backup have nothing in common.
    fn renew_identity(&self) -> DbOperation<'_, ()>;

    /// Notes that the restore is in the audit log.
    fn note_restore_recorded(&self) -> DbOperation<'_, ()>;

    /// Removes the mark, and gives the store a new identity if no daemon has. Returns the time of
    /// the backup, or `None` if there was no mark.
    fn end_restore_review(&self) -> DbOperation<'_, Option<u64>>;

    /// Returns the secret of this store beside its key: that of the installation, or of the
    /// restored backup.
    fn identity(&self) -> DbOperation<'_, [u8; 32]>;
}

/// Operations on the mark of a store that was found in another database than before, which may lack
/// the last changes: after a fail-over, or a restore by the database's own tools.
pub trait ReplacementOperations {
    /// Returns the number of once-grants that were ended because of that; `None` if there is
    /// nothing to record.
    fn replacement(&self) -> DbOperation<'_, Option<u64>>;

    /// Removes the mark, once it is in the audit log.
    fn note_replacement_recorded(&self) -> DbOperation<'_, ()>;
}
