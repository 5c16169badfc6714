//! Shows one tool: its definition, its hints, and the effect of the rules for each known caller.

use serde::{Deserialize, Serialize};

use super::OperatorRefusal;
use super::tools::{pin, why_withheld};
use crate::catalog::merge::CatalogEntry;
use crate::config::{ClientAuth, Config};
use crate::gateway::service::Service;
use crate::mcp::definition::weight;
use crate::mcp::method::ItemList;
use crate::policy::{Annotations, Caller, ItemRules, Policy, RuleSubject};
use crate::wire::foreign;
use crate::wire::json::raw::RawJson;

/// A tool, as `headend tools NAME` shows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ToolDetail {
    pub(crate) name: String,
    pub(crate) upstream: String,
    pub(crate) original: String,
    pub(crate) canonical: String,
    /// `pinned` or `new`.
    pub(crate) pin: String,
    /// Effect of the rules for the caller `local`, without a profile.
    pub(crate) effect: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) hints_of_server: String,
    pub(crate) hints_of_operator: String,
    /// Hints that the rules use, joined from the operator's, the server's and the defaults.
    pub(crate) hints: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_schema: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<RawJson>,
    /// Bytes of the name and definition that hosts pass to a model.
    pub(crate) bytes: usize,
    pub(crate) who: Vec<ToolCallerEffect>,
    /// Group of the admin socket, whose members are callers too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
}

/// Effect of the rules for one caller's calls of the tool, in one profile or in none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToolCallerEffect {
    pub(crate) caller: String,
    pub(crate) profile: String,
    pub(crate) name: String,
    pub(crate) effect: String,
}

/// Looks a tool up by its exposed or canonical name. `users` are callers of the admin socket to
/// list besides those of the configuration.
pub(crate) fn show(service: &Service, name: &str, users: Vec<Caller>) -> Result<ToolDetail, OperatorRefusal> {
    let snapshot = service.snapshots.load_full();
    let view = &snapshot.whole;
    let is_canonical = |entry: &CatalogEntry| entry.list == ItemList::Tools && *entry.canonical == *name;
    let at = view.catalog.find(ItemList::Tools, name);
    let at = at.or_else(|| view.catalog.entries().iter().position(is_canonical));
    let Some((entry, rules)) = at.and_then(|at| view.item(at)) else {
        let unknown = || format!("there is no tool `{}`", foreign::line(name));
        return Err(OperatorRefusal::Refused(why_withheld(&snapshot, name).unwrap_or_else(unknown)));
    };
    let effect = |rules: &ItemRules, caller: &Caller, profile: &str, entry: &CatalogEntry| -> String {
        let subject = RuleSubject::ungrouped(caller, profile, entry);
        Policy::effect(&snapshot.policy, rules, &subject).into_str().to_owned()
    };
    let callers: Vec<Caller> = callers(&snapshot.config).chain(users).collect();
    let mut who: Vec<ToolCallerEffect> = callers
        .iter()
        .map(|caller| ToolCallerEffect {
            caller: caller.to_string(),
            profile: String::new(),
            name: entry.exposed.to_string(),
            effect: effect(rules, caller, "", entry),
        })
        .collect();
    // In the order of the configuration file; the map of profiles has no order.
    for profile in &snapshot.config.profiles {
        let Some(view) = snapshot.profiles.get(&profile.name) else { continue };
        let same = |other: &CatalogEntry| other.list == ItemList::Tools && other.canonical == entry.canonical;
        let at = view.catalog.entries().iter().position(same);
        let Some((entry, rules)) = at.and_then(|at| view.item(at)) else { continue };
        who.extend(callers.iter().map(|caller| ToolCallerEffect {
            caller: caller.to_string(),
            profile: profile.name.to_string(),
            name: entry.exposed.to_string(),
            effect: effect(rules, caller, &profile.name, entry),
        }));
    }
    let text = |name: &str| entry.definition.string(name).unwrap_or_default();
    Ok(ToolDetail {
        name: entry.exposed.to_string(),
        upstream: entry.upstream_name.as_str().to_owned(),
        original: entry.original.to_string(),
        canonical: entry.canonical.to_string(),
        pin: pin(entry).to_owned(),
        effect: effect(rules, Caller::local(), "", entry),
        title: text("title"),
        description: text("description"),
        hints_of_server: entry.said.all_by_server(),
        hints_of_operator: entry.said.all_by_operator().unwrap_or_default(),
        hints: hint_words(&entry.annotations),
        input_schema: entry.definition.get("inputSchema").cloned(),
        output_schema: entry.definition.get("outputSchema").cloned(),
        bytes: weight::bytes(&entry.exposed, &entry.definition),
        who,
        group: snapshot.config.admin.group.clone(),
    })
}

/// Returns `local` and the callers that the configuration names.
fn callers(config: &Config) -> impl Iterator<Item = Caller> {
    let named = match &config.server.auth {
        ClientAuth::Token { tokens } => tokens.as_slice(),
        _ => &[],
    };
    std::iter::once(Caller::local().clone()).chain(named.iter().filter_map(|(name, _)| Caller::token(name)))
}

/// Returns the words of the hints that the rules use.
fn hint_words(annotations: &Annotations) -> Vec<String> {
    let Annotations { read_only, destructive, idempotent, open_world, known_destructive: _ } = *annotations;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (open_world, "open-world"),
    ];
    words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned()).collect()
}
