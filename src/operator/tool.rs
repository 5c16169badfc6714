//! One tool with its definition, its hints and who may call it.

use serde::{Deserialize, Serialize};

use super::Refusal;
use super::tools::{pin, withheld};
use crate::catalog::merge::Entry;
use crate::config::{Auth, Config};
use crate::gateway::service::Service;
use crate::mcp::method::List;
use crate::mcp::weight;
use crate::policy::{Annotations, Caller, Policy};
use crate::wire::foreign;
use crate::wire::raw::RawJson;

/// A tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ToolDetail {
    pub(crate) name: String,
    pub(crate) upstream: String,
    pub(crate) original: String,
    pub(crate) canonical: String,
    /// `pinned` or `new`.
    pub(crate) pin: String,
    /// For the caller `local`.
    pub(crate) effect: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) hints_of_server: String,
    pub(crate) hints_of_operator: String,
    /// The hints that rules go by.
    pub(crate) hints: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_schema: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_schema: Option<RawJson>,
    /// The size that hosts hand to a model.
    pub(crate) bytes: usize,
    pub(crate) who: Vec<ToolCaller>,
    /// The group whose members are callers too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
}

/// What the rules say about a caller's calls, by a profile or without one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToolCaller {
    pub(crate) caller: String,
    pub(crate) profile: String,
    pub(crate) name: String,
    pub(crate) effect: String,
}

/// Shows a tool by its exposed or canonical name. `users` are the callers of the socket.
pub(crate) fn show(service: &Service, name: &str, users: Vec<Caller>) -> Result<ToolDetail, Refusal> {
    let snapshot = service.snapshots.load_full();
    let view = &snapshot.whole;
    let is_canonical = |entry: &Entry| entry.list == List::Tools && *entry.canonical == *name;
    let at = view.catalog.find(List::Tools, name);
    let at = at.or_else(|| view.catalog.entries().iter().position(is_canonical));
    let Some((entry, rules)) = at.and_then(|at| view.item(at)) else {
        let unknown = || format!("there is no tool `{}`", foreign::line(name));
        return Err(Refusal::Refused(withheld(&snapshot, name).unwrap_or_else(unknown)));
    };
    let callers: Vec<Caller> = callers(&snapshot.config).chain(users).collect();
    let mut who: Vec<ToolCaller> = callers
        .iter()
        .map(|caller| ToolCaller {
            caller: caller.to_string(),
            profile: String::new(),
            name: entry.exposed.to_string(),
            effect: Policy::effect(&snapshot.policy, rules, caller, "", entry).into_str().to_owned(),
        })
        .collect();
    // In the order of the file; the table of views has none.
    for profile in &snapshot.config.profiles {
        let Some(view) = snapshot.profiles.get(&profile.name) else { continue };
        let same = |other: &Entry| other.list == List::Tools && other.canonical == entry.canonical;
        let at = view.catalog.entries().iter().position(same);
        let Some((entry, rules)) = at.and_then(|at| view.item(at)) else { continue };
        who.extend(callers.iter().map(|caller| ToolCaller {
            caller: caller.to_string(),
            profile: profile.name.to_string(),
            name: entry.exposed.to_string(),
            effect: Policy::effect(&snapshot.policy, rules, caller, &profile.name, entry).into_str().to_owned(),
        }));
    }
    let text = |name: &str| entry.definition.string(name).unwrap_or_default();
    Ok(ToolDetail {
        name: entry.exposed.to_string(),
        upstream: entry.upstream_name.as_str().to_owned(),
        original: entry.original.to_string(),
        canonical: entry.canonical.to_string(),
        pin: pin(entry).to_owned(),
        effect: Policy::effect(&snapshot.policy, rules, Caller::local(), "", entry).into_str().to_owned(),
        title: text("title"),
        description: text("description"),
        hints_of_server: entry.said.all_by_server(),
        hints_of_operator: entry.said.all_by_operator().unwrap_or_default(),
        hints: words(&entry.annotations),
        input_schema: entry.definition.get("inputSchema").cloned(),
        output_schema: entry.definition.get("outputSchema").cloned(),
        bytes: weight::bytes(&entry.exposed, &entry.definition),
        who,
        group: snapshot.config.admin.group.clone(),
    })
}

/// The callers that the configuration names.
fn callers(config: &Config) -> impl Iterator<Item = Caller> {
    let named = match &config.server.auth {
        Auth::Token { tokens } => tokens.as_slice(),
        _ => &[],
    };
    std::iter::once(Caller::local().clone()).chain(named.iter().filter_map(|(name, _)| Caller::token(name)))
}

/// The hints that rules go by.
fn words(annotations: &Annotations) -> Vec<String> {
    let Annotations { read_only, destructive, idempotent, open_world, known_destructive: _ } = *annotations;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (open_world, "open-world"),
    ];
    words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned()).collect()
}
