//! Warnings of `check` about settings that are valid but probably not meant.

use super::model::{Config, EraChoice, InstanceScope, UpstreamSettings};
use super::show;
use crate::policy::{Annotations, Hints, PatternField, Policy, PolicyTable, RuleEffect, RuleSpec, UpstreamTrust};

/// Returns a warning about servers that can ask clients nothing because several callers share their
/// process; `None` if there are none. `is_modern`: the server is known, from an earlier run, to be
/// of the modern era, which has no such limit.
pub fn warn_of_silent_programs(config: &Config, is_modern: impl Fn(&UpstreamSettings) -> bool) -> Option<String> {
    if !config.has_many_callers() {
        return None;
    }
    // `instance = "shared"` says that it is meant.
    let is_silent = |spec: &&UpstreamSettings| {
        spec.is_shared_process()
            && spec.instance == InstanceScope::Auto
            && spec.era != EraChoice::Modern
            && !is_modern(spec)
    };
    let names: Vec<String> = config.upstreams.iter().filter(is_silent).map(|spec| format!("`{}`", spec.name)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "upstreams: several callers share the programs of {}: a server up to revision 2025-11-25 can ask no client anything then, and may \
             hide tools; `instance = \"per-caller\"` gives each caller a process of its own, `instance = \"shared\"` says that it is meant",
            names.join(", ")
        )
    })
}

/// Returns a warning about a rule over annotations that no tool can have: none of its upstreams may
/// loosen its own hints, and the operator states no matching ones.
fn warn_of_unmatchable_rule(config: &Config, rule: &RuleSpec) -> Option<String> {
    let mut upstreams = config.upstreams.iter().filter(|upstream| names(rule, upstream)).peekable();
    upstreams.peek()?;
    let can_match =
        |upstream: &UpstreamSettings| upstream.trust == UpstreamTrust::Trusted || can_be_stated(rule, upstream);
    if upstreams.any(can_match) {
        return None;
    }
    let (id, wanted) = (&rule.id, show::hints(&rule.annotations));
    Some(format!(
        "policy.rules \"{id}\": matches no tool: no upstream of it has `trust = \"trusted\"`, without which servers cannot loosen their \
         annotations, or `annotations` of yours that say {wanted}; a rule over the server's own words has `claims = {wanted}`"
    ))
}

/// Returns a warning about a rule over annotations that keeps a rule over claims from allowing
/// anything: the annotations it names are assumed of every tool whose server may not loosen them,
/// also of tools with milder claims.
fn warn_of_outranking_rule(config: &Config, rule: &RuleSpec) -> Option<String> {
    let is_about_all = rule.tools.is_empty() && rule.callers.is_empty() && rule.profiles.is_empty();
    let is_plain = rule.claims.is_empty() && rule.arguments.is_empty() && rule.unless.is_empty();
    let assumed = Hints::from(Annotations::ASSUMED).values();
    let is_assumed = rule.annotations.values().into_iter().zip(assumed).all(|(said, is)| said.is_none() || said == is);
    if rule.effect == RuleEffect::Allow || rule.annotations.is_empty() || !(is_about_all && is_plain && is_assumed) {
        return None;
    }
    let is_silenced =
        |upstream: &UpstreamSettings| upstream.trust == UpstreamTrust::Standard && upstream.annotations.is_empty();
    let opens = |other: &&RuleSpec| other.effect == RuleEffect::Allow && !other.claims.is_empty();
    let both = |other: &&RuleSpec| {
        config.upstreams.iter().any(|one| is_silenced(one) && names(rule, one) && names(other, one))
    };
    let other = config.policy.rules.iter().filter(opens).find(both)?;
    let (id, wanted, other) = (&rule.id, show::hints(&rule.annotations), &other.id);
    Some(format!(
        "policy.rules \"{id}\": goes before \"{other}\", which allows by `claims`: every tool of a server without `trust = \"trusted\"` \
         counts as {wanted}, also one that says otherwise; a rule over the server's own words has `claims = {wanted}`"
    ))
}

/// Reports whether the upstreams of a rule may include this one.
fn names(rule: &RuleSpec, upstream: &UpstreamSettings) -> bool {
    let matches = |pattern: &String| Policy::pattern(pattern).is_none_or(|matches| matches(upstream.name.as_str()));
    rule.upstreams.is_empty() || rule.upstreams.iter().any(matches)
}

/// Reports whether the operator's annotations of an upstream can yield the rule's, as far as these
/// are milder than the assumed ones.
fn can_be_stated(rule: &RuleSpec, upstream: &UpstreamSettings) -> bool {
    let Hints { read_only, destructive, idempotent, open_world } = rule.annotations;
    let says = |test: fn(&Hints) -> bool| upstream.annotations.iter().any(|(_, stated)| test(stated));
    (read_only != Some(true) || says(|stated| stated.read_only == Some(true)))
        && (destructive != Some(false)
            || says(|stated| stated.destructive == Some(false) || stated.read_only == Some(true)))
        && (idempotent != Some(true) || says(|stated| stated.idempotent == Some(true)))
        && (open_world != Some(false) || says(|stated| stated.open_world == Some(false)))
}

