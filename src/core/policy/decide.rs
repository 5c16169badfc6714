//! The decision about one call: the order in which rules, grants and limits are applied.

use std::sync::Arc;
use std::time::Duration;

use super::action::PolicyAction;
use super::compiled::{ItemRules, Policy};
use super::consent::GrantProof;
use super::effect::RuleEffect;
use super::evidence::ApprovalEvidence;
use super::kind::ActionKind;
use super::limiter::{LimitRefusal, Limiter};
use super::permit::Permit;
use crate::mcp::definition::annotations::Annotations;
use crate::policy::caller::{Caller, Groups, Scopes};
use crate::policy::rules::arguments::CallArguments;
use crate::policy::rules::rule::{Rule, RuleSubject};
use crate::policy::rules::truth::Truth;

/// The decision about a call. The words of the variants are in the audit log, in metrics and in the
/// output of commands.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Decision {
    Allow(Permit),
    /// `rule` is a rule's id, [`DEFAULT_RULE`](super::effect::DEFAULT_RULE) or
    /// [`DOUBT_RULE`](super::effect::DOUBT_RULE). If `hidden`, the item is denied with any
    /// arguments, and the client gets the answer of an unknown item.
    Deny {
        rule: Arc<str>,
        hidden: bool,
    },
    /// The rules allow the call or ask about it, but the caller's credential lacks a scope.
    #[strum(serialize = "deny")]
    Scope {
        /// `scope:` and the first scope that is lacking.
        rule: Arc<str>,
        /// All scopes that the call needs, with spaces between.
        scopes: Box<str>,
    },
    /// The call needs an approval, with at least this evidence.
    Ask {
        rule: Arc<str>,
        need: ApprovalEvidence,
    },
    /// The rules allow the call, but not before `retry_after` has passed.
    Limit {
        limit: Arc<str>,
        retry_after: Duration,
    },
}

impl Decision {
    /// Returns the rule or limit that decided.
    pub fn rule(&self) -> &Arc<str> {
        match self {
            Self::Allow(permit) => permit.rule(),
            Self::Ask { rule, .. }
            | Self::Deny { rule, .. }
            | Self::Scope { rule, .. }
            | Self::Limit { limit: rule, .. } => rule,
        }
    }
}

/// Decides one call, and draws from the limits if, and only if, it is allowed.
///
/// `item` must be of this policy and of the item that `action` names, and `limiter` of this policy;
/// otherwise the call is denied, since snapshots must not be mixed. If a rule asks, `consent` looks
/// for a live grant with the needed evidence; a grant is dropped unspent if a limit then refuses
/// the call. `now` is the time since 1970 on a clock that never goes back.
pub fn decide(
    policy: &Policy,
    item: &ItemRules,
    action: &PolicyAction,
    consent: &dyn Fn(&Arc<str>, ApprovalEvidence) -> Option<GrantProof>,
    limiter: &Limiter,
    now: Duration,
) -> Decision {
    let (rule, consented) = match judge(policy, item, action) {
        RuleVerdict::Deny { rule, hidden } => return Decision::Deny { rule: Arc::clone(rule), hidden },
        RuleVerdict::Scope(lack) => return lack.decision(),
        RuleVerdict::Allow(rule) => (rule, None),
        RuleVerdict::Ask { rule, need } => match consent(rule, need) {
            Some(consented) => (rule, Some((consented, need))),
            None => return Decision::Ask { rule: Arc::clone(rule), need },
        },
    };
    match limiter.take(policy, item, action, now) {
        Ok(taken) => {
            let permit = match consented {
                Some((consented, need)) => Permit::consented(Arc::clone(rule), consented.spend(), need),
                None => Permit::mint(Arc::clone(rule), None),
            };
            Decision::Allow(permit.with(taken))
        }
        Err(LimitRefusal::Until { limit, retry_after }) => Decision::Limit { limit, retry_after },
        Err(LimitRefusal::Foreign) => Decision::Deny { rule: Arc::clone(&policy.doubt_id), hidden: true },
    }
}

