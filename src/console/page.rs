//! The pages as values for the templates in `pages/`. Foreign text is made visible here and escaped there.

use askama::Template;

use super::argument::RowKind;
use super::card::Card;
use super::group_link::GroupLink;
use super::questions::Questions;
use super::session::Notice;
use super::text::{Piece, PieceKind, When, ago, block, capitalised, counted, diff, span, visible};
use crate::operator::pins::{PinKind, PinView};
use crate::operator::upstreams::{HealthView, UpstreamFacts, UpstreamView};
use crate::policy::PinState;
use crate::policy::consent::{self, BlockView, GrantView, Wall};
use crate::store::recent::DecisionView;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign::hidden_in;
use crate::wire::foreign::oddities::Oddities;
use crate::wire::layout::indented;

/// The current page, for the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Overview,
    Grants,
    Pins,
    Upstreams,
    Decisions,
    Calls,
    Other,
}

/// Common parts of every page of a signed-in browser.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) section: Section,
    pub(crate) csrf: String,
    pub(crate) notice: Option<Notice>,
    /// Numbers of open approvals and of waiting pins.
    pub(crate) waiting: usize,
    pub(crate) pins_waiting: usize,
}

/// A page in the navigation.
#[derive(Debug)]
pub(crate) struct NavLink {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) is_current: bool,
    /// The number that waits there, and the word for it.
    pub(crate) count: usize,
    pub(crate) counts: &'static str,
}

impl Frame {
    /// The navigation, in its order.
    pub(crate) fn links(&self) -> Vec<NavLink> {
        let link = |section, path, name, count, counts| NavLink {
            path,
            name,
            // The calls page leads to the same records as that of the last decisions, and to more of them.
            is_current: self.section == section || self.section == Section::Decisions && section == Section::Calls,
            count,
            counts,
        };
        vec![
            link(Section::Overview, "/", "Overview", self.waiting, "waiting"),
            link(Section::Grants, "/grants", "Grants", 0, ""),
            link(Section::Pins, "/pins", "Changed tools", self.pins_waiting, "to review"),
            link(Section::Upstreams, "/upstreams", "Upstreams", 0, ""),
            link(Section::Calls, "/calls", "Calls", 0, ""),
        ]
    }
}

/// An upstream's tile.
#[derive(Debug)]
pub(crate) struct Tile {
    pub(crate) name: String,
    /// Its own page.
    pub(crate) href: String,
    pub(crate) state: &'static str,
    /// Mark of the state.
    pub(crate) tone: &'static str,
    pub(crate) offers: String,
    pub(crate) revision: String,
    pub(crate) in_flight: usize,
    pub(crate) restarts: u64,
    pub(crate) error: Option<String>,
    /// For how long it has not been ready, when it is tried again, and what to do.
    pub(crate) waits: Option<String>,
    /// It waits for a login, which its own page gives.
    pub(crate) wants_login: bool,
}

impl Tile {
    pub(crate) fn new(upstream: &UpstreamView) -> Self {
        let none = UpstreamFacts::default();
        let (state, facts) = (upstream.state, upstream.facts.as_deref().unwrap_or(&none));
        let resources = facts.resources + facts.resource_templates;
        let offered = [(facts.tools, "tool"), (facts.prompts, "prompt"), (resources, "resource")];
        let not_offered: usize = facts.not_offered.values().map(|excess| excess.items).sum();
        let mut offers: Vec<String> =
            offered.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| counted(n, word)).collect();
        offers.extend((not_offered > 0).then(|| format!("{not_offered} more not offered")));
        Self {
            name: visible(&upstream.name),
            href: format!("/upstreams/{}", upstream.name),
            state: state.into_str(),
            tone: if state == UpstreamState::Ready {
                "good"
            } else if state == UpstreamState::Starting {
                "warn"
            } else if state.has_failed() {
                "danger"
            } else {
                "calm"
            },
            offers: if offers.is_empty() { "offers nothing yet".to_owned() } else { offers.join(", ") },
            revision: facts.revision.clone().unwrap_or_else(|| "–".to_owned()),
            in_flight: facts.in_flight,
            restarts: facts.restarts,
            error: facts.health.last_error.as_ref().filter(|_| state.has_failed()).map(|error| visible(error)),
            waits: (state.has_failed() || state == UpstreamState::Starting).then(|| waits(upstream, &facts.health)),
            wants_login: state.wants_login(),
        }
    }
}

