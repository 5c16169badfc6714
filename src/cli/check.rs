//! `headend check`.

use super::output::{Failure, complain, plain, print};
use super::{Common, source};
use crate::catalog::name::{canonical, canonical_uri};
use crate::config::{Config, preflight, show};
use crate::mcp::method::List;
use crate::policy::{Field, Policy, Table};

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let loaded = source::load(common, &[])?;
    let warnings = loaded.warnings.iter().map(ToString::to_string).chain(preflight(&loaded.config));
    for warning in warnings.chain(policy_warnings(&loaded.config)) {
        complain(&plain(&format!("warning: {warning}")));
    }
    print(&show::render(&loaded.config))
}

/// What can be said of the rules once something is known of the items.
fn policy_warnings(config: &Config) -> Vec<String> {
    let Ok(policy) = Policy::build(&config.policy) else { return Vec::new() };
    let mut warnings = Vec::new();
    if policy.denies_all() {
        warnings.push("policy: no call can be allowed: the default is \"deny\" and no rule allows anything".to_owned());
    }
    // A pattern can be judged only when every upstream has been seen; nothing is started to find out.
    let Some(names) = known_names(config) else { return warnings };
    for used in policy.patterns().filter(|used| matches!(used.field, Field::Tools | Field::Prompts | Field::Resources))
    {
        if !names.iter().any(|name| used.matches(name)) {
            let table = match used.table {
                Table::Rules => "rules",
                Table::Limits => "limits",
            };
            let (id, text) = (used.id, used.text());
            warnings.push(format!("policy.{table} \"{id}\": {text:?} matches nothing that the upstreams offered last"));
        }
    }
    warnings
}

/// The canonical names of everything that was offered last, if that is known of every upstream.
fn known_names(config: &Config) -> Option<Vec<String>> {
    let store = source::existing_store()?;
    let mut names = Vec::new();
    for upstream in &config.upstreams {
        let inventory = store.recall(&upstream.launch_identity())?.inventory;
        for list in List::ALL {
            let name = |key: &str| match list {
                List::Tools | List::Prompts => canonical(&upstream.name, key),
                List::Resources | List::Templates => canonical_uri(&upstream.name, key),
            };
            names.extend(inventory.items(list).iter().map(|item| name(&item.key)));
        }
    }
    Some(names)
}
