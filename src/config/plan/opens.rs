//! Finds what a new configuration opens: calls, callers and approvals that the old one did not
//! allow.
//!
//! Patterns are compared as they are written. If that does not decide, a change counts as one that
//! opens.

use std::time::Duration;

use crate::audit::OnFailure;
use crate::consent::ApprovalSettings;
use crate::mcp::asking::input::Roots;
use crate::mcp::definition::annotations::Hints;
use crate::model::{AppsChoice, ClientAuth, CompletionScope, Config, FilterSettings, UpstreamSettings};
use crate::policy::{ChangePolicy, LimitSpec, PolicySpec, RuleEffect, RuleSpec, ScopeSpec, UpstreamTrust};

/// Returns one phrase for each thing that is opened.
pub(super) fn describe_openings(old: &Config, new: &Config) -> Vec<String> {
    let mut opens = Vec::new();
    compare_policies(&old.policy, &new.policy, &mut opens);
    compare_approvals(&old.consent, &new.consent, &mut opens);
    compare_access(old, new, &mut opens);
    if old.audit.on_failure == OnFailure::Deny && new.audit.on_failure == OnFailure::Continue {
        opens.push("calls go on that cannot be recorded".to_owned());
    }
    for upstream in &new.upstreams {
        if let Some(before) = old.upstreams.iter().find(|before| before.name == upstream.name) {
            let is_passed = new.passes_instructions_of(upstream) && !old.passes_instructions_of(before);
            let instructions = is_passed.then_some("its instructions reach clients");
            let more = compare_upstream(before, upstream).into_iter().chain(instructions);
            opens.extend(more.map(|what| format!("the upstream {}: {what}", upstream.name)));
        }
    }
    for profile in &new.profiles {
        let Some(before) = old.profiles.iter().find(|before| before.name == profile.name) else { continue };
        let wider = !is_within(&profile.upstreams, &before.upstreams)
            || is_wider(&before.tools, &profile.tools)
            || is_wider(&before.prompts, &profile.prompts)
            || is_wider(&before.resources, &profile.resources);
        if wider {
            opens.push(format!("the profile {} shows more", profile.name));
        }
        if !(has_all(&before.callers, &profile.callers) && has_all(&before.groups, &profile.groups)) {
            opens.push(format!("the profile {} is open to more callers", profile.name));
        }
    }
    opens
}

/// Adds a phrase for each way in which the new policy is looser.
fn compare_policies(old: &PolicySpec, new: &PolicySpec, opens: &mut Vec<String>) {
    if strictness(new.default) < strictness(old.default) {
        let [was, is] = [old.default, new.default].map(|effect| effect.into_str());
        opens.push(format!("the default is {is:?}, it was {was:?}"));
    }
    for rule in &new.rules {
        let known = old.rules.iter().any(|other| other.id == rule.id && other.effect == rule.effect);
        let id = &rule.id;
        let covered = |effects: &[RuleEffect]| old.rules.iter().any(|o| effects.contains(&o.effect) && covers(o, rule));
        match rule.effect {
            RuleEffect::Allow
                if old.default == RuleEffect::Allow && old.rules.iter().all(|o| o.effect == RuleEffect::Allow) => {}
            RuleEffect::Allow if covered(&[RuleEffect::Allow]) => {}
            RuleEffect::Allow if known => opens.push(format!("the rule {id} allows more")),
            RuleEffect::Allow => opens.push(format!("the new rule {id} allows")),
            RuleEffect::Ask if old.default == RuleEffect::Deny && !covered(&[RuleEffect::Ask, RuleEffect::Allow]) => {
                opens.push(format!("the rule {id} asks about calls that were denied"));
            }
            RuleEffect::Ask | RuleEffect::Deny => {}
        }
    }
    for rule in &old.rules {
        let known = new.rules.iter().any(|other| other.id == rule.id && other.effect == rule.effect);
        let id = &rule.id;
        let denied = new.rules.iter().any(|n| n.effect == RuleEffect::Deny && covers(n, rule));
        let mut asking = new.rules.iter().filter(|n| n.effect == RuleEffect::Ask && covers(n, rule)).peekable();
        match rule.effect {
            RuleEffect::Allow => {}
            _ if denied => {}
            RuleEffect::Deny if known => opens.push(format!("the rule {id} denies less")),
            RuleEffect::Deny => opens.push(format!("the rule {id} is gone, which denies")),
            RuleEffect::Ask if asking.peek().is_some() => {
                if !asking.any(|n| n.min_evidence >= rule.min_evidence) {
                    opens.push(format!("the rule {id} is satisfied with less evidence"));
                }
            }
            RuleEffect::Ask => {
                // Without the rule a call may be allowed, or asked about with the least evidence.
                let lets_by =
                    new.default == RuleEffect::Allow || new.rules.iter().any(|n| n.effect == RuleEffect::Allow);
                if lets_by || (rule.min_evidence.is_some() && new.default == RuleEffect::Ask) {
                    let how = if known { "asks about less" } else { "is gone, which asks" };
                    opens.push(format!("the rule {id} {how}"));
                }
            }
        }
    }
    for scope in &old.scopes {
        let stays = |new: &ScopeSpec| new.scope == scope.scope && covers(&new.items, &scope.items);
        if !new.scopes.iter().any(stays) {
            opens.push(format!("the scope {} is needed for less", scope.scope));
        }
    }
    for limit in &old.limits {
        match new.limits.iter().find(|other| other.id == limit.id) {
            None => opens.push(format!("the limit {} is gone", limit.id)),
            Some(other) if is_looser(limit, other) => opens.push(format!("the limit {} admits more", limit.id)),
            Some(_) => {}
        }
    }
}