/// For how long an upstream has been in its state, and what comes next.
fn waits(upstream: &UpstreamView, health: &HealthView) -> String {
    let next = health.next_try_seconds.map(|seconds| format!(", tried again in {}", span(seconds))).unwrap_or_default();
    let advice = upstream.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{} for {}{next}{advice}.", capitalised(upstream.state.into_str()), span(health.since_seconds))
}

/// A decision's row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) at: When,
    pub(crate) decision: &'static str,
    pub(crate) tone: &'static str,
    pub(crate) caller: String,
    pub(crate) kind: &'static str,
    pub(crate) item: String,
    pub(crate) rule: String,
    pub(crate) why: &'static str,
}

impl Row {
    pub(crate) fn new(decision: &DecisionView, now: Wall) -> Self {
        let (word, tone) = match decision.decision {
            "allow" => ("allowed", "good"),
            "deny" => ("denied", "danger"),
            "ask" => ("asked", "warn"),
            _ => ("limited", "warn"),
        };
        Self {
            at: When::past(now, decision.at),
            decision: word,
            tone,
            caller: visible(&decision.caller),
            kind: decision.kind,
            item: visible(&decision.item),
            rule: visible(&decision.rule),
            why: decision.why,
        }
    }
}

/// The row of a refusal of calls for a while.
#[derive(Debug)]
pub(crate) struct BlockRow {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) client: Option<String>,
    pub(crate) item: String,
    pub(crate) left: String,
    pub(crate) denied_by: Option<String>,
}

impl BlockRow {
    pub(crate) fn new(block: &BlockView, now: Wall) -> Self {
        Self {
            id: block.id.clone(),
            caller: visible(&block.caller),
            client: block.client_name().map(visible),
            item: visible(&block.item),
            left: span(block.until.saturating_sub(now)),
            denied_by: block.by.as_deref().map(visible),
        }
    }
}

/// A grant's row.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) kind: String,
    pub(crate) item: String,
    pub(crate) destructive: bool,
    pub(crate) lifetime: String,
    pub(crate) scope: String,
    pub(crate) by: String,
    pub(crate) level: &'static str,
    pub(crate) rule: String,
    pub(crate) at: When,
    pub(crate) used: String,
}

impl Granted {
    pub(crate) fn new(grant: &GrantView, now: Wall) -> Self {
        let lifetime = match (grant.lifetime.as_str(), grant.until) {
            ("until", Some(end)) => format!("{} more", span(end.saturating_sub(now))),
            ("until-changed", _) => "always, until it changes".to_owned(),
            ("session", _) => "this session".to_owned(),
            (word, _) => word.to_owned(),
        };
        let used = match grant.uses {
            0 => "not yet".to_owned(),
            uses => {
                let times = counted(usize::try_from(uses).unwrap_or(usize::MAX), "time");
                format!("{times}, {}", ago(now, grant.last_used))
            }
        };
        Self {
            id: grant.id.clone(),
            caller: visible(&grant.caller),
            kind: grant.kind.clone(),
            item: visible(&grant.item),
            destructive: grant.destructive,
            lifetime,
            scope: match (&grant.below, &grant.covers) {
                (Some(base), Some(covers)) => format!("below {}. {}", visible(base), visible(covers)),
                _ if grant.arguments == "exact" => "these arguments only".to_owned(),
                _ => "any arguments".to_owned(),
            },
            by: visible(&grant.by),
            level: match grant.evidence.as_str() {
                "L1" => "asked in the client",
                "L2" => "in the console",
                _ => "on the command line",
            },
            rule: visible(&grant.rule),
            at: When::past(now, grant.granted_at),
            used,
        }
    }
}

