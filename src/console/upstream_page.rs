//! The page of one upstream: its state, the last lines of its log, its tools, and the buttons that
//! act on it.

use askama::Template;

use super::page::{PageFrame, UpstreamTile};
use super::text::{ForeignPiece, ForeignPieceKind, block, capitalised, counted, moment, span, visible};
use crate::base::local_time::{local, zone};
use crate::gateway::snapshot::{LineOrigin, LogLine};
use crate::mcp::definition::weight;
use crate::operator::tools::ToolView;
use crate::operator::upstreams::{LoginInUse, UpstreamDetail, UpstreamFacts, WithheldItemView};
use crate::policy::consent::SteadySeconds;

/// Returns the upstream's name from the path of its page; `None` for any other path.
pub(crate) fn name_in(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/upstreams/")?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=64).contains(&name.len()) && name.bytes().all(is_name)).then_some(name)
}

/// The page of one upstream.
#[derive(Debug, Template)]
#[template(path = "upstream.html", config = "src/console/askama.toml")]
pub(crate) struct UpstreamPage {
    pub(crate) frame: PageFrame,
    tile: UpstreamTile,
    /// Time that the upstream has been in its state.
    age: String,
    is_off: bool,
    wants_login: bool,
    /// Account, issuer and remaining time of the login in use.
    login: Option<String>,
    /// Path of the program that is started.
    program: Option<String>,
    /// Sentences about unexpected facts of the server.
    remarks: Vec<String>,
    lines: Vec<LogLineRow>,
    /// Time zone of the times in `lines`.
    zone: String,
    tools: Vec<ToolRow>,
    /// Number and size of all tools, in words.
    total: String,
    /// The instructions that clients get, and their size in words.
    instructions: Option<(Vec<ForeignPiece>, String)>,
    withheld: Vec<WithheldRow>,
}

/// A line of the upstream's log.
#[derive(Debug)]
struct LogLineRow {
    clock: String,
    moment: String,
    /// True if headend wrote the line.
    is_own: bool,
    pieces: Vec<ForeignPiece>,
}

/// The row of a tool.
#[derive(Debug)]
struct ToolRow {
    name: String,
    is_new: bool,
    by_operator: Option<String>,
    by_server: String,
    effect: String,
    tone: &'static str,
    bytes: usize,
    tokens: usize,
}

/// The row of an item that is withheld from clients.
#[derive(Debug)]
struct WithheldRow {
    name: String,
    why: String,
}

impl UpstreamPage {
    pub(crate) fn new(frame: PageFrame, detail: &UpstreamDetail) -> Self {
        let UpstreamDetail { view, is_off, takes_login, wants_login, lines, tools, withheld } = detail;
        let none = UpstreamFacts::default();
        let facts = view.facts.as_deref().unwrap_or(&none);
        let bytes: usize = tools.iter().filter_map(|tool| tool.bytes).sum();
        let mut tools: Vec<ToolRow> = tools.iter().map(ToolRow::new).collect();
        // Largest first, as in `headend tools --tokens`.
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.bytes));
        let withheld = withheld.iter().map(WithheldRow::new).collect();
        let tile = UpstreamTile::new(view);
        let offers = tile.offers.trim_start_matches("offers ").to_owned();
        Self {
            frame,
            tile: UpstreamTile { error: facts.health.last_error.as_deref().map(visible), offers, ..tile },
            age: span(facts.health.since_seconds),
            is_off: *is_off,
            wants_login: *wants_login,
            login: facts.login.as_ref().filter(|_| *takes_login).map(describe_login),
            program: facts.program.as_deref().map(visible),
            remarks: remarks(facts).iter().map(|remark| visible(remark)).collect(),
            lines: lines.iter().map(LogLineRow::new).collect(),
            zone: lines.last().map(|line| zone(line.at / 1000)).unwrap_or_default(),
            total: format!("{}, about {} tokens together", counted(tools.len(), "tool"), weight::tokens(bytes)),
            tools,
            instructions: facts.instructions.as_ref().map(|passed| (block(&passed.text), passed.describe())),
            withheld,
        }
    }
}

/// Returns one sentence for each unexpected fact that `headend status NAME` shows too.
fn remarks(facts: &UpstreamFacts) -> Vec<String> {
    let unread = facts.unread_lists.iter().map(|(list, unread)| {
        format!(
            "Its {list} could not be read ({}; attempts: {}). Clients see what was known; next try in {}.",
            unread.why,
            unread.attempts,
            span(unread.next_try_seconds)
        )
    });
    let definitions = facts.invalid_definitions.iter();
    let definitions = definitions.map(|line| format!("Not as the protocol wants it, definition: {line}"));
    let more = (facts.invalid_definitions_not_shown > 0)
        .then(|| format!("And {} more such definitions.", facts.invalid_definitions_not_shown));
    let turns = (!facts.one_at_a_time.is_empty())
        .then(|| format!("Calls of these pass one at a time: {}.", facts.one_at_a_time.join(", ")));
    let input = facts.input.as_deref().map(|why| format!("{}.", capitalised(why)));
    unread.chain(definitions).chain(more).chain(turns).chain(input).collect()
}

/// Describes a login: account, issuer and remaining time.
fn describe_login(login: &LoginInUse) -> String {
    let account = login.account.as_ref().map(|account| format!("{} at ", visible(account))).unwrap_or_default();
    let left = login.token_seconds.map(|left| format!("; its token ends in {}", span(left))).unwrap_or_default();
    format!("{account}{}{left}", visible(&login.issuer))
}

impl LogLineRow {
    fn new(line: &LogLine) -> Self {
        let at = SteadySeconds::from(line.at / 1000);
        let clock = local(at).get(11..19).unwrap_or_default().to_owned();
        Self { clock, moment: moment(at), is_own: line.origin == LineOrigin::Headend, pieces: block(&line.text) }
    }
}

impl WithheldRow {
    fn new(item: &WithheldItemView) -> Self {
        Self { name: visible(&item.name), why: visible(&item.why) }
    }
}

impl ToolRow {
    fn new(tool: &ToolView) -> Self {
        Self {
            name: visible(&tool.name),
            is_new: tool.is_new,
            by_operator: tool.said.all_by_operator().as_deref().map(capitalised),
            by_server: capitalised(&tool.said.all_by_server()),
            effect: tool.effect.clone().unwrap_or_default(),
            tone: match tool.effect.as_deref().unwrap_or_default() {
                "allow" => "good",
                "deny" => "danger",
                _ => "warn",
            },
            bytes: tool.bytes.unwrap_or_default(),
            tokens: weight::tokens(tool.bytes.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_path_is_that_of_an_upstream() {
        assert_eq!(name_in("/upstreams/legacy-crm2"), Some("legacy-crm2"));
        for strange in ["/upstreams", "/upstreams/", "/upstreams/A", "/upstreams/a/b", "/upstreams/%61", "/x/a"] {
            assert_eq!(name_in(strange), None, "{strange}");
        }
    }
}
