//! Policy: the decision whether a caller may perform an action on an item, and how often. Pure;
//! knows no transports and no protocol eras.
//!
//! [`decide()`] judges all deny rules first, then all ask rules, then all allow rules, then the
//! default. The order of the rules and how specific they are do not matter. Limits come last, so a
//! refused call uses no limit up. A doubt never allows: a rule that *may* match applies if it
//! denies or asks and does not apply if it allows, and an action is denied if it does not fit the
//! rules that it is judged by.
//!
//! | kind | an ask rule | the default, if no rule matches |
//! |---|---|---|
//! | tool, prompt, resource | needs an approval | applies |
//! | completion | has no effect, but see [`may_ask`] | applies, but "ask" allows |
//! | subscription, task | has no effect | applies, but "ask" allows: they reveal nothing |
//! | sampling, elicitation, launch | has no effect | allowed unless a rule denies it |
//!
//! [`Policy::build`] compiles the operator's rules. [`Policy::item_rules`] resolves the globs over
//! names once for each item of the catalog. [`decide()`] does the work of each call. Only the
//! decisions of this module issue [`Permit`]s.

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