/// Decides a continuation of a permitted call, or a request about its task. Only deny rules and
/// scopes count: the call was allowed before, and limits count calls, which this is not.
pub fn decide_again(policy: &Policy, item: &ItemRules, action: &PolicyAction) -> Decision {
    if !fits(policy, item, action) {
        return Decision::Deny { rule: Arc::clone(&policy.doubt_id), hidden: true };
    }
    let (who, arguments) = (RuleSubject::of(action), CallArguments::new(action.kind, action.arguments.as_ref()));
    if let Some(rule) = find_deny_rule(item, &who, &arguments) {
        return Decision::Deny { rule: Arc::clone(&rule.id), hidden: rule.conditions.is_none() };
    }
    match find_lacking_scope(item, action, &who, &arguments) {
        Some(lack) => lack.decision(),
        None => Decision::Allow(Permit::mint(Arc::clone(&policy.again_id), None)),
    }
}

/// Returns the decision about a call if the rules would allow it or ask about it, but the caller's
/// credential lacks a scope. Takes nothing from limits and looks for no grant.
pub fn decide_scope(policy: &Policy, item: &ItemRules, action: &PolicyAction) -> Option<Decision> {
    match judge(policy, item, action) {
        RuleVerdict::Scope(lack) => Some(lack.decision()),
        RuleVerdict::Deny { .. } | RuleVerdict::Ask { .. } | RuleVerdict::Allow(_) => None,
    }
}

/// Whether a call that was allowed but not sent yet would still be allowed now. `consented` says
/// whether the call's grant covers what the rule asks about, with this evidence. Takes nothing from
/// the limits.
pub fn is_still_allowed(
    policy: &Policy,
    item: &ItemRules,
    action: &PolicyAction,
    consented: &dyn Fn(&Arc<str>, ApprovalEvidence) -> bool,
) -> bool {
    match judge(policy, item, action) {
        RuleVerdict::Deny { .. } | RuleVerdict::Scope(_) => false,
        RuleVerdict::Ask { rule, need } => consented(rule, need),
        RuleVerdict::Allow(_) => true,
    }
}

/// Returns the rule, or the default, that can ask about calls of an item with arguments that are
/// not known, and the evidence that it needs. Returns `None` if no such call needs an approval.
///
/// For an action that comes before a call and reveals something about its item; the calls are of
/// `item`'s kind. In doubt the answer is that a rule asks: every ask rule about the item counts,
/// and no allow rule with conditions on arguments does.
pub fn asking_rule<'p>(
    policy: &'p Policy,
    item: &'p ItemRules,
    action: &PolicyAction,
) -> Option<(&'p Arc<str>, ApprovalEvidence)> {
    let (who, least) = (RuleSubject::of(action), least_evidence(item.kind, action.annotations));
    if !is_named_by(policy, item, action) {
        return Some((&policy.doubt_id, ApprovalEvidence::Operator));
    }
    let strictest = strictest(item.ask.iter().filter(|rule| rule.is_about(&who)), least);
    if strictest.is_some() {
        return strictest;
    }
    let mut allows = item.allow.iter().filter(|rule| rule.is_about(&who));
    let open = allows.any(|rule| rule.conditions.is_none());
    let asks = !open && item.kind.otherwise(policy.default) == RuleEffect::Ask;
    asks.then_some((&policy.default_id, least))
}

/// Whether the decision about a call depends on its arguments, which the caller of this function
/// does not know.
pub fn needs_arguments(policy: &Policy, item: &ItemRules, action: &PolicyAction) -> bool {
    let who = RuleSubject::of(action);
    if !fits(policy, item, action) || find_hiding_rule(policy, item, &who).is_some() {
        return false;
    }
    let conditional = |rules: &[Arc<Rule>]| rules.iter().any(|rule| rule.conditions.is_some() && rule.is_about(&who));
    let asks = || item.ask.iter().any(|rule| rule.conditions.is_none() && rule.is_about(&who));
    if conditional(&item.deny) || (conditional(&item.ask) && !asks()) {
        return true;
    }
    // No rule on arguments refuses any more here, so an allow rule on arguments matters only if no
    // other rule allows the call.
    usual_effect(policy, item, &who) != RuleEffect::Allow && !asks() && conditional(&item.allow)
}

