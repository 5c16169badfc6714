//! The operator's method `tools.show`: one tool with its definition, its hints and who may call it.

use crate::catalog::merge::Entry;
use crate::config::{Auth, Config};
use crate::daemon::access::socket_callers;
use crate::daemon::gateway::Gateway;
use crate::mcp::method::List;
use crate::mcp::weight;
use crate::operator::tools::withheld;
use crate::policy::{Annotations, LOCAL, Policy};
use crate::wire::code;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// Shows the tool that `params` name, exposed or canonical.
pub(crate) fn show(gateway: &Gateway, params: &RawObject) -> Result<RawJson, (i64, String)> {
    let name = params.string("name").ok_or((code::INVALID_PARAMS, "params lacks `name`".to_owned()))?;
    let snapshot = gateway.service.snapshots.load_full();
    let view = &snapshot.whole;
    let is_canonical = |entry: &Entry| entry.list == List::Tools && *entry.canonical == *name;
    let at = view.catalog.find(List::Tools, &name);
    let at = at.or_else(|| view.catalog.entries().iter().position(is_canonical));
    let Some((entry, rules)) = at.and_then(|at| view.item(at)) else {
        let unknown = || format!("there is no tool `{}`", foreign::line(&name));
        return Err((1, withheld(&snapshot, &name).unwrap_or_else(unknown)));
    };
    let text = |name: &str| entry.definition.string(name).unwrap_or_default();
    let mut out = RawObject::of_strings(&[
        ("name", &entry.exposed),
        ("upstream", entry.upstream_name.as_str()),
        ("original", &entry.original),
        ("canonical", &entry.canonical),
        ("pin", if entry.is_new { "new" } else { "pinned" }),
        ("effect", Policy::effect(&snapshot.policy, rules, LOCAL, "", entry).into_str()),
        ("title", &text("title")),
        ("description", &text("description")),
        ("hints-of-server", &entry.said.by_server()),
        ("hints-of-operator", &entry.said.by_operator().unwrap_or_default()),
    ]);
    out.set("hints", RawJson::list(words(&entry.annotations).into_iter().map(RawJson::string)));
    for (name, member) in [("input-schema", "inputSchema"), ("output-schema", "outputSchema")] {
        out.set_some(name, entry.definition.get(member).cloned());
    }
    out.set("bytes", RawJson::number(weight::bytes(&entry.exposed, &entry.definition)));
    let callers = callers(&snapshot.config);
    let mut who: Vec<RawJson> = Vec::new();
    let mut add = |caller: &str, profile: &str, exposed: &str, effect: &str| {
        let row = [("caller", caller), ("profile", profile), ("name", exposed), ("effect", effect)];
        who.push(RawObject::of_strings(&row).encode());
    };
    for caller in &callers {
        let effect = Policy::effect(&snapshot.policy, rules, caller, "", entry);
        add(caller, "", &entry.exposed, effect.into_str());
    }
    // In the order of the file; the table of views has none.
    for profile in &snapshot.config.profiles {
        let Some(view) = snapshot.profiles.get(&profile.name) else { continue };
        let same = |other: &Entry| other.list == List::Tools && other.canonical == entry.canonical;
        let at = view.catalog.entries().iter().position(same);
        let Some((entry, rules)) = at.and_then(|at| view.item(at)) else { continue };
        for caller in &callers {
            let effect = Policy::effect(&snapshot.policy, rules, caller, &profile.name, entry);
            add(caller, &profile.name, &entry.exposed, effect.into_str());
        }
    }
    out.set("who", RawJson::list(who));
    out.set_some("group", snapshot.config.admin.group.as_deref().map(RawJson::string));
    Ok(out.encode())
}

/// The callers that the configuration names.
fn callers(config: &Config) -> Vec<String> {
    let mut callers = vec![LOCAL.to_owned()];
    if let Auth::Token { tokens } = &config.server.auth {
        callers.extend(tokens.iter().map(|(name, _)| name.clone()));
    }
    callers.extend(socket_callers(&config.admin));
    callers
}

/// The hints that rules go by.
fn words(annotations: &Annotations) -> Vec<&'static str> {
    let Annotations { read_only, destructive, idempotent, open_world, known_destructive: _ } = *annotations;
    let words = [
        (read_only, "read-only"),
        (destructive, "destructive"),
        (idempotent, "idempotent"),
        (open_world, "open-world"),
    ];
    words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect()
}