/// Returns one sentence for each doubt. `known`: the canonical names of all items, if an earlier
/// run stored them.
pub fn find_doubts(config: &Config, known: Option<&[String]>) -> Vec<String> {
    let Ok(policy) = Policy::build(&config.policy) else { return Vec::new() };
    let mut doubts = Vec::new();
    if policy.denies_all() {
        doubts.push("policy: no call can be allowed: the default is \"deny\" and no rule allows anything".to_owned());
    }
    let rules = &config.policy.rules;
    doubts.extend(
        rules.iter().filter_map(|rule| {
            warn_of_unmatchable_rule(config, rule).or_else(|| warn_of_outranking_rule(config, rule))
        }),
    );
    let Some(known) = known else { return doubts };
    let named = policy
        .patterns()
        .filter(|used| matches!(used.field, PatternField::Tools | PatternField::Prompts | PatternField::Resources));
    for used in named.filter(|used| !known.iter().any(|name| used.matches(name))) {
        let table = match used.table {
            PolicyTable::Rules => "rules",
            PolicyTable::Limits => "limits",
        };
        let (id, text) = (used.id, used.text());
        doubts.push(format!("policy.{table} \"{id}\": {text:?} matches nothing that the upstreams offered last"));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::good;

    #[test]
    fn a_rule_over_annotations_that_no_tool_can_have_is_told_with_the_way_out() {
        let found = |upstream: &str, annotations: &str, more: &str| {
            let rule = format!(
                "[policy]\ndefault = \"ask\"\n[[policy.rules]]\nid = \"r\"\neffect = \"allow\"\nannotations = {{ {annotations} }}\n{more}"
            );
            let text = format!(
                "[upstreams.a]\ncommand = [\"/a\"]\n{upstream}\n[upstreams.b]\ncommand = [\"/b\"]\ntrust = \"untrusted\"\n{rule}"
            );
            find_doubts(&good(&text).0, None)
        };
        let states = |hints: &str| format!("annotations = {{ x = {{ {hints} }} }}");
        let (reads, inside) = ("read-only = true", "open-world = false");
        let both = format!("{reads}, {inside}");
        for (label, upstream, annotations, more, is_told) in [
            ("nobody may say so", String::new(), reads, "", true),
            ("a server that is trusted", "trust = \"trusted\"".to_owned(), reads, "", false),
            ("another server is trusted", "trust = \"trusted\"".to_owned(), reads, "upstreams = [\"b\"]", true),
            ("the operator says so", states(reads), reads, "", false),
            ("the operator says half of it", states(reads), both.as_str(), "", true),
            ("what only reads destroys nothing", states(reads), "destructive = false", "", false),
            ("strict hints are assumed", String::new(), "read-only = false, open-world = true", "", false),
            ("the operator says the contrary", states("read-only = false"), reads, "", true),
        ] {
            let told = found(&upstream, annotations, more);
            assert_eq!(told.len(), usize::from(is_told), "{label}: {told:?}");
            let way_out = format!("`claims = {{ {annotations} }}`");
            assert!(
                told.iter().all(|told| told.starts_with("policy.rules \"r\"") && told.contains(&way_out)),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_rule_over_annotations_that_keeps_claims_from_allowing_anything_is_told() {
        let found = |upstream: &str, rule: &str| {
            let reads = "[upstreams.b]\ncommand = [\"/b\"]\ntrust = \"trusted\"\n\
                         [[policy.rules]]\nid = \"reads\"\neffect = \"allow\"\nclaims = { read-only = true }";
            let text = format!(
                "[upstreams.a]\ncommand = [\"/a\"]\n{upstream}\n[policy]\n[[policy.rules]]\nid = \"r\"\n{rule}\n{reads}"
            );
            find_doubts(&good(&text).0, None)
        };
        let asks = "effect = \"ask\"\nannotations = { read-only = false }";
        for (label, upstream, rule, is_told) in [
            ("what is assumed of every tool", "", asks.to_owned(), true),
            ("a deny", "", asks.replace("ask", "deny"), true),
            ("what no tool is without a word", "", asks.replace("false", "true"), false),
            ("a server that is trusted", "trust = \"trusted\"", asks.to_owned(), false),
            ("one of which claims open nothing", "trust = \"untrusted\"", asks.to_owned(), false),
            ("words of the operator", "annotations = { x = { read-only = true } }", asks.to_owned(), false),
            ("named tools", "", format!("{asks}\ntools = [\"a__write\"]"), false),
            ("another server", "", format!("{asks}\nupstreams = [\"b*\"]"), false),
            ("claims", "", asks.replace("annotations", "claims"), false),
        ] {
            let told = found(upstream, &rule);
            let told: Vec<&String> = told.iter().filter(|told| told.contains("goes before \"reads\"")).collect();
            assert_eq!(told.len(), usize::from(is_told), "{label}: {told:?}");
            assert!(told.iter().all(|told| told.contains("`claims = { read-only = false }`")), "{told:?}");
        }
    }
}
