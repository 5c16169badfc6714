//! Policy: the decision whether a caller may perform an action on an item, and how often. Pure;
//! knows no transports and no protocol eras.
//!
//! [`decide()`] judges all deny rules first, then all ask rules, then all allow rules, then the
//! default. The order of the rules and how specific they are do not matter. A call that the rules
//! do not deny needs the scopes of its item, before any approval. Limits come last, so a
//! refused call uses no limit up. A doubt never allows: a rule that *may* match applies if it
//! denies or asks and does not apply if it allows, and an action is denied if it does not fit the
//! rules that it is judged by.
//!
//! | kind | an ask rule | the default, if no rule matches |
//! |---|---|---|
//! | tool, prompt, resource | needs an approval | applies |
//! | completion | has no effect, but see [`asking_rule`] | applies, but "ask" allows |
//! | subscription, task | has no effect | applies, but "ask" allows: they reveal nothing |
//! | sampling, elicitation, launch | has no effect | allowed unless a rule denies it |
//!
//! [`Policy::build`] compiles the operator's rules. [`Policy::item_rules`] resolves the globs over
//! names once for each item of the catalog. [`decide()`] does the work of each call. Only the
//! decisions of this module issue [`Permit`]s.

pub mod consent;
pub mod facts;
pub mod records;
mod rules;

mod action;
mod caller;
mod compiled;
mod decide;
mod effect;
mod evidence;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod fuzz;
mod kind;
mod limit;
mod limiter;
mod lint;
mod permit;
mod pin;
mod spec;

pub use self::action::{PolicyAction, ToolFacts};
pub use self::caller::{Caller, CallerRights, Groups, LOCAL, MAX_SUBJECT_BYTES, RESERVED, Scopes};
pub use self::compiled::{ItemRules, Policy, PolicyTable};
pub use self::decide::{
    Decision, RuleMatch, asking_rule, decide, decide_again, decide_scope, is_still_allowed, matching_rules,
    needs_arguments,
};
pub use self::effect::{AGAIN_RULE, RuleEffect};
pub use self::evidence::ApprovalEvidence;
pub use self::kind::ActionKind;
pub use self::limit::{
    BucketRow, KeyPart, LeaseBound, LimitLease, LimitSpec, OverdrawnLimit, Rate, RateUnit, StoredBucket, UsedBucket,
    day_of,
};
pub use self::limiter::{CallerLimiter, Limiter};
pub use self::permit::Permit;
pub use self::pin::{ChangePolicy, Pin, PinDecisionError, PinState};
pub use self::spec::PolicySpec;
pub use crate::mcp::definition::annotations::{Annotations, Hints, StatedHints};
pub use crate::mcp::definition::claims::{Claims, PinStatus};
pub use crate::policy::facts::annotations::{OperatorHints, UpstreamTrust};
pub use crate::policy::facts::confirmed::{AskerListing, ConfirmedLaunches, ToolListing};
pub use crate::policy::records::record::{
    AuditEntry, AuditEvent, DecisionRecord, ListChange, ListChanges, MAX_SINGLE_CHANGES, OperatorAction, RecordRemoval,
};
pub use crate::policy::rules::arguments::{ArgumentSpec, JsonType, MatcherSpec, ScalarSpec};
pub use crate::policy::rules::problems::PolicyProblem;
pub use crate::policy::rules::rule::{CallerPatterns, PatternField, RuleSpec, RuleSubject, ScopeSpec};
pub use crate::wire::digest::Digest;

#[cfg(test)]
mod tests;
