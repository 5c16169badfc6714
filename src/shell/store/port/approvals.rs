//! Operations on grants and open approvals, which the store calls prompts.

use std::sync::Arc;

use super::error::DbError;
use super::operation::Operation;
use crate::policy::consent::{ApprovalView, GrantRow, Wall};

/// Beginning of a daemon's name among the owners of open approvals.
pub const DAEMON: &str = "daemon-";

/// A gateway whose setting for the operator's commands is kept. A command without a daemon goes by
/// the stricter of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub enum Keeper {
    #[strum(serialize = "operator")]
    Daemon,
    /// One of `headend stdio`.
    #[strum(serialize = "operator_alone")]
    Alone,
}

/// An answer of another process.
#[derive(Clone, Debug)]
pub struct Answered {
    pub prompt: String,
    /// A `Wish`; behind a space the digest of what was shown, where the answer says it.
    pub answer: String,
    pub by: String,
}

/// A grant's uses that are not written yet.
#[derive(Clone, Debug)]
pub struct Used {
    pub id: Arc<str>,
    pub more: u64,
    pub last_used: Wall,
}

/// A grant that was revoked.
#[derive(Debug)]
pub struct Revoked {
    pub id: Arc<str>,
    /// `None` where it could not be read.
    pub row: Option<GrantRow>,
}

/// The state of grants and answers after another process has changed the store.
#[derive(Debug)]
pub struct ApprovalChanges {
    /// The version of the store that this is, to be compared alone.
    pub version: i64,
    pub live: Vec<GrantRow>,
    /// Answers that the asking process has not judged.
    pub answers: Vec<Answered>,
}

/// Operations on grants and open approvals together.
pub trait ApprovalOperations {
    /// Ends expired grants, seals prompts with the current key, and returns the live grants. A
    /// store that takes no writes is only read: the process ends expired grants in its memory
    /// anyway. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn open_approvals(&self, unused: Wall, now: Wall) -> Result<Vec<GrantRow>, DbError>;

    /// Enters a live grant and removes the prompt that it answers.
    fn keep_grant(&self, row: GrantRow, prompt: String) -> Operation<'_, ()>;

    /// Returns the changes for the process `owner`, if another process has changed the store since
    /// `version`.
    fn approvals_changed(&self, owner: String, version: i64) -> Operation<'_, Option<ApprovalChanges>>;

    /// Adds uses, ends expired grants and drops old ones, once a minute.
    fn settle_approvals(&self, used: Vec<Used>, unused: Wall, now: Wall) -> Operation<'_, ()>;
}

/// Operations on grants. Every process enters and ends them.
pub trait GrantOperations {
    /// Returns all live grants. A malformed row covers nothing.
    fn grants(&self) -> Operation<'_, Vec<GrantRow>>;

    /// Takes the one use of a once-grant: true for exactly one caller over all processes.
    fn consume_grant(&self, id: Arc<str>, now: Wall) -> Operation<'_, bool>;

    /// Ends live grants: that one, or all. Returns those, whether or not they can be read.
    fn revoke_grants(&self, id: Option<String>, now: Wall) -> Operation<'_, Vec<Revoked>>;

    /// Ends grants whose definition or launch has changed.
    fn invalidate_grants(&self, ids: Vec<Arc<str>>, now: Wall) -> Operation<'_, ()>;
}

/// Operations on open approvals and the answers of operators, so that a process without the prompt
/// can show and answer it: `headend approvals` without a daemon, or a daemon beside a
/// `headend stdio` of its own.
///
/// The process that opened a prompt is its owner: it alone enters and removes it, judges the
/// answers to it, and says what came of them. Every process may leave an answer. Message and
/// details, which have the arguments in them, are sealed.
pub trait PromptOperations {
    /// Enters a prompt of the process `owner`.
    fn enter_prompt(&self, owner: String, view: ApprovalView) -> Operation<'_, ()>;

    /// Returns everything that is kept about an open approval of any process; `None` where there is
    /// none, it does not open, or a process of an earlier release wrote it.
    fn prompt_details(&self, id: String) -> Operation<'_, Option<ApprovalView>>;

    /// Removes a closed prompt.
    fn remove_prompt(&self, id: String) -> Operation<'_, ()>;

    /// Removes the open approvals of all daemons, and returns them with an empty message. The
    /// caller has the lock of the state directory and opened none itself.
    fn remove_prompts_of_daemons(&self) -> Operation<'_, Vec<ApprovalView>>;

    /// Returns the open prompts, oldest first: of all processes, or without those of daemons, for
    /// commands that know that no daemon runs. One whose message does not open is left out.
    fn prompts(&self, now: Wall, with_daemons: bool) -> Operation<'_, Vec<ApprovalView>>;

    /// Leaves an answer for the owner of an open prompt; false where there is no such prompt. A
    /// second answer replaces one that was not taken.
    fn leave_answer(&self, answered: Answered, now: Wall) -> Operation<'_, bool>;

    /// Returns the owner's verdict about an answer, once there is one.
    fn outcome(&self, prompt: String) -> Operation<'_, Option<String>>;

    /// Reports the outcome to the process that left an answer.
    fn tell_outcome(&self, prompt: String, outcome: String) -> Operation<'_, ()>;

    /// Keeps a gateway's setting for the operator's commands.
    fn keep_operator(&self, keeper: Keeper, setting: u64) -> Operation<'_, ()>;

    /// Returns the strictest setting of the gateways that ran last, 0 where there was none.
    fn operator(&self) -> Operation<'_, u64>;
}
