//! The command `headend tools [NAME]`: lists the merged tools, or shows one.

use clap::{Args, ValueEnum};

use crate::cli::reach::daemon;
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print, print_json};
use crate::cli::words::screen::{Colour, Column, Screen};
use crate::mcp::definition::weight::tokens;
use crate::operator::request::{NameParams, Request, ToolsParams};
use crate::operator::tool::{ToolCallerEffect, ToolDetail};
use crate::operator::tools::{ToolView, ToolsView};
use crate::wire::foreign;
use crate::wire::json::layout::indented;

const COLUMNS: [Column; 7] = [
    Column { head: "NAME", rank: 0 },
    Column { head: "UPSTREAM", rank: 3 },
    Column { head: "ORIGINAL", rank: 4 },
    Column { head: "CANONICAL", rank: 5 },
    Column { head: "PIN", rank: 1 },
    Column { head: "EFFECT", rank: 0 },
    Column { head: "WITHHELD", rank: 9 },
];

#[derive(Clone, Debug, Args)]
pub(super) struct ToolsArgs {
    /// One tool, by its exposed or its canonical name: its description, schema and hints, and who
    /// may call it.
    #[arg(conflicts_with_all = ["all", "kind", "tokens"])]
    name: Option<String>,
    /// List withheld tools too, with the reason.
    #[arg(long)]
    all: bool,
    /// List what clients of this kind see.
    ///
    /// Some servers offer tools only to clients that they can ask for input.
    #[arg(long = "as", value_name = "KIND", conflicts_with = "all")]
    kind: Option<ClientKind>,
    /// List how much of a model's context each tool and each server takes, the largest first.
    ///
    /// The bytes are those of the name, the description and the schema of the arguments, which
    /// hosts send with every request to their model. Four bytes count as one token; models differ.
    #[arg(long, conflicts_with = "all")]
    tokens: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Kinds of clients, by what a server can ask them for.
#[derive(Clone, Copy, Debug, ValueEnum, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "lowercase")]
enum ClientKind {
    /// Nothing.
    None,
    /// Forms to fill in (elicitation).
    Forms,
    /// Forms, pages to open, and answers of their model (sampling).
    All,
}

pub(super) fn run(common: &CommonOptions, args: &ToolsArgs) -> Result<u8, CommandFailure> {
    let mut daemon = daemon::connect(common, "admin", None)?;
    if let Some(name) = &args.name {
        return show(&mut daemon, name, args.json);
    }
    let kind = args.kind.map(|kind| kind.into_str().to_owned());
    let params = ToolsParams { kind, all: args.all, sizes: args.tokens };
    let answer: ToolsView = daemon.ask(&Request::Tools(params))?;
    let screen = Screen::of_stdout();
    match args {
        ToolsArgs { json: true, .. } => print_json(&answer),
        ToolsArgs { tokens: true, .. } => print(&sizes(screen, &answer.tools)),
        ToolsArgs { all, .. } => print(&list(screen, &answer, *all)),
    }
}

fn list(screen: Screen, ToolsView { tools, withheld }: &ToolsView, all: bool) -> String {
    let columns = COLUMNS.get(..if all { 7 } else { 6 }).unwrap_or_default();
    let row = |tool: &ToolView| {
        let ToolView { name, upstream, original, canonical, pin, effect, withheld, .. } = tool.clone();
        let mut row = vec![name, upstream, original, canonical, pin, effect.unwrap_or_default()];
        row.extend(all.then(|| withheld.unwrap_or_default()));
        row
    };
    let rows: Vec<Vec<String>> = tools.iter().map(row).collect();
    let is_beside = screen.fitting(columns, &rows).contains(&6);
    let note = |at: usize| rows.get(at)?.get(6).filter(|why| all && !is_beside && !why.is_empty()).cloned();
    let mut out = screen.table(columns, &rows, coloured, note);
    let has = |pins: &[&str]| tools.iter().any(|tool| pins.contains(&tool.pin.as_str()));
    let hint = match withheld.unwrap_or_default() {
        _ if all && !has(&["changed", "quarantined"]) => None,
        _ if all => Some("`headend pins --waiting` lists what waits for your approval".to_owned()),
        0 => None,
        1 => Some("1 more is withheld; `headend tools --all` says why".to_owned()),
        more => Some(format!("{more} more are withheld; `headend tools --all` says why")),
    };
    let new = has(&["new"]).then(|| {
        "new tools appeared after the first list of their server's launch; `headend pins approve NAME` confirms one that you have looked \
         at"
        .to_owned()
    });
    for hint in hint.into_iter().chain(new) {
        out.push_str(&format!("\n{}", screen.paragraph(&hint)));
    }
    out
}

fn coloured(head: &str, cell: &str) -> Option<Colour> {
    match (head, cell) {
        ("EFFECT", "allow") => Some(Colour::Good),
        ("EFFECT", "ask") | ("PIN", "new") => Some(Colour::Busy),
        ("EFFECT", "deny") | ("PIN", "changed" | "quarantined" | "rejected" | "withheld") => Some(Colour::Bad),
        ("PIN", _) => Some(Colour::Pale),
        _ => None,
    }
}

/// Formats the sizes of servers and tools, the largest first.
fn sizes(screen: Screen, tools: &[ToolView]) -> String {
    let mut each: Vec<(usize, &str)> = Vec::new();
    let mut servers: Vec<(usize, &str, usize)> = Vec::new();
    for ToolView { name, upstream: server, bytes, .. } in tools {
        let bytes = bytes.unwrap_or_default();
        each.push((bytes, name));
        match servers.iter_mut().find(|(_, known, _)| known == server) {
            Some((sum, _, tools)) => (*sum, *tools) = (*sum + bytes, *tools + 1),
            None => servers.push((bytes, server, 1)),
        }
    }
    each.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    servers.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    let total: usize = each.iter().map(|(bytes, _)| bytes).sum();
    let row = |name: &str, bytes: usize| vec![tokens(bytes).to_string(), bytes.to_string(), name.to_owned()];
    let heads = |name| ["TOKENS", "BYTES", name].map(|head| Column { head, rank: 0 });
    let by_server =
        servers.iter().map(|(bytes, name, tools)| row(&format!("{name} ({})", count(*tools, "tool")), *bytes));
    let by_server: Vec<Vec<String>> = by_server.chain([row("all", total)]).collect();
    let by_tool: Vec<Vec<String>> = each.iter().map(|(bytes, name)| row(name, *bytes)).collect();
    let mut out = screen.plain(&heads("SERVER"), &by_server);
    out.push('\n');
    out.push_str(&screen.plain(&heads("TOOL"), &by_tool));
    out.push_str(&format!("\n{}", screen.paragraph("tokens are estimated as a quarter of the bytes; models differ")));
    out
}

/// Prints one tool.
fn show(daemon: &mut DaemonConnection, name: &str, json: bool) -> Result<u8, CommandFailure> {
    let tool = daemon.ask::<ToolDetail>(&Request::Tool(NameParams { name: name.to_owned() }));
    let tool = tool.map_err(|failure| suggest_tool(daemon, name, failure))?;
    if json { print_json(&tool) } else { print(&about(Screen::of_stdout(), &tool)) }
}

/// Adds a suggestion to the daemon's error if no tool has the name.
pub(super) fn suggest_tool(daemon: &mut DaemonConnection, name: &str, failure: CommandFailure) -> CommandFailure {
    let answer = daemon.ask(&Request::Tools(ToolsParams::default()));
    let Ok(ToolsView { tools, .. }) = answer else { return failure };
    let names: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
    if names.iter().any(|known| known == name) || failure.text.starts_with("withheld") {
        return failure;
    }
    let text = format!("{}; `headend tools` lists them{}", failure.text, suggest_names(name, names));
    CommandFailure { text, ..failure }
}

fn about(screen: Screen, tool: &ToolDetail) -> String {
    let hints = if tool.hints.is_empty() { "nothing in particular".to_owned() } else { tool.hints.join(", ") };
    let ToolDetail { name, title, upstream, original, canonical, pin, .. } = tool;
    let named = [
        ("name", name),
        ("title", title),
        ("upstream", upstream),
        ("original", original),
        ("canonical", canonical),
        ("pin", pin),
    ];
    let named = named.into_iter().filter(|(_, text)| !text.is_empty());
    let mut pairs: Vec<(String, String)> = named.map(|(name, text)| (name.to_owned(), text.clone())).collect();
    pairs.push(("size".to_owned(), format!("{} bytes, about {} tokens", tool.bytes, tokens(tool.bytes))));
    pairs.push(("hints".to_owned(), tool.hints_of_server.clone()));
    if !tool.hints_of_operator.is_empty() {
        pairs.push((String::new(), tool.hints_of_operator.clone()));
    }
    pairs.push((String::new(), format!("rules take it for: {hints}")));
    let mut out = screen.pairs(&pairs);
    out.push_str("\ndescription, in its server's words:\n");
    for line in foreign::block(&tool.description).lines() {
        out.push_str(&screen.indented("  | ", line));
    }
    for (schema, head) in [(&tool.input_schema, "arguments"), (&tool.output_schema, "structured results")] {
        let Some(schema) = schema else { continue };
        out.push_str(&format!("\nschema of its {head}:\n"));
        for line in foreign::block(&indented(&schema.text())).lines() {
            out.push_str(&format!("  | {line}\n"));
        }
    }
    let columns = ["CALLER", "PROFILE", "CALLS IT", "EFFECT"].map(|head| Column { head, rank: 0 });
    let rows = tool.who.iter().cloned().map(|ToolCallerEffect { caller, profile, name, effect }| {
        vec![caller, if profile.is_empty() { "-".to_owned() } else { profile }, name, effect]
    });
    out.push_str("\nwho may call it, as long as no rule on arguments applies:\n");
    out.push_str(&screen.table(&columns, &rows.collect::<Vec<_>>(), coloured, |_| None));
    if let Some(group) = &tool.group {
        let line = format!("members of the group {group} are callers too, each as uid:NUMBER");
        out.push_str(&screen.paragraph(&line));
    }
    let test = format!("`headend policy test --tool {}` explains a decision", foreign::word(canonical));
    out.push_str(&format!("\n{}", screen.paragraph(&test)));
    out
}
