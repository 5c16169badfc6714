//! Decisions: may this caller do this with this item, and how often. Pure; knows no transports and
//! no protocol eras.
//!
//! All deny rules are asked first, then all ask rules, then all allow rules, then the default; the
//! order of the rules and how specific they are mean nothing. Limits come last, so a refused call
//! burns nothing. Every doubt denies: a rule that *may* match fires when it denies or asks and does not
//! when it allows, and an action and rules that do not fit together are refused.
//!
//! | kind | an ask rule | the default, where no rule matches |
//! |---|---|---|
//! | tool, prompt, resource | needs a consent | holds |
//! | completion | means nothing, but see [`may_ask`] | holds, but "ask" allows |
//! | subscription, task | means nothing | holds, but "ask" allows: who gets no further than this learns nothing |
//! | sampling, elicitation, launch | means nothing | means nothing: allowed unless a rule denies it |
//!
//! [`Policy::build`] compiles what the operator wrote. [`Policy::item_rules`] resolves the globs
//! over names once for each item of the catalog. [`decide()`] is what a call costs, and the only
//! source of [`Permit`]s.

pub mod consent;

mod action;
mod annotations;
mod arguments;
mod caller;
pub mod chain;
mod compiled;
mod confirmed;
mod decide;
mod effect;
mod evidence;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
pub mod habit;
mod kind;
pub mod likeness;
mod limit;
mod limiter;
mod lint;
mod pattern;
mod permit;
mod pin;
mod problems;
mod record;
pub mod refusals;
mod rule;
mod spec;
mod truth;
mod uri;

pub use self::action::{Action, Facts};
pub use self::annotations::{Annotator, Trust};
pub use self::arguments::{ArgumentSpec, JsonType, MatcherSpec, Scalar};
pub use self::caller::{Caller, LOCAL};
pub use self::compiled::{ItemRules, Policy, Table};
pub use self::confirmed::{Askers, Confirmed, Reading};
pub use self::decide::{
    Considered, Decision, considered, decide, decide_again, may_ask, needs_arguments, still_allowed,
};
pub use self::effect::{AGAIN_RULE, Effect};
pub use self::evidence::Evidence;
pub use self::kind::Kind;
pub use self::limit::{Granted, KeyPart, Lease, LimitSpec, Overdrawn, Per, Rate, RowId, Stored, Used, day_of};
pub use self::limiter::{CallerLimiter, Limiter};
pub use self::permit::Permit;
pub use self::pin::{OnChange, Pin, PinState, Undecided};
pub use self::problems::PolicyProblem;
pub use self::record::{Entry, Event, ListChange, ListChanges, MAX_SINGLE_CHANGES, OperatorAction, Record, Removal};
pub use self::rule::{Field, RuleSpec};
pub use self::spec::PolicySpec;
pub use crate::mcp::annotations::{Annotations, Hints, Said};
pub use crate::mcp::claims::{Claims, Standing};
pub use crate::wire::digest::Digest;

#[cfg(test)]
mod tests;
