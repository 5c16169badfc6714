//! Warnings of `check` about policies that are valid and yet probably not meant.

use super::model::Config;
use crate::policy::{Field, Policy, Table};

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