/// Returns the rank of an effect; higher is stricter.
const fn strictness(effect: RuleEffect) -> u8 {
    match effect {
        RuleEffect::Allow => 0,
        RuleEffect::Ask => 1,
        RuleEffect::Deny => 2,
    }
}

/// Reports whether a rule matches everything that another one matches, evidence aside.
fn covers(rule: &RuleSpec, other: &RuleSpec) -> bool {
    let items = |rule: &RuleSpec| [rule.tools.clone(), rule.prompts.clone(), rule.resources.clone()];
    let (mine, theirs) = (items(rule), items(other));
    let is_about_all = |items: &[Vec<String>; 3]| items.iter().all(Vec::is_empty);
    let each_has_all = || mine.iter().zip(&theirs).all(|(mine, theirs)| is_within(theirs, mine));
    let has_items = is_about_all(&mine) || (!is_about_all(&theirs) && each_has_all());
    has_items
        && rule.kinds == other.kinds
        && has_all(&rule.upstreams, &other.upstreams)
        && has_all(&rule.callers, &other.callers)
        && has_all(&rule.groups, &other.groups)
        && has_all(&rule.profiles, &other.profiles)
        && (rule.annotations.is_empty() || rule.annotations == other.annotations)
        && (rule.claims.is_empty() || rule.claims == other.claims)
        && is_within(&rule.arguments, &other.arguments)
        && rule.unless == other.unless
}

/// Reports whether one list of patterns contains another; an empty list means everything.
fn has_all(all: &[String], some: &[String]) -> bool {
    all.is_empty() || (!some.is_empty() && is_within(some, all))
}

fn is_within<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    some.iter().all(|one| all.contains(one))
}

/// Reports whether the new limit may admit calls that the old one does not.
fn is_looser(old: &LimitSpec, new: &LimitSpec) -> bool {
    let same_calls = has_all(&new.tools, &old.tools)
        && has_all(&new.upstreams, &old.upstreams)
        && has_all(&new.callers, &old.callers)
        && has_all(&new.groups, &old.groups);
    let rises = |old: Option<u32>, new: Option<u32>| old.is_some_and(|old| new.is_none_or(|new| new > old));
    let faster = match (old.rate, new.rate) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(was), Some(is)) => was.per != is.per || is.count > was.count || new.burst > old.burst,
    };
    // A bucket with a shorter key is shared by more calls.
    !same_calls
        || !is_within(&new.key, &old.key)
        || faster
        || rises(old.concurrent, new.concurrent)
        || rises(old.per_day, new.per_day)
}

/// Adds a phrase for each setting of approvals that is looser.
fn compare_approvals(old: &ApprovalSettings, new: &ApprovalSettings, opens: &mut Vec<String>) {
    let longer = |key: &str, was: Duration, is: Duration| (is > was).then(|| format!("policy.consent.{key} is longer"));
    let more = |key: &str, was: usize, is: usize| (is > was).then(|| format!("policy.consent.{key} is larger"));
    opens.extend(longer("timeout", old.timeout, new.timeout));
    opens.extend(longer("approval-life", old.approval_life, new.approval_life));
    opens.extend(more("max-open", old.max_open, new.max_open));
    opens.extend(more("per-minute", old.per_minute, new.per_minute));
    opens.extend(longer("unused-expiry", old.unused_expiry, new.unused_expiry));
    if new.operator < old.operator {
        opens.push(format!("policy.consent.operator is {}", new.operator.into_str()));
    }
    opens.extend(longer("hold", old.hold, new.hold));
    opens.extend(more("max-held", old.max_held, new.max_held));
    if old.holds != new.holds {
        opens.push("policy.consent.holds are others".to_owned());
    }
    if let Some(notify) = &new.notify {
        if old.notify.as_ref().is_none_or(|old| old.to != notify.to) {
            opens.push("policy.consent.notify tells another program or address".to_owned());
        }
        if notify.arguments && !old.notify.as_ref().is_some_and(|old| old.arguments) {
            opens.push("policy.consent.notify-arguments tells arguments".to_owned());
        }
    }
}

