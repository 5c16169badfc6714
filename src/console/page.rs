//! The pages as values for the templates in `pages/`. Constructors make hidden characters of
//! foreign text visible; the templates escape it.

use std::borrow::Cow;

use askama::Template;

use super::session::ActionNotice;
use super::text::{DisplayTime, ForeignPiece, ForeignPieceKind, ago, block, capitalised, counted, diff, span, visible};
use crate::console::approval::argument::ArgumentLineKind;
use crate::console::approval::card::ApprovalCard;
use crate::console::approval::group_link::GroupLink;
use crate::console::approval::questions::ListedApprovals;
use crate::operator::pins::{PinKind, PinView};
use crate::operator::upstreams::{HealthView, UpstreamFacts, UpstreamView};
use crate::policy::PinState;
use crate::policy::consent::{self, BlockView, GrantView, SteadySeconds};
use crate::store::recent::DecisionView;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign::count_hidden;
use crate::wire::foreign::oddities::TextOddities;

/// The section of the current page, for the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsoleSection {
    Overview,
    Grants,
    Pins,
    Upstreams,
    Decisions,
    Calls,
    Other,
}

/// Parts common to every page of a signed-in browser.
#[derive(Debug)]
pub(crate) struct PageFrame {
    pub(crate) section: ConsoleSection,
    pub(crate) csrf: String,
    pub(crate) notice: Option<ActionNotice>,
    /// Number of open approvals.
    pub(crate) waiting: usize,
    /// Number of pins that wait for a review.
    pub(crate) pins_waiting: usize,
}

/// A link of the navigation.
#[derive(Debug)]
pub(crate) struct NavLink {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) is_current: bool,
    /// Number of things that wait there (`count`), and the word after it (`counts`).
    pub(crate) count: usize,
    pub(crate) counts: &'static str,
}

impl PageFrame {
    /// Returns the links of the navigation, in their order.
    pub(crate) fn links(&self) -> Vec<NavLink> {
        let link = |section, path, name, count, counts| NavLink {
            path,
            name,
            // The decisions page is marked as the calls page, which shows the same records and
            // more.
            is_current: self.section == section
                || self.section == ConsoleSection::Decisions && section == ConsoleSection::Calls,
            count,
            counts,
        };
        vec![
            link(ConsoleSection::Overview, "/", "Overview", self.waiting, "waiting"),
            link(ConsoleSection::Grants, "/grants", "Grants", 0, ""),
            link(ConsoleSection::Pins, "/pins", "Changed tools", self.pins_waiting, "to review"),
            link(ConsoleSection::Upstreams, "/upstreams", "Upstreams", 0, ""),
            link(ConsoleSection::Calls, "/calls", "Calls", 0, ""),
        ]
    }
}

/// The tile of an upstream, on the overview, the list of upstreams and its own page.
#[derive(Debug)]
pub(crate) struct UpstreamTile {
    pub(crate) name: String,
    /// Address of the upstream's page.
    pub(crate) href: String,
    pub(crate) state: &'static str,
    /// Colour of the state.
    pub(crate) tone: &'static str,
    pub(crate) offers: String,
    pub(crate) revision: String,
    pub(crate) in_flight: usize,
    pub(crate) restarts: u64,
    pub(crate) error: Option<String>,
    /// Sentence about an upstream that is not ready: for how long, when it is tried again, and what
    /// to do. `None` unless it has failed or is starting.
    pub(crate) waits: Option<String>,
    /// True if the upstream waits for a login, which its page offers.
    pub(crate) wants_login: bool,
}

