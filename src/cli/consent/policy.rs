//! `headend policy`: a dry run of one call, and rules that the audit log suggests or is replayed
//! with.

use std::sync::Arc;

use clap::Args;

pub(in crate::cli) mod log;
pub(in crate::cli) mod replay;
pub(in crate::cli) mod suggest;

use crate::cli::exit::{NO, OK, USAGE};
use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::gateway::decision::dry_run::{DryRun, DryRunResult, decide_once};
use crate::mcp::definition::annotations::Annotations;
use crate::mcp::method::ItemList;
use crate::policy::{ActionKind, Caller, CallerRights, Decision, Groups, LOCAL, PolicyAction, Scopes, StatedHints};
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject};

/// Ids that stand for no rule, with their meanings.
const STAND_INS: [(&str, &str); 2] =
    [("default", "no rule matches"), ("doubt", "caller, kind, upstream and name do not fit together")];

#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct PolicyTestArgs {
    /// The caller.
    #[arg(long, value_name = "NAME", default_value = LOCAL)]
    caller: String,
    /// Scopes of the caller's credential, with commas between; without it, all.
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    scopes: Option<Vec<String>>,
    /// Groups of a person or machine of an issuer, with commas between; without it, unknown.
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    groups: Option<Vec<String>>,
    /// The client's profile.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    item: ItemArgs,
    /// The arguments, a JSON object.
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Decide this often and print the median time of one decision.
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    repeat: usize,
}

/// The item that is called.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct ItemArgs {
    /// The tool, by its canonical or its exposed name.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// A prompt instead of a tool.
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// A resource instead of a tool.
    #[arg(long, value_name = "URI")]
    resource: Option<String>,
}

/// Loads the configuration as `check` does, decides one call and prints the decision. Exits with 1
/// unless it is allowed.
pub(in crate::cli) fn test(common: &CommonOptions, args: &PolicyTestArgs) -> Result<u8, CommandFailure> {
    let loaded = source::load(common, &[])?;
    let ItemArgs { tool, prompt, resource } = &args.item;
    let lists = [(ItemList::Tools, tool), (ItemList::Prompts, prompt), (ItemList::Resources, resource)];
    let named = lists.into_iter().find_map(|(list, name)| Some((list, name.as_ref()?)));
    let (list, name) = named.ok_or_else(|| CommandFailure::new(USAGE, "name a tool, a prompt or a resource"))?;
    let store = source::open_existing_store(common)?;
    let dry_run = DryRun {
        caller: &args.caller,
        rights: Arc::new(rights(args)?),
        profile: args.profile.as_deref(),
        list,
        name,
        arguments: args.arguments.as_deref().map(arguments).transpose()?,
        repeat: args.repeat,
    };
    let verdict =
        decide_once(&loaded.config, store.as_ref(), &dry_run).map_err(|text| CommandFailure::new(USAGE, text))?;
    print(&if args.json { json(&verdict) } else { text(&verdict) })?;
    Ok(if matches!(verdict.decision, Decision::Allow(_)) { OK } else { NO })
}

/// Returns the rights of the caller's credential.
fn rights(args: &PolicyTestArgs) -> Result<CallerRights, CommandFailure> {
    let caller = Caller::named(&args.caller);
    let named =
        |names: &[String]| names.iter().filter(|name| !name.is_empty()).map(|name| Box::from(&**name)).collect();
    let assumed = CallerRights::clone(&caller.assumed_rights());
    if args.groups.is_some() && caller.issuer_and_subject().is_none() {
        let text = "--groups: a caller without an issuer is in no group; name one with --caller ISSUER:SUBJECT";
        return Err(CommandFailure::new(USAGE, text));
    }
    let scopes = args.scopes.as_deref().map_or(assumed.scopes, |scopes| Scopes::Of(named(scopes)));
    let groups = args.groups.as_deref().map_or(assumed.groups, |groups| Groups::Of(named(groups)));
    Ok(CallerRights { scopes, groups })
}

/// Checks the arguments of the command line.
fn arguments(text: &str) -> Result<RawJson, CommandFailure> {
    let usage =
        |why: &dyn std::fmt::Display| CommandFailure::new(USAGE, format!("--arguments: must be a JSON object: {why}"));
    let raw = RawJson::checked(text.trim().to_owned()).map_err(|error| usage(&error))?;
    RawObject::parse(&raw).map_err(|error| usage(&error))?;
    Ok(raw)
}

/// Explains the decision by the rule that made it.
fn why(verdict: &DryRunResult) -> String {
    if let Decision::Scope { scopes, .. } = &verdict.decision {
        return format!("the call needs the scopes {scopes}, and the credential lacks this one");
    }
    let deciding = verdict.decision.rule();
    if let Some((_, why)) = STAND_INS.iter().find(|(id, _)| *id == &**deciding) {
        return (*why).to_owned();
    }
    match verdict.rules.iter().find(|rule| rule.id == *deciding).map(|rule| (rule.matches, rule.why)) {
        Some(("unknown", Some(why))) => format!("the rule may match: {why}"),
        Some(("unknown", None)) => "the rule may match: programs read these arguments differently".to_owned(),
        _ => "the rule matches".to_owned(),
    }
}