/// Adds a phrase for each new caller, user, host and origin.
fn compare_access(old: &Config, new: &Config, opens: &mut Vec<String>) {
    match (&old.server.auth, &new.server.auth) {
        (ClientAuth::Token { .. }, ClientAuth::None) => opens.push("no token is needed".to_owned()),
        (ClientAuth::Token { tokens: old }, ClientAuth::Token { tokens: new }) => {
            let fresh = new.iter().filter(|(name, _)| !old.iter().any(|(known, _)| known == name));
            opens.extend(fresh.map(|(name, _)| format!("the new caller {name}")));
        }
        (ClientAuth::None, ClientAuth::Token { tokens }) => {
            opens.extend(tokens.iter().map(|(name, _)| format!("the new caller {name}")));
        }
        (ClientAuth::None, ClientAuth::None) => {}
    }
    let issuers = |config: &'_ Config| config.server.jwt.clone().map_or_else(Vec::new, |jwt| jwt.issuers);
    let known = issuers(old);
    let fresh = issuers(new).into_iter().filter(|issuer| !known.contains(issuer));
    opens.extend(fresh.map(|issuer| format!("the callers of {}", issuer.terms.name)));
    for (what, was, is) in [
        ("the user", &old.admin.users, &new.admin.users),
        ("the host", &old.server.allowed_hosts, &new.server.allowed_hosts),
        ("pages of", &old.server.allowed_origins, &new.server.allowed_origins),
    ] {
        opens.extend(is.iter().filter(|one| !was.contains(one)).map(|one| format!("{what} {one}")));
    }
    let trusted = new.server.trusted_proxies.iter().filter(|one| !old.server.trusted_proxies.contains(one));
    opens.extend(trusted.map(|one| format!("the proxy {one}")));
    if old.metrics.token.is_some() && new.metrics.token.is_none() {
        opens.push("no token is needed for metrics".to_owned());
    }
}

/// Returns a phrase for each setting of an upstream that is looser.
fn compare_upstream(old: &UpstreamSettings, new: &UpstreamSettings) -> Vec<&'static str> {
    let rank = |trust| match trust {
        UpstreamTrust::Untrusted => 0,
        UpstreamTrust::Standard => 1,
        UpstreamTrust::Trusted => 2,
    };
    let more_hosts = match (&old.elicit.hosts, &new.elicit.hosts) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(old), Some(new)) => !is_within(new, old),
    };
    let more_roots = match (&old.roots, &new.roots) {
        (_, Roots::Hidden) => false,
        (Roots::Fixed(old), Roots::Fixed(new)) => !is_within(new, old),
        (old, new) => old != new,
    };
    let milder = |hints: &Hints| {
        hints.read_only == Some(true) || hints.destructive == Some(false) || hints.open_world == Some(false)
    };
    let stricter = |hints: &Hints| {
        hints.read_only == Some(false) || hints.destructive == Some(true) || hints.open_world == Some(true)
    };
    let milder_hints = new.annotations.iter().any(|one| milder(&one.1) && !old.annotations.contains(one))
        || old.annotations.iter().any(|one| stricter(&one.1) && !new.annotations.contains(one));
    let shows_more = is_wider(&old.tools, &new.tools)
        || is_wider(&old.prompts, &new.prompts)
        || is_wider(&old.resources, &new.resources)
        || new.max_inventory > old.max_inventory;
    let all = [
        (rank(new.trust) > rank(old.trust), "more trust"),
        (old.on_change != new.on_change && new.on_change == ChangePolicy::Accept, "changed definitions are accepted"),
        (old.pin_html && !new.pin_html, "changed HTML of apps is accepted"),
        (milder_hints, "milder annotations"),
        (shows_more, "more of its items"),
        (new.completions == CompletionScope::Pass && old.completions != CompletionScope::Pass, "all completions"),
        (new.apps == AppsChoice::On && old.apps == AppsChoice::Off, "apps"),
        (new.elicit.secrets && !old.elicit.secrets, "questions for secrets"),
        (more_hosts, "pages of more hosts"),
        (more_roots, "more roots"),
        (!is_within(&new.surroundings.env_from, &old.surroundings.env_from), "more variables of ours"),
        (old.confinement.no_new_privileges && !new.confinement.no_new_privileges, "it may gain privileges"),
    ];
    all.into_iter().filter(|(is_more, _)| *is_more).map(|(_, what)| what).collect()
}

/// Reports whether the new filter may let items through that the old one does not.
fn is_wider(old: &FilterSettings, new: &FilterSettings) -> bool {
    let everything = old.allow.iter().any(|pattern| pattern == "*");
    !(everything || is_within(&new.allow, &old.allow)) || !is_within(&old.deny, &new.deny)
}
