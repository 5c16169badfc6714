//! Conditions on the arguments of a call, evaluated in three values ([`Truth`]).
//!
//! A condition applies one matcher to the values that a [`ArgumentPointer`] leads to. The answer is
//! yes or no if every server reads the arguments alike, and unknown if that depends on the server:
//! a value of another type than the matcher tests, a key beside one that differs in case alone, a
//! number beyond what all JSON readers keep, a path with `..`, a host in an odd spelling, arguments
//! that cannot be parsed. An unknown answer applies a rule that denies or asks, and never a rule
//! that allows.
//!
//! An absent value is no match, except if that could allow a call: then `ne` and the conditions of
//! `unless` take it for unknown, since a server may have a default of its own.

use std::cell::OnceCell;

use super::problems::PolicyProblems;
use super::truth::Truth;
use crate::policy::effect::RuleEffect;
use crate::policy::kind::ActionKind;
use crate::wire::json::raw::RawJson;

#[cfg(any(test, fuzzing, feature = "testing"))]
pub(in crate::policy) mod fuzz;
mod json;
mod matcher;
pub(in crate::policy) mod outline;
mod pointer;
pub(in crate::policy) mod text;

pub use self::matcher::{ArgumentSpec, JsonType, MatcherSpec, ScalarSpec};

pub(in crate::policy) use self::text::is_plain_path;

use self::json::LosslessJson;
use self::matcher::ArgumentMatcher;
use self::pointer::{ArgumentPointer, Quantifier};

/// The arguments of the call to decide, parsed at most once and only if a condition needs them.
#[derive(Debug)]
pub(in crate::policy) struct CallArguments<'a> {
    known: ArgumentKnowledge<'a>,
    parsed: OnceCell<Option<LosslessJson<'a>>>,
}

/// Knowledge about the arguments of a call at the time of the decision.
#[derive(Clone, Copy, Debug)]
enum ArgumentKnowledge<'a> {
    /// The arguments of the call; `None` if it has none.
    Given(Option<&'a RawJson>),
    /// The arguments are not known yet, as for a completion or a server's question.
    Unknown,
    /// The call was decided with its arguments before; this request has none.
    Settled,
}

impl<'a> CallArguments<'a> {
    /// Takes the arguments of an action of this kind; kinds without arguments ignore `raw`.
    pub(in crate::policy) fn new(kind: ActionKind, raw: Option<&'a RawJson>) -> Self {
        let known = match kind {
            ActionKind::Tool | ActionKind::Prompt => ArgumentKnowledge::Given(raw),
            ActionKind::Resource | ActionKind::Subscription | ActionKind::Launch => ArgumentKnowledge::Given(None),
            // The decision about a server's question is made before the question is read.
            ActionKind::Completion | ActionKind::Sampling | ActionKind::Elicitation => ArgumentKnowledge::Unknown,
            ActionKind::Task => ArgumentKnowledge::Settled,
        };
        Self { known, parsed: OnceCell::new() }
    }

    /// Returns the parsed arguments; `None` if they are unknown or cannot be parsed.
    fn root(&self) -> Option<&LosslessJson<'a>> {
        let read = || match self.known {
            ArgumentKnowledge::Given(Some(raw)) => LosslessJson::read(raw.bytes()),
            ArgumentKnowledge::Given(None) => Some(LosslessJson::Object(Vec::new())),
            ArgumentKnowledge::Unknown | ArgumentKnowledge::Settled => None,
        };
        self.parsed.get_or_init(read).as_ref()
    }

    #[cfg(test)]
    pub(in crate::policy) fn is_parsed(&self) -> bool {
        self.parsed.get().is_some()
    }
}

/// The compiled conditions `arguments` and `unless` of one rule.
#[derive(Debug)]
pub(in crate::policy) struct RuleConditions {
    effect: RuleEffect,
    /// Conditions that must all hold.
    arguments: Box<[ArgumentCondition]>,
    /// Exceptions: the rule does not apply if all of these hold.
    unless: Box<[ArgumentCondition]>,
}

/// A matcher for the values that a pointer leads to.
#[derive(Debug)]
pub(in crate::policy) struct ArgumentCondition {
    pointer: ArgumentPointer,
    matcher: ArgumentMatcher,
}

