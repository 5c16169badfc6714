//! Operations on the store's knowledge of the audit log: the last record of each chain is kept
//! outside of the log, so that a log that was cut or rolled back is noticed.

use std::collections::BTreeMap;

use super::operation::DbOperation;
use crate::policy::records::chain::ChainHead;

/// The last record of a chain that is known to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHead {
    pub chain: String,
    pub head: ChainHead,
    /// Name of the file with the record.
    pub segment: String,
}

/// The store's knowledge of the audit logs of all replicas of a cluster.
#[derive(Debug)]
pub struct ReplicaLogs {
    /// The heads of each replica's chains, by its name.
    pub heads: BTreeMap<String, Vec<AuditHead>>,
    /// The secret of the installation.
    pub key: [u8; 32],
}

/// Operations on heads of chains, which only the writer of a chain keeps, and on the secret of the
/// installation.
pub trait AuditOperations {
    /// Returns the heads of all chains.
    fn audit_heads(&self) -> DbOperation<'_, Vec<AuditHead>>;

    /// Replaces the head of a chain.
    fn keep_audit_head(&self, kept: AuditHead) -> DbOperation<'_, ()>;

    /// Removes the head of a chain that has no records left.
    fn forget_audit_head(&self, chain: String) -> DbOperation<'_, ()>;

    /// Returns the secret of the installation, 32 random bytes that are made with the store.
    fn installation_key(&self) -> DbOperation<'_, [u8; 32]>;
}
