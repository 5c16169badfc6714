//! Suggestions from the audit log: finds calls that people always allow, makes rules for them, and
//! replays a log under other rules. Reads the log from the latest record backwards. Nothing here
//! puts a rule in force.
//!
//! An operator who is tired of questions pastes a suggestion unread, so a suggested rule covers
//! what was approved and little else:
//!
//! - Approvals count, not calls: one grant for an hour is one approval, however often its caller
//!   uses it.
//! - An item that a person or a rule denied once is left out for all callers. So is an item that
//!   its server or the operator calls destructive, except a tool that may overwrite: its rule
//!   covers calls below the approved folders, without segments that begin with a dot, and is marked
//!   ([`Suggestion::overwrites`]). A tool whose name removes or runs something is no such
//!   exception.
//! - Names are literal: an item or a caller whose name has a character with a meaning in patterns
//!   is left out. Its escaped form would be a valid name as well, which a server could use.
//! - A server's claim only narrows a rule: a rule with `claims` stops to match when the server
//!   claims something else.
//! - If the log has the arguments, a rule covers values that were approved, or paths below a
//!   directory that contains all approved ones; arguments that no approved call had must be absent.
//!   The suggestion says what it leaves open.
//!
//! All tables are bounded. An item beyond a bound is never suggested, and the summary says so.

mod answers;
mod find;
mod item;
mod play;
mod shape;
mod suggest;

pub use self::answers::{ApprovalCounts, ApprovalVerdict};
pub use self::find::Habits;
pub use self::play::{CallCounts, ItemChange, PolicyReplay};
pub use self::suggest::{OmissionReason, OmittedItem, PresentItem, PresentItems, Suggestion, Suggestions};

/// Approvals of an item by one caller that are needed for a suggestion.
pub const ENOUGH: u64 = 5;
/// Most items that are told apart.
const MAX_ITEMS: usize = 10_000;
/// Most pairs of item and caller that are told apart.
const MAX_PAIRS: usize = 20_000;
/// Most answers that wait for the record of their question.
const MAX_OPEN: usize = 4096;