impl UpstreamTile {
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

/// Returns a sentence: for how long an upstream has been in its state, when it is tried again, and
/// what to do.
fn waits(upstream: &UpstreamView, health: &HealthView) -> String {
    let next = health.next_try_seconds.map(|seconds| format!(", tried again in {}", span(seconds))).unwrap_or_default();
    let advice = upstream.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{} for {}{next}{advice}.", capitalised(upstream.state.into_str()), span(health.since_seconds))
}

/// The table row of a decision about a call.
#[derive(Debug)]
pub(crate) struct DecisionTableRow {
    pub(crate) at: DisplayTime,
    pub(crate) decision: &'static str,
    pub(crate) tone: &'static str,
    pub(crate) caller: String,
    pub(crate) kind: &'static str,
    pub(crate) item: String,
    pub(crate) rule: String,
    pub(crate) why: Cow<'static, str>,
}

impl DecisionTableRow {
    pub(crate) fn new(decision: &DecisionView, now: SteadySeconds) -> Self {
        let (word, tone) = match decision.decision {
            "allow" => ("allowed", "good"),
            "deny" => ("denied", "danger"),
            "ask" => ("asked", "warn"),
            _ => ("limited", "warn"),
        };
        Self {
            at: DisplayTime::past(now, decision.at),
            decision: word,
            tone,
            caller: visible(&decision.caller),
            kind: decision.kind,
            item: visible(&decision.item),
            rule: visible(&decision.rule),
            why: decision.why.clone(),
        }
    }
}

/// The table row of a block: the refusal of one caller's calls of an item for a while, for example
/// after an operator's denial.
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
    pub(crate) fn new(block: &BlockView, now: SteadySeconds) -> Self {
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

/// The table row of a grant.
#[derive(Debug)]
pub(crate) struct GrantTableRow {
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
    pub(crate) at: DisplayTime,
    pub(crate) used: String,
}

impl GrantTableRow {
    pub(crate) fn new(grant: &GrantView, now: SteadySeconds) -> Self {
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
            at: DisplayTime::past(now, grant.granted_at),
            used,
        }
    }
}

/// A pin that waits for the operator's review, with the changes of its text.
#[derive(Debug)]
pub(crate) struct WaitingPin {
    pub(crate) upstream: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The unchanged name, which the form sends back.
    pub(crate) key: String,
    pub(crate) digest: String,
    pub(crate) short: String,
    pub(crate) anchor: String,
    pub(crate) new: bool,
    /// True if the tool is new and clients see it already.
    pub(crate) added: bool,
    pub(crate) rejected: bool,
    pub(crate) launch: bool,
    pub(crate) since: DisplayTime,
    pub(crate) why: String,
    pub(crate) hidden: Option<String>,
    pub(crate) mixed: Option<String>,
    pub(crate) pieces: Vec<ForeignPiece>,
}

impl WaitingPin {
    /// Returns true if the operator should review the pin. A rejected pin was reviewed already.
    pub(crate) fn is_due(pin: &PinView) -> bool {
        pin.is_new || (pin.waiting.is_some() && pin.state != PinState::Rejected)
    }

    /// Builds the view of a pin that waits for a review: the changes from its approved text, or the
    /// whole text of a new item. Returns `None` if no text waits.
    pub(crate) fn new(pin: &PinView, now: SteadySeconds) -> Option<Self> {
        let waiting = pin.waiting.as_ref().or_else(|| pin.approved.as_ref().filter(|_| pin.is_new))?;
        let waiting = &*pin.lay_out(waiting);
        let pieces = match pin.approved.as_ref().filter(|_| !pin.is_new) {
            Some(approved) => diff(&pin.lay_out(approved), waiting),
            None => block(waiting),
        };
        let digest = pin.shown().map(|digest| digest.hex()).unwrap_or_default();
        let hidden = count_hidden(waiting);
        let mut oddities = TextOddities::default();
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
            since: DisplayTime::past(now, pin.since),
            why: visible(&pin.by),
            hidden: (hidden > 0).then(|| counted(hidden, "hidden character")),
            mixed: oddities.told_mixed().as_deref().map(capitalised),
            pieces,
        })
    }
}

/// The pins of one upstream that match their approved texts.
#[derive(Debug)]
pub(crate) struct PinnedGroup {
    pub(crate) upstream: String,
    pub(crate) count: String,
    pub(crate) names: Vec<String>,
}