/// A pin that waits for approval.
#[derive(Debug)]
pub(crate) struct Review {
    pub(crate) upstream: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The name as the form returns it: unchanged.
    pub(crate) key: String,
    pub(crate) digest: String,
    pub(crate) short: String,
    pub(crate) anchor: String,
    pub(crate) new: bool,
    /// Clients see it already.
    pub(crate) added: bool,
    pub(crate) rejected: bool,
    pub(crate) launch: bool,
    pub(crate) since: When,
    pub(crate) why: String,
    pub(crate) hidden: Option<String>,
    pub(crate) mixed: Option<String>,
    pub(crate) pieces: Vec<Piece>,
}

impl Review {
    /// Whether the operator should review it: a rejected pin was reviewed.
    pub(crate) fn is_due(pin: &PinView) -> bool {
        pin.is_new || (pin.waiting.is_some() && pin.state != PinState::Rejected)
    }

    /// `None` when nothing waits.
    pub(crate) fn new(pin: &PinView, now: Wall) -> Option<Self> {
        let waiting = pin.waiting.as_ref().or_else(|| pin.approved.as_ref().filter(|_| pin.is_new))?;
        let waiting = &*indented(waiting);
        let pieces = match pin.approved.as_ref().filter(|_| !pin.is_new) {
            Some(approved) => diff(&indented(approved), waiting),
            None => block(waiting),
        };
        let digest = pin.shown().map(|digest| digest.hex()).unwrap_or_default();
        let hidden = hidden_in(waiting);
        let mut oddities = Oddities::default();
        oddities.look_at_json(waiting);
        let short: String = digest.chars().take(8).collect();
        Some(Self {
            upstream: visible(&pin.upstream),
            kind: pin.kind.into_str().to_owned(),
            name: visible(&pin.name),
            anchor: format!("pin-{short}"),
            digest,
            short,
            new: pin.approved.is_none() || pin.is_new,
            added: pin.is_new,
            rejected: pin.state == PinState::Rejected,
            launch: pin.kind == PinKind::Launch,
            key: pin.name.clone(),
            since: When::past(now, pin.since),
            why: visible(&pin.by),
            hidden: (hidden > 0).then(|| counted(hidden, "hidden character")),
            mixed: oddities.told_mixed().as_deref().map(capitalised),
            pieces,
        })
    }
}

/// The pins of one upstream that match their approved text.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) upstream: String,
    pub(crate) count: String,
    pub(crate) names: Vec<String>,
}

impl Pinned {
    pub(crate) fn all(pins: &[PinView]) -> Vec<Self> {
        let mut out: Vec<(String, Vec<String>)> = Vec::new();
        for pin in pins.iter().filter(|pin| pin.state == PinState::Pinned && !pin.is_new) {
            let (upstream, kind) = (visible(&pin.upstream), pin.kind.into_str());
            let name = if kind == "launch" { kind.to_owned() } else { format!("{} ({kind})", visible(&pin.name)) };
            match out.iter_mut().find(|(known, _)| *known == upstream) {
                Some((_, names)) => names.push(name),
                None => out.push((upstream, vec![name])),
            }
        }
        out.into_iter()
            .map(|(upstream, names)| Self { upstream, count: counted(names.len(), "definition"), names })
            .collect()
    }
}

/// The end of an approval, as a heading and a sentence.
const fn words_of(ending: consent::Closed) -> (&'static str, &'static str) {
    match ending {
        consent::Closed::Granted => {
            ("Allowed", "The call was allowed. Its grant is listed under Grants as long as it is in force.")
        }
        consent::Closed::Denied => ("Denied", "The call was denied. It was not made."),
        consent::Closed::Declined => ("Declined", "The client declined this call. It was not made."),
        consent::Closed::Dismissed => {
            ("Dismissed", "The approval was closed without an answer. The call was not made.")
        }
        consent::Closed::TimedOut => {
            ("Timed out", "No answer came in time. The call was not made; the client may try it again.")
        }
        consent::Closed::Superseded => (
            "Superseded",
            "The tool, its upstream or the rule changed meanwhile, or the gateway was restarted, so this approval is void. The client may try the call again.",
        ),
    }
}

