//! Reads the `[policy]` table.

use crate::catalog::name::UpstreamName;
use crate::policy::{
    ActionKind, Hints, KeyPart, LimitSpec, Policy, PolicySpec, Rate, RateUnit, RuleEffect, RuleSpec, ScopeSpec,
};

use super::arguments::conditions;
use super::canonical::{Separator, check_all};
use super::hints::hints;
use crate::keys::rate;
use crate::model::Profile;
use crate::source::file::{ConfigNode, ConfigTable, ParseContext, patterns};
use crate::source::words::did_you_mean;

/// The longest scope, in bytes: every record of a refusal contains it.
const MAX_SCOPE_LENGTH: usize = 128;

/// Reads the policy and checks it as it will be compiled. `scopes` is the table
/// `[server.auth.scopes]`.
pub(crate) fn policy(
    source: &ParseContext<'_>,
    table: Option<ConfigTable<'_>>,
    scopes: Option<ConfigTable<'_>>,
    upstreams: &[UpstreamName],
    profiles: &[Profile],
) -> PolicySpec {
    let mut spec = PolicySpec {
        default: RuleEffect::Ask,
        rules: Vec::new(),
        scopes: scopes.map(self::scopes).unwrap_or_default(),
        limits: Vec::new(),
    };
    if let Some(mut table) = table {
        let default = table.take("default");
        spec.default = default.map_or(Some(RuleEffect::Ask), |node| node.choice()).unwrap_or(RuleEffect::Deny);
        spec.rules = table.tables("rules").into_iter().map(rule).collect();
        spec.limits = table.tables("limits").into_iter().map(limit).collect();
        table.finish();
    }
    let policy = Policy::build(&spec);
    let mut at = |path: String, message: String| source.problem_at(&path, message);
    let names_of = || upstreams.iter().map(UpstreamName::as_str);
    let profiles_of = || profiles.iter().map(|profile| profile.name.as_str());
    let rules = spec.rules.iter().enumerate().map(|(index, rule)| (format!("policy.rules[{index}]"), rule));
    let scopes = spec.scopes.iter().map(|scope| (ScopeSpec::path(&scope.scope), &scope.items));
    for (table, rule) in rules.chain(scopes) {
        let path = |key: &str| format!("{table}.{key}");
        check_names(&path("upstreams"), &rule.upstreams, &names_of, "upstream", &mut at);
        check_all(&path("tools"), &rule.tools, Separator::Name, upstreams, &mut at);
        check_all(&path("prompts"), &rule.prompts, Separator::Name, upstreams, &mut at);
        check_all(&path("resources"), &rule.resources, Separator::Uri, upstreams, &mut at);
        check_names(&path("profiles"), &rule.profiles, &profiles_of, "profile", &mut at);
    }
    for (index, limit) in spec.limits.iter().enumerate() {
        let path = |key: &str| format!("policy.limits[{index}].{key}");
        check_names(&path("upstreams"), &limit.upstreams, &names_of, "upstream", &mut at);
        check_all(&path("tools"), &limit.tools, Separator::Name, upstreams, &mut at);
    }
    for problem in policy.err().into_iter().flatten() {
        source.problem_at(&problem.path, problem.message);
    }
    spec
}

fn rule(mut table: ConfigTable<'_>) -> RuleSpec {
    let effect = table.take("effect");
    if effect.is_none() {
        table.problem("needs `effect`: \"allow\", \"ask\" or \"deny\"");
    }
    let effect = effect.and_then(|node| node.choice()).unwrap_or(RuleEffect::Deny);
    let rule = RuleSpec {
        id: table.string("id").unwrap_or_default(),
        callers: patterns(&mut table, "callers"),
        groups: patterns(&mut table, "groups"),
        min_evidence: table.choice("min-evidence"),
        ..items(&mut table, effect)
    };
    table.finish();
    rule
}

/// Reads the matchers of a rule that are not about its caller.
fn items(table: &mut ConfigTable<'_>, effect: RuleEffect) -> RuleSpec {
    RuleSpec {
        upstreams: patterns(table, "upstreams"),
        tools: patterns(table, "tools"),
        prompts: patterns(table, "prompts"),
        resources: patterns(table, "resources"),
        profiles: patterns(table, "profiles"),
        kinds: kinds(table),
        annotations: table.take("annotations").map(|node| annotations(&node)).unwrap_or_default(),
        claims: table.take("claims").map(|node| annotations(&node)).unwrap_or_default(),
        arguments: conditions(table, "arguments"),
        unless: conditions(table, "unless"),
        ..RuleSpec::new("", effect)
    }
}