impl PinnedGroup {
    /// Groups the matching pins by upstream.
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

/// Returns a heading and a sentence for the end of an approval.
const fn words_of(ending: consent::ApprovalEnd) -> (&'static str, &'static str) {
    match ending {
        consent::ApprovalEnd::Granted => {
            ("Allowed", "The call was allowed. Its grant is listed under Grants as long as it is in force.")
        }
        consent::ApprovalEnd::Denied => ("Denied", "The call was denied. It was not made."),
        consent::ApprovalEnd::Declined => ("Declined", "The client declined this call. It was not made."),
        consent::ApprovalEnd::Dismissed => {
            ("Dismissed", "The approval was closed without an answer. The call was not made.")
        }
        consent::ApprovalEnd::TimedOut => {
            ("Timed out", "No answer came in time. The call was not made; the client may try it again.")
        }
        consent::ApprovalEnd::Superseded => (
            "Superseded",
            "The tool, its upstream or the rule changed meanwhile, or the gateway was restarted, so this approval is void. The client may try the call again.",
        ),
    }
}

/// The page of the open approvals of one caller about one item.
#[derive(Debug, Template)]
#[template(path = "group.html", config = "src/console/askama.toml")]
pub(crate) struct ApprovalGroup {
    pub(crate) frame: PageFrame,
    pub(crate) cards: Vec<ApprovalCard>,
    /// True if the console's evidence (L2) suffices to allow at least one of the calls.
    answerable: bool,
}

impl ApprovalGroup {
    pub(crate) fn new(frame: PageFrame, cards: Vec<ApprovalCard>) -> Self {
        let answerable = cards.iter().any(|card| card.answerable);
        Self { frame, cards, answerable }
    }
}

/// The first page: open approvals, blocks, upstreams and the last decisions.
#[derive(Debug, Template)]
#[template(path = "overview.html", config = "src/console/askama.toml")]
pub(crate) struct OverviewPage {
    pub(crate) frame: PageFrame,
    pub(crate) questions: ListedApprovals,
    pub(crate) troubles: Vec<String>,
    pub(crate) blocks: Vec<BlockRow>,
    pub(crate) tiles: Vec<UpstreamTile>,
    /// Number of upstreams that have failed.
    pub(crate) troubled: usize,
    pub(crate) rows: Vec<DecisionTableRow>,
}

/// The page of one open approval.
#[derive(Debug, Template)]
#[template(path = "approval.html", config = "src/console/askama.toml")]
pub(crate) struct ApprovalPage {
    pub(crate) frame: PageFrame,
    pub(crate) card: ApprovalCard,
    /// Link to the other open approvals of this caller about this item, if there are any.
    pub(crate) group: Option<GroupLink>,
}

/// The page of an approval that has ended or is unknown.
#[derive(Debug, Template)]
#[template(path = "closed.html", config = "src/console/askama.toml")]
pub(crate) struct ClosedApprovalPage {
    pub(crate) frame: PageFrame,
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
    /// True if the call was allowed after the agent had been told to stop.
    pub(crate) is_late: bool,
    pub(crate) id: String,
}

impl ClosedApprovalPage {
    /// Builds the page of the approval `id`; `ending` is `None` if the id is unknown.
    pub(crate) fn new(frame: PageFrame, id: &str, ending: Option<consent::ApprovalEnd>, is_late: bool) -> Self {
        let unknown = (
            "Not known",
            "There is no open approval with this id. It may have ended before the gateway was restarted.",
        );
        let (title, text) = ending.map_or(unknown, words_of);
        Self { frame, title, text, is_late, id: id.to_owned() }
    }
}

/// The page of live grants.
#[derive(Debug, Template)]
#[template(path = "grants.html", config = "src/console/askama.toml")]
pub(crate) struct GrantsPage {
    pub(crate) frame: PageFrame,
    pub(crate) grants: Vec<GrantTableRow>,
}

/// The page of pins: those to review, then those that match.
#[derive(Debug, Template)]
#[template(path = "pins.html", config = "src/console/askama.toml")]
pub(crate) struct PinsPage {
    pub(crate) frame: PageFrame,
    pub(crate) reviews: Vec<WaitingPin>,
    pub(crate) pinned: Vec<PinnedGroup>,
}

/// The page of all upstreams.
#[derive(Debug, Template)]
#[template(path = "upstreams.html", config = "src/console/askama.toml")]
pub(crate) struct UpstreamsPage {
    pub(crate) frame: PageFrame,
    /// Command that connects an MCP host to this daemon.
    pub(crate) host_command: Option<String>,
    pub(crate) tiles: Vec<UpstreamTile>,
}

/// The page of the last decisions.
#[derive(Debug, Template)]
#[template(path = "decisions.html", config = "src/console/askama.toml")]
pub(crate) struct DecisionsPage {
    pub(crate) frame: PageFrame,
    pub(crate) rows: Vec<DecisionTableRow>,
}

/// The sign-in page; `then` is the page to show after it.
#[derive(Debug, Template)]
#[template(path = "sign_in.html", config = "src/console/askama.toml")]
pub(crate) struct SignInPage {
    pub(crate) then: String,
    pub(crate) problem: Option<String>,
}

/// The page behind a one-time link, whose button signs in.
#[derive(Debug, Template)]
#[template(path = "open.html", config = "src/console/askama.toml")]
pub(crate) struct OpenLinkPage {
    pub(crate) link: String,
}

/// A page with a short text, for browsers that are signed in or not.
#[derive(Debug, Template)]
#[template(path = "plain.html", config = "src/console/askama.toml")]
pub(crate) struct PlainTextPage {
    pub(crate) title: String,
    pub(crate) text: String,
}