#[derive(Debug, Template)]
#[template(path = "group.html", config = "src/console/askama.toml")]
pub(crate) struct Group {
    pub(crate) frame: Frame,
    pub(crate) cards: Vec<Card>,
    /// Whether the console's evidence suffices to allow one of them.
    answerable: bool,
}

impl Group {
    pub(crate) fn new(frame: Frame, cards: Vec<Card>) -> Self {
        let answerable = cards.iter().any(|card| card.answerable);
        Self { frame, cards, answerable }
    }
}

#[derive(Debug, Template)]
#[template(path = "overview.html", config = "src/console/askama.toml")]
pub(crate) struct Overview {
    pub(crate) frame: Frame,
    pub(crate) questions: Questions,
    pub(crate) troubles: Vec<String>,
    pub(crate) blocks: Vec<BlockRow>,
    pub(crate) tiles: Vec<Tile>,
    pub(crate) troubled: usize,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Template)]
#[template(path = "approval.html", config = "src/console/askama.toml")]
pub(crate) struct OneApproval {
    pub(crate) frame: Frame,
    pub(crate) card: Card,
    /// Where others of its caller and item are open.
    pub(crate) group: Option<GroupLink>,
}

#[derive(Debug, Template)]
#[template(path = "closed.html", config = "src/console/askama.toml")]
pub(crate) struct Closed {
    pub(crate) frame: Frame,
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
    /// It was allowed when the agent had been told to stop.
    pub(crate) is_late: bool,
    pub(crate) id: String,
}

impl Closed {
    /// `None`: an unknown id.
    pub(crate) fn new(frame: Frame, id: &str, ending: Option<consent::Closed>, is_late: bool) -> Self {
        let unknown = (
            "Not known",
            "There is no open approval with this id. It may have ended before the gateway was restarted.",
        );
        let (title, text) = ending.map_or(unknown, words_of);
        Self { frame, title, text, is_late, id: id.to_owned() }
    }
}

#[derive(Debug, Template)]
#[template(path = "grants.html", config = "src/console/askama.toml")]
pub(crate) struct Grants {
    pub(crate) frame: Frame,
    pub(crate) grants: Vec<Granted>,
}

#[derive(Debug, Template)]
#[template(path = "pins.html", config = "src/console/askama.toml")]
pub(crate) struct Pins {
    pub(crate) frame: Frame,
    pub(crate) reviews: Vec<Review>,
    pub(crate) pinned: Vec<Pinned>,
}

#[derive(Debug, Template)]
#[template(path = "upstreams.html", config = "src/console/askama.toml")]
pub(crate) struct Upstreams {
    pub(crate) frame: Frame,
    /// The command by which hosts reach this daemon.
    pub(crate) host_command: Option<String>,
    pub(crate) tiles: Vec<Tile>,
}

#[derive(Debug, Template)]
#[template(path = "decisions.html", config = "src/console/askama.toml")]
pub(crate) struct Decisions {
    pub(crate) frame: Frame,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Template)]
#[template(path = "sign_in.html", config = "src/console/askama.toml")]
pub(crate) struct SignIn {
    pub(crate) then: String,
    pub(crate) problem: Option<String>,
}

#[derive(Debug, Template)]
#[template(path = "open.html", config = "src/console/askama.toml")]
pub(crate) struct Open {
    pub(crate) link: String,
}

/// A page with a short text, for signed-in and other browsers.
#[derive(Debug, Template)]
#[template(path = "plain.html", config = "src/console/askama.toml")]
pub(crate) struct Plain {
    pub(crate) title: String,
    pub(crate) text: String,
}
