//! Warnings of `check` about settings that are valid and yet probably not meant.

use super::model::{Config, EraChoice, Instance, Upstream};
use crate::policy::{Field, Policy, Table};

/// Programs that can ask nothing because several callers share them. `is_modern`: a server that asks without that, as an earlier run
/// learnt.
pub(crate) fn unasked(config: &Config, is_modern: impl Fn(&Upstream) -> bool) -> Option<String> {
    if !config.has_many_callers() {
        return None;
    }
    // `instance = "shared"` says that it is meant.
    let is_silent = |spec: &&Upstream| {
        spec.is_shared_process() && spec.instance == Instance::Auto && spec.era != EraChoice::Modern && !is_modern(spec)
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

/// One sentence for each doubt. `known`: the canonical names of all items, if an earlier run kept them.
pub(crate) fn doubts(config: &Config, known: Option<&[String]>) -> Vec<String> {
    let Ok(policy) = Policy::build(&config.policy) else { return Vec::new() };
    let mut doubts = Vec::new();
    if policy.denies_all() {
        doubts.push("policy: no call can be allowed: the default is \"deny\" and no rule allows anything".to_owned());
    }
    let Some(known) = known else { return doubts };
    let named = policy.patterns().filter(|used| matches!(used.field, Field::Tools | Field::Prompts | Field::Resources));
    for used in named.filter(|used| !known.iter().any(|name| used.matches(name))) {
        let table = match used.table {
            Table::Rules => "rules",
            Table::Limits => "limits",
        };
        let (id, text) = (used.id, used.text());
        doubts.push(format!("policy.{table} \"{id}\": {text:?} matches nothing that the upstreams offered last"));
    }
    doubts
}