/// Returns the rule that needs the most evidence, the first one if several need as much.
fn strictest<'p>(
    asking: impl Iterator<Item = &'p Arc<Rule>>,
    least: ApprovalEvidence,
) -> Option<(&'p Arc<str>, ApprovalEvidence)> {
    let wanted = asking.map(|rule| (&rule.id, rule.min_evidence.unwrap_or(least).max(least)));
    wanted.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

impl Rule {
    /// Whether the rule is about this caller, profile and facts.
    fn about(&self, who: &RuleSubject<'_>) -> Truth {
        self.covers(who)
    }

    /// Whether the rule's conditions hold for these arguments.
    fn holds_for(&self, arguments: &CallArguments<'_>) -> Truth {
        self.conditions.as_ref().map_or(Truth::Yes, |conditions| conditions.truth(arguments))
    }

    /// Whether the rule counts with this answer: in doubt a rule that denies or asks counts, and a
    /// rule that allows does not.
    fn counts(&self, truth: Truth) -> bool {
        match self.effect {
            RuleEffect::Deny | RuleEffect::Ask => truth != Truth::No,
            RuleEffect::Allow => truth == Truth::Yes,
        }
    }

    /// Whether the rule counts for this caller and item, conditions on arguments left aside.
    fn is_about(&self, who: &RuleSubject<'_>) -> bool {
        self.counts(self.about(who))
    }

    /// Whether the rule counts for this caller, item and arguments.
    fn fires(&self, who: &RuleSubject<'_>, arguments: &CallArguments<'_>) -> bool {
        self.is_about(who) && self.counts(self.holds_for(arguments))
    }
}

/// The verdict of the rules, with the id of the deciding rule.
#[derive(Debug)]
pub(super) enum RuleVerdict<'p> {
    Deny { rule: &'p Arc<str>, hidden: bool },
    Scope(LackingScope<'p>),
    Ask { rule: &'p Arc<str>, need: ApprovalEvidence },
    Allow(&'p Arc<str>),
}

/// A scope that the caller's credential lacks, and all scopes that the call needs.
#[derive(Debug)]
pub(super) struct LackingScope<'p> {
    rule: &'p Arc<str>,
    scopes: Box<str>,
}

impl LackingScope<'_> {
    fn decision(self) -> Decision {
        Decision::Scope { rule: Arc::clone(self.rule), scopes: self.scopes }
    }
}

/// Whether `item` has the rules of this policy for the action's kind and item, and the caller has a
/// name.
fn fits(policy: &Policy, item: &ItemRules, action: &PolicyAction) -> bool {
    item.kind == action.kind && is_named_by(policy, item, action)
}

/// Whether `item` has the rules of this policy for the item that the action names, and the caller
/// has a name.
fn is_named_by(policy: &Policy, item: &ItemRules, action: &PolicyAction) -> bool {
    let same = *item.upstream == *action.upstream && *item.canonical == *action.canonical;
    same && policy.made(item, &action.caller)
}

/// Judges an action by the rules and the scopes alone, without grants and limits. A refusal by the
/// rules goes before one by scopes: no other credential would help.
pub(super) fn judge<'p>(policy: &'p Policy, item: &'p ItemRules, action: &PolicyAction) -> RuleVerdict<'p> {
    let verdict = judge_rules(policy, item, action);
    if item.scopes.is_empty() || matches!(verdict, RuleVerdict::Deny { .. }) {
        return verdict;
    }
    let arguments = CallArguments::new(action.kind, action.arguments.as_ref());
    find_lacking_scope(item, action, &RuleSubject::of(action), &arguments).map_or(verdict, RuleVerdict::Scope)
}

/// Finds the first scope that the action needs and its caller's credential lacks. In doubt a scope
/// is needed.
fn find_lacking_scope<'p>(
    item: &'p ItemRules,
    action: &PolicyAction,
    who: &RuleSubject<'_>,
    arguments: &CallArguments<'_>,
) -> Option<LackingScope<'p>> {
    if action.rights.scopes == Scopes::All {
        return None;
    }
    let needed = || item.scopes.iter().filter(|one| one.items.fires(who, arguments));
    let lacking = needed().find(|one| !action.rights.scopes.has(&one.scope))?;
    let scopes = needed().map(|one| &*one.scope).collect::<Vec<_>>().join(" ");
    Some(LackingScope { rule: &lacking.items.id, scopes: scopes.into() })
}