/// Lists the hints about a tool by name.
fn hints(annotations: &Annotations) -> [(&'static str, bool); 5] {
    let Annotations { read_only, destructive, idempotent, open_world, known_destructive } = *annotations;
    [
        ("read-only", read_only),
        ("destructive", destructive),
        ("idempotent", idempotent),
        ("open-world", open_world),
        ("known-destructive", known_destructive),
    ]
}

/// Describes how a tool is treated, and who says so.
fn treatment(annotations: &Annotations, said: &StatedHints) -> String {
    let Annotations { read_only, destructive, idempotent, open_world, known_destructive: _ } = *annotations;
    let StatedHints { server, operator } = said;
    let traits = [
        ("only reads", read_only, operator.read_only, server.read_only),
        ("destructive", destructive, operator.destructive, server.destructive),
        ("changes no more when called again", idempotent, operator.idempotent, server.idempotent),
        ("may reach outside", open_world, operator.open_world, server.open_world),
    ];
    let source = |operator: Option<bool>, server: Option<bool>| match (operator, server) {
        (Some(true), _) => "your configuration says so",
        (_, Some(true)) => "the server says so",
        (_, Some(false)) => "the server says no, and is not trusted",
        (_, None) => "the server says nothing",
    };
    let words: Vec<String> = traits
        .into_iter()
        .filter(|(_, is, ..)| *is)
        .map(|(name, _, operator, server)| format!("{name} ({})", source(operator, server)))
        .collect();
    if words.is_empty() { "nothing in particular".to_owned() } else { words.join(", ") }
}

/// Returns the least evidence of an approval, if the decision needs one.
fn need(verdict: &DryRunResult) -> Option<&'static str> {
    if let Decision::Ask { need, .. } = verdict.decision { Some(need.into_str()) } else { None }
}

/// Returns true if the item is denied for all arguments, and so not listed.
fn is_hidden(verdict: &DryRunResult) -> bool {
    matches!(verdict.decision, Decision::Deny { hidden: true, .. })
}

/// Lists names in a line.
fn names(names: &[Box<str>]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn text(verdict: &DryRunResult) -> String {
    let PolicyAction { caller, rights, profile, kind, upstream, canonical, annotations, said, .. } = &verdict.action;
    let mut out = String::new();
    let mut line = |name: &str, value: &str| out.push_str(&format!("{name:<12} {}\n", foreign::line(value)));
    line("decision", verdict.decision.into_str());
    line("rule", verdict.decision.rule());
    line("why", &why(verdict));
    if let Some(need) = need(verdict) {
        line("evidence", &format!("{need} or better"));
    }
    if is_hidden(verdict) {
        line("hidden", "the item is not listed, and answered like one that does not exist");
    }
    let seen = if verdict.known { "" } else { ", which no earlier run has seen" };
    line("item", &format!("{canonical} ({} of {upstream}){seen}", kind.into_str()));
    line("caller", &profile.as_ref().map_or_else(|| caller.to_string(), |name| format!("{caller} by profile {name}")));
    if let Scopes::Of(scopes) = &rights.scopes {
        line("scopes", &names(scopes));
    }
    match &rights.groups {
        Groups::Unknown => line("groups", "unknown"),
        Groups::Of(groups) if caller.issuer_and_subject().is_some() => line("groups", &names(groups)),
        Groups::Of(_) => {}
    }
    if *kind == ActionKind::Tool {
        line("treated as", &treatment(annotations, said));
    }
    for (at, rule) in verdict.rules.iter().enumerate() {
        let name = if at == 0 { "rules" } else { "" };
        let why = rule.why.map(|why| format!(", since {why}")).unwrap_or_default();
        line(name, &format!("{} ({}): {}{why}", rule.id, rule.effect.into_str(), rule.matches));
    }
    if let Some(took) = verdict.took {
        line("took", &format!("{} ns", took.as_nanos()));
    }
    out
}

fn json(verdict: &DryRunResult) -> String {
    let PolicyAction { caller, rights, kind, upstream, canonical, annotations, .. } = &verdict.action;
    let CallerRights { scopes, groups } = &**rights;
    let scopes = if let Scopes::Of(scopes) = scopes { Some(scopes) } else { None };
    let groups = if let Groups::Of(groups) = groups { Some(groups) } else { None };
    let rules = verdict.rules.iter().map(|rule| {
        let (effect, matches) = (rule.effect.into_str(), rule.matches);
        serde_json::json!({ "id": &*rule.id, "effect": effect, "matches": matches, "why": rule.why })
    });
    let annotations: serde_json::Map<String, serde_json::Value> =
        hints(annotations).into_iter().map(|(name, is)| (name.to_owned(), is.into())).collect();
    let mut value = serde_json::json!({
        "decision": verdict.decision.into_str(),
        "rule": &**verdict.decision.rule(),
        "why": why(verdict),
        "evidence": need(verdict),
        "hidden": is_hidden(verdict),
        "kind": kind.into_str(),
        "item": &**canonical,
        "upstream": &**upstream,
        "known": verdict.known,
        "caller": caller.name(),
        "scopes": scopes,
        "groups": groups,
        "profile": verdict.action.profile.as_deref(),
        "annotations": annotations,
        "rules": rules.collect::<Vec<_>>(),
    });
    if let (Some(took), Some(object)) = (verdict.took, value.as_object_mut()) {
        object.insert("took-ns".to_owned(), u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).into());
    }
    format!("{value:#}\n")
}
