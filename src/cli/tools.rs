//! `headend tools`.

use clap::{Args, ValueEnum};

use super::daemon;
use super::options::Common;
use super::output::{Failure, print, table};
use crate::wire::raw::{RawJson, RawObject};

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ToolsArgs {
    /// List withheld tools too, with the reason.
    #[arg(long)]
    all: bool,
    /// List what clients of this kind see.
    ///
    /// Some servers offer tools only to clients that they can ask for input.
    #[arg(long = "as", value_name = "KIND", conflicts_with = "all")]
    kind: Option<ClientKind>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Kinds of clients, by what a server can ask them for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ClientKind {
    /// Nothing.
    None,
    /// Forms to fill in (elicitation).
    Forms,
    /// Forms, pages to open, and answers of their model (sampling).
    All,
}

impl ClientKind {
    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Forms => "forms",
            Self::All => "all",
        }
    }
}

pub(super) fn run(common: &Common, args: ToolsArgs) -> Result<u8, Failure> {
    let mut params = RawObject::default();
    if args.all {
        params.set("all", RawJson::boolean(true));
    }
    if let Some(kind) = args.kind {
        params.set("as", RawJson::string(kind.word()));
    }
    let answer = daemon::connect(common, "admin", None)?.ask("tools", Some(&params.encode().text()))?;
    if args.json {
        return print(&format!("{}\n", answer.encode().text()));
    }
    let columns = ["name", "upstream", "original", "canonical", "pin", "effect", "withheld"];
    let columns = columns.get(..if args.all { 7 } else { 6 }).unwrap_or_default();
    let mut rows = vec![columns.iter().map(|name| name.to_uppercase()).collect::<Vec<String>>()];
    let tools = answer.list("tools").unwrap_or_default();
    for tool in tools.iter().filter_map(|raw| RawObject::parse(raw).ok()) {
        rows.push(columns.iter().map(|name| tool.string(name).unwrap_or_default()).collect());
    }
    let waits = rows.iter().flatten().any(|cell| matches!(cell.as_str(), "changed" | "quarantined"));
    let withheld = answer.get("withheld").and_then(|count| count.parse::<usize>().ok()).unwrap_or_default();
    let hint = match withheld {
        _ if args.all && !waits => String::new(),
        _ if args.all => "\n`headend pins --waiting` lists what waits for your approval\n".to_owned(),
        0 => String::new(),
        1 => "\n1 more is withheld; `headend tools --all` says why\n".to_owned(),
        more => format!("\n{more} more are withheld; `headend tools --all` says why\n"),
    };
    let is_new = rows.iter().skip(1).any(|row| row.get(4).is_some_and(|pin| pin == "new"));
    let new = if is_new {
        "\nnew tools appeared after the first list of their server's launch; `headend pins approve NAME` confirms one that you have \
         looked at\n"
    } else {
        ""
    };
    print(&format!("{}{hint}{new}", table(&rows)))
}
