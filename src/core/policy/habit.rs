//! From habit to rule: reads the audit log, the latest record first, finds calls that people always allow, and makes rules of
//! them; and plays a log under other rules. Nothing here puts a rule in force.
//!
//! An operator who is tired of questions pastes what is suggested, so a suggestion covers what was approved and little else:
//!
//! - Approvals count, not calls: one grant for an hour is one approval, however often its caller uses it.
//! - An item that was denied once, by a person or a rule, is left out for all callers. So is one
//!   that its server or the operator calls destructive, except a tool that may overwrite: its rule
//!   takes calls below the folders that were approved, never segments that begin with a dot, and is
//!   marked ([`Suggestion::overwrites`]). A tool whose name removes or runs something is none.
//! - Names stand for themselves: an item or a caller whose name has a character that means something in patterns is left out, since
//!   its escaped form would be a name as well, which a server could use.
//! - A server's word only narrows a rule: a rule with `claims` ends to hold when the server says something else.
//! - Where the log has the arguments, a rule takes values that were approved, or paths below a directory that holds all that were
//!   approved; arguments that no approved call had must be absent. What it leaves open is said.
//!
//! All tables have a bound. An item beyond it is never suggested, and the summary says so.

mod answers;
mod find;
mod item;
mod play;
mod shape;
mod suggest;

pub use self::answers::{Approvals, Verdict};
pub use self::find::Habits;
pub use self::play::{Change, Counts, Replay};
pub use self::suggest::{Catalogue, Known, LeftOut, Suggestion, Suggestions, Why};

/// Approvals of an item by one caller from which on a rule is suggested.
pub const ENOUGH: u64 = 5;
/// Items, and pairs of item and caller, that are told apart.
const MAX_ITEMS: usize = 10_000;
const MAX_PAIRS: usize = 20_000;
/// Approvals whose question is still to come.
const MAX_OPEN: usize = 4096;
