//! The page of one upstream: its state, its last lines, its tools, and the actions on it.

use askama::Template;

use super::desk::{ToolView, UpstreamDetail};
use super::login_desk::HeldLogin;
use super::page::{Frame, Tile};
use super::text::{Piece, PieceKind, block, capitalised, counted, moment, span, visible};
use crate::base::local_time::{local, zone};
use crate::gateway::snapshot::{LogLine, Origin};
use crate::mcp::weight;
use crate::policy::consent::Wall;

/// The name in the path of such a page.
pub(crate) fn name_in(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/upstreams/")?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=64).contains(&name.len()) && name.bytes().all(is_name)).then_some(name)
}

#[derive(Debug, Template)]
#[template(path = "upstream.html", config = "src/console/askama.toml")]
pub(crate) struct UpstreamPage {
    pub(crate) frame: Frame,
    tile: Tile,
    /// How long it has been in its state.
    age: String,
    is_off: bool,
    wants_login: bool,
    /// Whose login is in use, where and for how long.
    login: Option<String>,
    lines: Vec<Line>,
    /// The zone of their times.
    zone: String,
    tools: Vec<Tool>,
    total: String,
    withheld: Vec<Withheld>,
}

/// A line of its log.
#[derive(Debug)]
struct Line {
    clock: String,
    moment: String,
    /// It is headend's.
    is_own: bool,
    pieces: Vec<Piece>,
}

/// A tool's row.
#[derive(Debug)]
struct Tool {
    name: String,
    is_new: bool,
    by_operator: Option<String>,
    by_server: String,
    effect: &'static str,
    tone: &'static str,
    bytes: usize,
    tokens: usize,
}

#[derive(Debug)]
struct Withheld {
    name: String,
    why: String,
}

impl UpstreamPage {
    pub(crate) fn new(frame: Frame, detail: &UpstreamDetail) -> Self {
        let UpstreamDetail { view, is_off, login, lines, tools, withheld } = detail;
        let bytes: usize = tools.iter().map(|tool| tool.bytes).sum();
        let mut tools: Vec<Tool> = tools.iter().map(Tool::new).collect();
        // The largest first, as `headend tools --tokens` has them.
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.bytes));
        let withheld = withheld.iter().map(|(name, why)| Withheld { name: visible(name), why: visible(why) }).collect();
        let tile = Tile::new(view);
        let offers = tile.offers.trim_start_matches("offers ").to_owned();
        Self {
            frame,
            tile: Tile { error: view.last_error.as_ref().map(|error| visible(error)), offers, ..tile },
            age: span(view.age),
            is_off: *is_off,
            wants_login: login.as_ref().is_some_and(|login| login.is_wanted),
            login: login.as_ref().and_then(|login| login.held.as_ref()).map(held),
            lines: lines.iter().map(Line::new).collect(),
            zone: lines.last().map(|line| zone(line.at / 1000)).unwrap_or_default(),
            total: format!("{}, about {} tokens together", counted(tools.len(), "tool"), weight::tokens(bytes)),
            tools,
            withheld,
        }
    }
}

fn held(login: &HeldLogin) -> String {
    let account = login.account.as_ref().map(|account| format!("{} at ", visible(account))).unwrap_or_default();
    let left = login.left.map(|left| format!("; its token ends in {}", span(left))).unwrap_or_default();
    format!("{account}{}{left}", visible(&login.issuer))
}

impl Line {
    fn new(line: &LogLine) -> Self {
        let at = Wall::from(line.at / 1000);
        let clock = local(at).get(11..19).unwrap_or_default().to_owned();
        Self { clock, moment: moment(at), is_own: line.origin == Origin::Headend, pieces: block(&line.text) }
    }
}

impl Tool {
    fn new(tool: &ToolView) -> Self {
        Self {
            name: visible(&tool.name),
            is_new: tool.is_new,
            by_operator: tool.said.by_operator().as_deref().map(capitalised),
            by_server: capitalised(&tool.said.by_server()),
            effect: tool.effect,
            tone: match tool.effect {
                "allow" => "good",
                "deny" => "danger",
                _ => "warn",
            },
            bytes: tool.bytes,
            tokens: weight::tokens(tool.bytes),
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