/// Reads the scopes and the items of each.
fn scopes(table: ConfigTable<'_>) -> Vec<ScopeSpec> {
    let mut scopes = Vec::new();
    for (scope, node) in table.named() {
        if !is_scope(&scope) {
            node.problem(format!(
                "a scope is up to {MAX_SCOPE_LENGTH} visible ASCII characters without spaces, `\"` and `\\`"
            ));
        }
        let Some(mut table) = node.table() else { continue };
        let items = items(&mut table, RuleEffect::Deny);
        table.finish();
        let scope = ScopeSpec { items: RuleSpec { id: ScopeSpec::id(&scope), ..items }, scope };
        if scope.names_nothing() {
            node.problem("maps to nothing; name the items that need the scope, for example `tools = [\"docs__*\"]`");
        }
        let is_free =
            |kind: &ActionKind| matches!(kind, ActionKind::Sampling | ActionKind::Elicitation | ActionKind::Launch);
        if scope.items.kinds.iter().any(is_free) {
            node.problem("a scope is about items and what follows them; write other `kinds`");
        }
        scopes.push(scope);
    }
    scopes
}

/// Whether a text is one scope, as clients ask for it in a list with spaces.
fn is_scope(text: &str) -> bool {
    let is_token = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
    (1..=MAX_SCOPE_LENGTH).contains(&text.len()) && text.chars().all(is_token)
}

fn kinds(table: &mut ConfigTable<'_>) -> Vec<ActionKind> {
    let Some(node) = table.take("kinds") else { return Vec::new() };
    let Some(items) = node.items("an array such as [\"tool\", \"prompt\"]") else { return Vec::new() };
    if items.is_empty() {
        node.problem("must not be empty; without this key all items are meant");
    }
    items.iter().filter_map(|item| item.choice()).collect()
}

fn annotations(node: &ConfigNode<'_>) -> Hints {
    let Some(mut table) = node.table() else { return Hints::default() };
    let hints = hints(&mut table);
    table.finish();
    if hints.is_empty() {
        node.problem("has no hints; write for example { read-only = true }");
    }
    hints
}

fn limit(mut table: ConfigTable<'_>) -> LimitSpec {
    for key in ["prompts", "resources"] {
        table.refuse(key, "a limit is about tools; to limit everything of an upstream, write `upstreams`");
    }
    let wanted = table.take("rate");
    let has_rate = wanted.is_some();
    // An invalid rate is a problem already; the stand-in only completes the limit.
    let rate = wanted.map(|node| rate(&node).unwrap_or(Rate { count: 1, per: RateUnit::Second }));
    let key = table.take("key").and_then(|node| node.items("an array such as [\"caller\", \"tool\"]"));
    let key = key.map(|parts| parts.iter().filter_map(|part| part.choice()).collect());
    if !has_rate {
        table.refuse("burst", "means nothing without `rate`, such as \"30/m\"");
    }
    let mut calls = |key| table.take(key).map(|node| node.count(&(1..=1_000_000)).and_then(|n| u32::try_from(n).ok()));
    let (burst, concurrent, per_day) = (calls("burst").flatten(), calls("concurrent"), calls("per-day"));
    let limit = LimitSpec {
        id: table.string("id").unwrap_or_default(),
        tools: patterns(&mut table, "tools"),
        upstreams: patterns(&mut table, "upstreams"),
        callers: patterns(&mut table, "callers"),
        groups: patterns(&mut table, "groups"),
        key: key.unwrap_or_else(|| vec![KeyPart::Caller]),
        burst: burst.unwrap_or(rate.map_or(1, |rate| rate.count)),
        rate,
        concurrent: concurrent.map(|calls| calls.unwrap_or(1)),
        per_day: per_day.map(|calls| calls.unwrap_or(1)),
    };
    table.finish();
    limit
}

/// Reports a problem for each pattern that matches no configured name.
pub(crate) fn check_names<'n, N: Iterator<Item = &'n str>>(
    path: &str,
    patterns: &[String],
    names: &dyn Fn() -> N,
    what: &str,
    at: &mut dyn FnMut(String, String),
) {
    for (index, pattern) in patterns.iter().enumerate() {
        // Another check reports invalid patterns.
        if Policy::pattern(pattern).is_none_or(|matches| names().any(matches)) {
            continue;
        }
        let near = did_you_mean(pattern, names());
        at(format!("{path}[{index}]"), format!("matches no configured {what}{near}"));
    }
}
