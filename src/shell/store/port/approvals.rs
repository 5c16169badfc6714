//! Operations on grants and open approvals.

use std::sync::Arc;

use super::error::DbError;
use super::operation::DbOperation;
use crate::policy::Digest;
use crate::policy::consent::{ApprovalView, GrantRow, SharedAnswer, SteadySeconds};

/// Beginning of a daemon's name among the owners of open approvals.
pub const DAEMON: &str = "daemon-";

/// A gateway whose setting for the operator's commands is kept. A command without a daemon goes by
/// the stricter of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub enum SettingOwner {
    #[strum(serialize = "operator")]
    Daemon,
    /// A gateway of `headend stdio`, which serves without the daemon.
    #[strum(serialize = "operator_alone")]
    Alone,
}

/// An operator's answer that another process left in the store.
#[derive(Clone, Debug)]
pub struct ForeignAnswer {
    pub approval: String,
    /// A `Wish`; after a space the digest of the text that was shown, if the answer has it.
    pub answer: String,
    pub by: String,
}

/// An open approval and a process that has it open.
#[derive(Clone, Debug)]
pub struct OwnedApproval {
    pub id: String,
    pub owner: String,
}

/// An approval that was answered on another replica.
#[derive(Clone, Debug)]
pub struct AnsweredElsewhere {
    pub approval: String,
    pub answer: SharedAnswer,
}

/// A grant's uses that are not written yet.
#[derive(Clone, Debug)]
pub struct UnwrittenGrantUses {
    pub id: Arc<str>,
    pub more: u64,
    pub last_used: SteadySeconds,
}

/// A grant that was revoked.
#[derive(Debug)]
pub struct RevokedGrant {
    pub id: Arc<str>,
    /// The grant's row; `None` if it could not be read.
    pub row: Option<GrantRow>,
}

/// The state of grants and answers after another process has changed the store.
#[derive(Debug)]
pub struct ApprovalChanges {
    /// The version of the store with these changes. Versions can only be compared for equality.
    pub version: i64,
    pub live: Vec<GrantRow>,
    /// Answers that the owner of their approvals has not judged.
    pub answers: Vec<ForeignAnswer>,
    /// The process's open approvals that were answered on other replicas.
    pub ended: Vec<AnsweredElsewhere>,
}

/// Operations on grants and open approvals together.
pub trait ApprovalOperations {
    /// Ends expired grants, seals approvals with the current key, and returns the live grants. A
    /// store that takes no writes is only read: the process ends expired grants in its memory
    /// anyway. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn open_approvals(&self, unused: SteadySeconds, now: SteadySeconds) -> Result<Vec<GrantRow>, DbError>;

    /// Enters a live grant and ends the approval that it answers, if it answers one. Enters nothing
    /// and returns false if the approval was answered on another replica before.
    fn keep_grant(&self, row: GrantRow, approval: Option<OwnedApproval>) -> DbOperation<'_, bool>;

    /// Returns the changes for the process `owner`, if another process has changed the store since
    /// `version`.
    fn approvals_changed(&self, owner: String, version: i64) -> DbOperation<'_, Option<ApprovalChanges>>;

    /// Adds uses, ends expired grants and drops old ones, once a minute.
    fn settle_approvals(
        &self,
        used: Vec<UnwrittenGrantUses>,
        unused: SteadySeconds,
        now: SteadySeconds,
    ) -> DbOperation<'_, ()>;
}

/// Time for which ended grants are kept for inspection, in seconds.
pub const ENDED_GRANT_LIFE: SteadySeconds = 90 * 24 * 3600;

/// Operations on grants. Every process enters and ends them.
pub trait GrantOperations {
    /// Returns all live grants. A malformed row covers nothing.
    fn grants(&self) -> DbOperation<'_, Vec<GrantRow>>;

    /// Takes the one use of a once-grant: true for exactly one caller over all processes.
    fn consume_grant(&self, id: Arc<str>, now: SteadySeconds) -> DbOperation<'_, bool>;

    /// Ends one live grant, or all, and returns the ended grants, whether or not they can be read.
    fn revoke_grants(&self, id: Option<String>, now: SteadySeconds) -> DbOperation<'_, Vec<RevokedGrant>>;

    /// Ends grants whose definition or launch has changed.
    fn invalidate_grants(&self, ids: Vec<Arc<str>>, now: SteadySeconds) -> DbOperation<'_, ()>;
}

/// Operations on open approvals and the answers of operators. By these a process can show and
/// answer the approvals of another one: `headend approvals` without a daemon, or a daemon beside a
/// `headend stdio` of its own.
///
/// The process that opened an approval is its owner: it alone enters and removes it, judges the
/// answers to it, and reports their outcome. Every process may leave an answer. Message and
/// details, which have the arguments in them, are sealed.
///
/// In a cluster the same action has one open approval: a process that enters another one becomes an
/// owner of the one that is there. Each owner may judge answers, and the first one that counts ends
/// the approval for all. Equal calls that wait in one process have an approval each, the first of
/// which is shared.
pub trait OpenApprovalOperations {
    /// Enters an open approval of the process `owner` about an action, or makes the process an
    /// owner of the open approval that another replica has entered about it. Returns the id of the
    /// approval.
    fn enter_approval(&self, owner: String, view: ApprovalView, action: Digest) -> DbOperation<'_, String>;

    /// Returns all stored data of an open approval of any process; `None` if there is no such
    /// approval, its data does not open, or a process of an earlier release wrote it.
    fn approval_details(&self, id: String) -> DbOperation<'_, Option<ApprovalView>>;

    /// Removes an approval that its owner has closed. An answer ends it for its other owners too;
    /// without one it stays open for them.
    fn remove_approval(&self, approval: OwnedApproval, answer: Option<SharedAnswer>) -> DbOperation<'_, ()>;

    /// Removes the open approvals of all daemons but `owner`, and returns them with an empty
    /// message. The caller is `owner`, and no other daemon may use the state directory.
    fn remove_approvals_of_daemons(&self, owner: String) -> DbOperation<'_, Vec<ApprovalView>>;

    /// Returns the open approvals, oldest first: of all processes, or without those of daemons, for
    /// commands that know that no daemon runs. An approval whose message does not open is left out.
    fn listed_approvals(&self, now: SteadySeconds, with_daemons: bool) -> DbOperation<'_, Vec<ApprovalView>>;

    /// Leaves an answer for the owner of an open approval; false if there is no such approval. A
    /// second answer replaces one that was not taken.
    fn leave_answer(&self, answered: ForeignAnswer, now: SteadySeconds) -> DbOperation<'_, bool>;

    /// Takes an answer in order to judge it: true for exactly one of the owners.
    fn take_answer(&self, approval: String) -> DbOperation<'_, bool>;

    /// Returns the owner's verdict about an answer, once there is one.
    fn outcome(&self, approval: String) -> DbOperation<'_, Option<String>>;

    /// Reports the outcome to the process that left an answer.
    fn tell_outcome(&self, approval: String, outcome: String) -> DbOperation<'_, ()>;

    /// Keeps a gateway's setting for the operator's commands.
    fn keep_operator(&self, keeper: SettingOwner, setting: u64) -> DbOperation<'_, ()>;

    /// Returns the strictest setting of the gateways that ran last; 0 without one.
    fn operator(&self) -> DbOperation<'_, u64>;
}