/// Judges an action by the rules alone.
fn judge_rules<'p>(policy: &'p Policy, item: &'p ItemRules, action: &PolicyAction) -> RuleVerdict<'p> {
    if !fits(policy, item, action) {
        return RuleVerdict::Deny { rule: &policy.doubt_id, hidden: true };
    }
    let who = RuleSubject::of(action);
    if let Some(rule) = find_hiding_rule(policy, item, &who) {
        return RuleVerdict::Deny { rule, hidden: true };
    }
    let arguments = CallArguments::new(action.kind, action.arguments.as_ref());
    let fires = |rule: &&Arc<Rule>| rule.fires(&who, &arguments);
    if let Some(rule) = find_deny_rule(item, &who, &arguments) {
        return RuleVerdict::Deny { rule: &rule.id, hidden: false };
    }
    let least = least_evidence(action.kind, action.annotations);
    if action.kind.can_ask()
        && let Some((rule, need)) = strictest(item.ask.iter().filter(fires), least)
    {
        return RuleVerdict::Ask { rule, need };
    }
    if let Some(rule) = item.allow.iter().find(fires) {
        return RuleVerdict::Allow(&rule.id);
    }
    let rule = &policy.default_id;
    match action.kind.otherwise(policy.default) {
        RuleEffect::Deny => RuleVerdict::Deny { rule, hidden: false },
        RuleEffect::Ask => RuleVerdict::Ask { rule, need: least },
        RuleEffect::Allow => RuleVerdict::Allow(rule),
    }
}

/// Returns the first deny rule that applies to these arguments.
fn find_deny_rule<'p>(item: &'p ItemRules, who: &RuleSubject<'_>, arguments: &CallArguments<'_>) -> Option<&'p Rule> {
    item.deny.iter().map(|rule| &**rule).find(|rule| rule.fires(who, arguments))
}

/// Returns the least evidence that any rule needs for an action: the console's for a tool known to
/// destroy.
fn least_evidence(kind: ActionKind, annotations: Annotations) -> ApprovalEvidence {
    let destroys = kind == ActionKind::Tool && annotations.known_destructive;
    if destroys { ApprovalEvidence::Page } else { ApprovalEvidence::Client }
}

impl Policy {
    /// Whether the item is hidden from this caller: not listed, and answered as unknown. True if
    /// the item is denied with any arguments.
    pub fn hidden(&self, item: &ItemRules, subject: &RuleSubject<'_>) -> bool {
        find_hiding_rule(self, item, subject).is_some()
    }

    /// Returns the rule that hides an item from this caller, see [`Self::hidden`].
    pub fn hiding<'p>(&'p self, item: &'p ItemRules, action: &PolicyAction) -> Option<&'p Arc<str>> {
        find_hiding_rule(self, item, &RuleSubject::of(action))
    }

    /// Returns the rule that forbids an action on a whole upstream, which is allowed otherwise: its
    /// launch, or its questions to clients.
    pub fn forbidding<'p>(&'p self, item: &'p ItemRules, subject: &RuleSubject<'_>) -> Option<&'p Arc<str>> {
        if !self.made(item, subject.caller) {
            return Some(&self.doubt_id);
        }
        find_deny_rule(item, subject, &CallArguments::new(item.kind, None)).map(|rule| &rule.id)
    }

    /// Whether the rules of an item are sound and of this policy, and the caller has a name.
    fn made(&self, item: &ItemRules, caller: &Caller) -> bool {
        item.sound && self.stamp.is(&item.stamp) && !caller.name().is_empty()
    }

    /// Returns the effect for an item, before limits and for calls to which no rule on arguments
    /// applies; for displays.
    pub fn effect(&self, item: &ItemRules, subject: &RuleSubject<'_>) -> RuleEffect {
        usual_effect(self, item, subject)
    }
}