impl RuleConditions {
    /// Compiles the conditions of a rule and adds their problems to `problems`. Returns `None` if
    /// the rule has no conditions.
    pub(in crate::policy) fn compile(
        path: &str,
        effect: RuleEffect,
        arguments: &[ArgumentSpec],
        unless: &[ArgumentSpec],
        problems: &mut PolicyProblems,
    ) -> Option<Self> {
        let mut list = |key: &str, specs: &[ArgumentSpec]| {
            let compile = |(index, spec)| ArgumentCondition::compile(&format!("{path}.{key}[{index}]"), spec, problems);
            specs.iter().enumerate().filter_map(compile).collect()
        };
        let this = Self { effect, arguments: list("arguments", arguments), unless: list("unless", unless) };
        (!arguments.is_empty() || !unless.is_empty()).then_some(this)
    }

    /// Whether the rule applies to a call with these arguments.
    pub(in crate::policy) fn truth(&self, arguments: &CallArguments<'_>) -> Truth {
        if matches!(arguments.known, ArgumentKnowledge::Settled) {
            return Truth::No;
        }
        let Some(root) = arguments.root() else { return Truth::Unknown };
        // The quantifiers are chosen so that an element in doubt never allows a call.
        let (of_arguments, of_unless) = match self.effect {
            RuleEffect::Deny => (Quantifier::Any, Quantifier::All),
            RuleEffect::Ask => (Quantifier::AllOrUnknown, Quantifier::All),
            RuleEffect::Allow => (Quantifier::All, Quantifier::Any),
        };
        let holds = all(&self.arguments, |condition| condition.truth(root, of_arguments, Truth::No));
        if holds == Truth::No || self.unless.is_empty() {
            return holds;
        }
        let excepted = all(&self.unless, |condition| condition.truth(root, of_unless, Truth::Unknown));
        holds.min(excepted.not())
    }
}

/// Joins the answers of several conditions by "and".
fn all(conditions: &[ArgumentCondition], test: impl Fn(&ArgumentCondition) -> Truth) -> Truth {
    let mut truth = Truth::Yes;
    for condition in conditions {
        truth = truth.min(test(condition));
        if truth == Truth::No {
            break;
        }
    }
    truth
}

impl ArgumentCondition {
    /// Compiles one condition; adds its problems to `problems` and returns `None` if there are any.
    pub(in crate::policy) fn compile(path: &str, spec: &ArgumentSpec, problems: &mut PolicyProblems) -> Option<Self> {
        let pointer = ArgumentPointer::parse(&spec.pointer);
        let pointer = pointer.map_err(|message| problems.add(format!("{path}.pointer"), message));
        let matcher = ArgumentMatcher::compile(&spec.matcher);
        let key = spec.matcher.into_str();
        let matcher = matcher.map_err(|message| problems.add(format!("{path}.{key}"), message));
        Some(Self { pointer: pointer.ok()?, matcher: matcher.ok()? })
    }

    /// Evaluates the condition. `absent` is the answer for an absent value, unless the matcher has
    /// its own.
    fn truth(&self, root: &LosslessJson<'_>, quantifier: Quantifier, absent: Truth) -> Truth {
        self.pointer.evaluate(root, quantifier, &|value| match value {
            Some(value) => self.matcher.matches(value),
            None => self.matcher.absent(absent),
        })
    }
}

/// Whether a matcher may match a value, for the lint. Matchers with problems match everything.
pub(in crate::policy) fn can_match(matcher: &MatcherSpec, value: &ScalarSpec) -> bool {
    let text = match value {
        ScalarSpec::Text(text) => RawJson::string(text),
        ScalarSpec::Number(number) => RawJson::trusted(serde_json::Value::from(*number).to_string()),
        ScalarSpec::Boolean(value) => RawJson::trusted(value.to_string()),
    };
    let value = LosslessJson::read(text.bytes());
    let matcher = ArgumentMatcher::compile(matcher).ok();
    matcher.zip(value).is_none_or(|(matcher, value)| matcher.matches(&value) != Truth::No)
}

#[cfg(test)]
mod tests;