/// Returns the rule that denies the item with any arguments, if there is one.
fn find_hiding_rule<'p>(policy: &'p Policy, item: &'p ItemRules, who: &RuleSubject<'_>) -> Option<&'p Arc<str>> {
    if !policy.made(item, who.caller) {
        return Some(&policy.doubt_id);
    }
    let about = |rule: &&Arc<Rule>| rule.is_about(who);
    // Rules without conditions come first.
    let plain = item.deny.iter().take_while(|rule| rule.conditions.is_none());
    if let Some(rule) = plain.into_iter().find(about) {
        return Some(&rule.id);
    }
    let denies = item.kind.otherwise(policy.default) == RuleEffect::Deny;
    let opened = || {
        (item.kind.can_ask() && item.ask.iter().any(|rule| about(&rule))) || item.allow.iter().any(|rule| about(&rule))
    };
    (denies && !opened()).then_some(&policy.default_id)
}

/// Returns the effect for calls to which no rule on arguments applies.
fn usual_effect(policy: &Policy, item: &ItemRules, who: &RuleSubject<'_>) -> RuleEffect {
    if find_hiding_rule(policy, item, who).is_some() {
        return RuleEffect::Deny;
    }
    let plain = |rules: &[Arc<Rule>]| rules.iter().any(|rule| rule.conditions.is_none() && rule.is_about(who));
    if item.kind.can_ask() && plain(&item.ask) {
        RuleEffect::Ask
    } else if plain(&item.allow) {
        RuleEffect::Allow
    } else {
        item.kind.otherwise(policy.default)
    }
}

/// A rule that is about an item and its caller, and whether it matches; for displays.
#[derive(Clone, Debug)]
pub struct RuleMatch {
    pub id: Arc<str>,
    pub effect: RuleEffect,
    /// Whether the rule matches the groups, claims and arguments: `yes`, `no` or `unknown`.
    pub matches: &'static str,
    /// The reason why the claims or groups leave the match unknown.
    pub why: Option<&'static str>,
}

/// Returns the rules about this item, caller, profile and annotations, for displays: deny rules,
/// then ask rules, then allow rules. Each tells whether it matches; rules whose conditions on
/// arguments do not hold are included. Returns none if `item` does not have this policy's rules for
/// the action's kind and item, or if the caller has no name.
pub fn matching_rules(policy: &Policy, item: &ItemRules, action: &PolicyAction) -> Vec<RuleMatch> {
    if !fits(policy, item, action) {
        return Vec::new();
    }
    let (who, arguments) = (RuleSubject::of(action), CallArguments::new(action.kind, action.arguments.as_ref()));
    let rules = item.deny.iter().chain(&item.ask).chain(&item.allow).filter(|rule| rule.about(&who) != Truth::No);
    let told = |rule: &Arc<Rule>| {
        let about = rule.about(&who);
        let unheard = rule.effect == RuleEffect::Allow && !who.facts.claims.may_open;
        let is_of_groups =
            who.groups == &Groups::Unknown && rule.target.who.covers(who.caller, who.groups) == Truth::Unknown;
        let why = if is_of_groups {
            "the caller's credential does not state its groups"
        } else if unheard {
            "the tool is new, in doubt or of an untrusted upstream, so its server's word allows nothing"
        } else {
            "its server does not say"
        };
        RuleMatch {
            id: Arc::clone(&rule.id),
            effect: rule.effect,
            matches: about.and(rule.holds_for(&arguments)).into_str(),
            why: (about == Truth::Unknown).then_some(why),
        }
    };
    rules.map(told).collect()
}

#[cfg(test)]
mod tests;
