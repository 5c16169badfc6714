//! A fake gateway for the console: serves invented data, some of it hostile, and notes the actions.
#![expect(clippy::wildcard_enum_match_arm, reason = "a form makes some requests alone")]

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::gateway::logins::LoginOffer;
use crate::gateway::snapshot::{LineOrigin, LogLine};
use crate::operator::request::{
    AnswerManyParams, AnswerParams, ApprovalDigest, IdParams, NameParams, PinsParams, Request, RevokeParams,
};
use crate::operator::tools::ToolView;
use crate::operator::upstreams::{RestartedUpstream, UpstreamDetail, UpstreamView, WithheldItemView};
use crate::operator::views::{EndedBlockView, OperatorView, RevokedGrants};
use crate::operator::{ApprovalState, OperatorBackend, OperatorDataPart, OperatorRefusal, Person};
use crate::policy::consent::{
    ApprovalEnd, ApprovalView, BlockView, CallDetails, GrantView, KeptArguments, SteadySeconds,
};
use crate::policy::{Caller, Digest, Hints, PinState, StatedHints};
use crate::store::approvals::{AnswerOutcome, OperatorAnswer};
use crate::store::audit::search::{DecisionPage, DecisionQuery, SearchError};
use crate::store::pins::{PinKind, PinView};
use crate::store::recent::DecisionView;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::json::raw::RawJson;

mod decisions;
mod grants;
pub(super) mod logins;
mod texts;
mod upstreams;

use self::decisions::decisions;
use self::grants::{blocks, grants};
use self::texts::{MAIL, NEW, OLD, SQL};
use self::upstreams::upstreams;

/// The current time of all invented data.
const NOW: SteadySeconds = 1_790_000_000;

pub(super) struct FakeBackend {
    pub(crate) approvals: Mutex<Vec<ApprovalView>>,
    blocks: Mutex<Vec<BlockView>>,
    grants: Mutex<Vec<GrantView>>,
    pins: Mutex<Vec<PinView>>,
    /// Name of the upstream that is switched off.
    off: Mutex<String>,
    /// Actions so far, one line each.
    pub(super) done: Mutex<Vec<String>>,
    changes: watch::Sender<u64>,
}

/// Text that a page must never contain unescaped.
pub(super) const HOSTILE: &str =
    "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\u{202e}\u{200b}\u{1b}[2J{{7*7}}";

const READS: StatedHints = says(Some(true), None, Some(false));
const DESTROYS: StatedHints = says(Some(false), Some(true), Some(true));
const SENDS: StatedHints = says(Some(false), Some(false), Some(true));

impl FakeBackend {
    pub(super) fn empty() -> Self {
        Self {
            approvals: Mutex::default(),
            blocks: Mutex::default(),
            grants: Mutex::default(),
            pins: Mutex::default(),
            off: Mutex::default(),
            done: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    pub(super) fn busy() -> Self {
        let desk = Self::empty();
        *desk.approvals.lock() = vec![
            approval("pb4xw2nkd7q3tz6m", "mail__send", "mail", SENDS, 95, MAIL),
            approval("k7hq9cmv2r5wjd8x", "postgres__execute_sql", "postgres", DESTROYS, 40, SQL),
            approval(
                "z3n8ytf6b4lqsg2v",
                "files__list_directory",
                "files",
                READS,
                12,
                "{\n  \"path\": \"/srv/work/reports\"\n}",
            ),
        ];
        *desk.blocks.lock() = blocks();
        *desk.grants.lock() = grants();
        *desk.pins.lock() = pins();
        desk
    }

    /// Forty approvals of two callers about four tools.
    pub(super) fn crowded() -> Self {
        let desk = Self::empty();
        let tools = [
            ("mail__send", SENDS),
            ("files__write_file", SENDS),
            ("postgres__execute_sql", DESTROYS),
            ("web__fetch", READS),
        ];
        *desk.approvals.lock() = (0..40_u64)
            .map(|n| {
                let (name, said) = tools[usize::try_from(n % 4).unwrap()];
                let arguments = format!(r#"{{"path":"/srv/work/file-{n}.md","text":"the figures of week {n}, long enough to be cut in a list on any screen that a person has"}}"#);
                let caller = if n % 8 < 4 { "local" } else { "ci" };
                let one = approval(&format!("q{n:0>2}"), name, "files", said, 40 - n, &arguments);
                ApprovalView { caller: Caller::named(caller), ..one }
            })
            .collect();
        desk
    }

    /// Approvals with texts of many kinds; their ids name the kind.
    pub(super) fn with_texts() -> Self {
        let desk = Self::empty();
        *desk.approvals.lock() = texts::texts();
        desk
    }

    pub(crate) fn ask(&self, approval: ApprovalView) {
        self.approvals.lock().push(approval);
        self.tell();
    }

    pub(super) fn done(&self) -> Vec<String> {
        self.done.lock().clone()
    }

    fn did(&self, what: String) {
        self.done.lock().push(what);
        self.tell();
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

const fn says(read_only: Option<bool>, destructive: Option<bool>, open_world: Option<bool>) -> StatedHints {
    let none = Hints { read_only: None, destructive: None, idempotent: None, open_world: None };
    StatedHints { server: Hints { read_only, destructive, open_world, ..none }, operator: none }
}

pub(crate) fn approval(
    id: &str,
    exposed: &str,
    upstream: &str,
    said: StatedHints,
    age: u64,
    arguments: &str,
) -> ApprovalView {
    let destructive = said.server.destructive == Some(true);
    let shown = CallDetails::new(exposed, said, Some(&RawJson::trusted(arguments.to_owned())));
    let (arguments, arguments_beginning) = match shown.arguments {
        KeptArguments::Whole(json) => (Some(RawJson::trusted(json.to_string())), None),
        KeptArguments::Beginning(text) => (None, Some(text.to_string())),
    };
    ApprovalView {
        id: id.to_owned(),
        digest: digest(id),
        caller: Caller::local().clone(),
        upstream: upstream.to_owned(),
        kind: "tool".to_owned(),
        exposed: exposed.to_owned(),
        item: exposed.to_owned(),
        rule: if destructive { "ask-destructive" } else { "default" }.to_owned(),
        said,
        destructive,
        arguments,
        arguments_beginning,
        arguments_bytes: Some(shown.arguments_bytes),
        oddities: shown.oddities,
        client: Some("claude-code 2.1".to_owned()),
        description: Some("Does what its name says.\nNeeds the right to do so.".to_owned()),
        outcome: Some(format!(
            "If you allow it once, \"{upstream}\" runs this tool with exactly these arguments, once."
        )),
        arguments_digest: Some("9f2c41d7".to_owned()),
        definition_digest: Some("03be55a1".to_owned()),
        session: said.server.read_only != Some(true),
        min_evidence: if destructive { "L2" } else { "L1" }.to_owned(),
        opened_at: NOW - age,
        until: NOW + 900 - age,
        waits: Some(true),
        wait_left: Some(31),
        ..ApprovalView::default()
    }
}

/// Returns the digest of the invented approval `id`.
pub(crate) fn digest(id: &str) -> String {
    Digest::of(id.as_bytes()).hex()
}

/// Returns an approval in which every text is hostile.
pub(crate) fn hostile(id: &str) -> ApprovalView {
    let text = RawJson::string(HOSTILE).text().into_owned();
    let arguments = format!(
        "{{{text}:{text},\"old_text\":{text},\"new_text\":{text},\"lines\":{}}}",
        RawJson::string(&format!("{HOSTILE}\n{HOSTILE}")).text()
    );
    let mut approval = approval(id, HOSTILE, HOSTILE, DESTROYS, 1, &arguments);
    approval.client = Some(HOSTILE.to_owned());
    approval.description = Some(HOSTILE.to_owned());
    approval.item = format!("{HOSTILE}2");
    approval.caller = Caller::named(HOSTILE);
    approval.rule = HOSTILE.to_owned();
    approval
}

fn pins() -> Vec<PinView> {
    let pin = |upstream: &str, kind: &str, name: &str, state, approved: Option<&str>, waiting: Option<&str>| PinView {
        upstream: upstream.to_owned(),
        kind: kind.parse::<PinKind>().unwrap(),
        name: name.to_owned(),
        state,
        approved: approved.map(str::to_owned),
        waiting: waiting.map(str::to_owned),
        by: if state == PinState::Quarantined {
            "first sight of an untrusted upstream"
        } else {
            "listed by its server"
        }
        .to_owned(),
        is_new: false,
        approved_digest: approved.map(|text| Digest::of(text.as_bytes())),
        waiting_digest: waiting.map(|text| Digest::of(text.as_bytes())),
        since: NOW - 4000,
    };
    let mut pins = vec![
        pin("github", "tool", "create_issue", PinState::Changed, Some(OLD), Some(NEW)),
        pin(
            "notes",
            "launch",
            "notes",
            PinState::Changed,
            Some("command: npx -y @acme/notes-server@1.4.2\nworking directory: /srv/notes\nenvironment: NOTES_DIR\n"),
            Some(
                "command: npx -y @acme/notes-server@1.5.0 --sync\nworking directory: /srv/notes\nenvironment: NOTES_DIR, NOTES_TOKEN\n",
            ),
        ),
        pin(
            "weather",
            "tool",
            "forecast",
            PinState::Quarantined,
            None,
            Some(
                "name: forecast\ndescription: The forecast of a place for the next ten days.\nread-only: yes\narguments:\n  place (text, required): A town, or coordinates.\n",
            ),
        ),
    ];
    for name in ["read_file", "write_file", "list_directory", "search_files"] {
        pins.push(pin("files", "tool", name, PinState::Pinned, Some("name"), None));
    }
    let text = "{\n  \"name\": \"move_file\",\n  \"description\": \"Moves a f\u{456}le.\"\n}";
    let added = pin("files", "tool", "move_file", PinState::Pinned, Some(text), None);
    pins.push(PinView { is_new: true, ..added });
    for name in ["query", "execute_sql"] {
        pins.push(pin("postgres", "tool", name, PinState::Pinned, Some("name"), None));
    }
    pins
}

impl FakeBackend {
    fn answer(&self, id: &str, shown: Option<Digest>, answer: &OperatorAnswer) -> Result<AnswerOutcome, String> {
        let mut approvals = self.approvals.lock();
        let at = approvals.iter().position(|approval| approval.id == *id);
        let at = at.ok_or_else(|| "it was answered already".to_owned())?;
        if Digest::from_hex(&approvals[at].digest) != shown {
            return Err("it is not what was shown".to_owned());
        }
        approvals.remove(at);
        drop(approvals);
        self.did(format!("answer {id} {answer}"));
        let how = if *answer == OperatorAnswer::Deny { ApprovalEnd::Denied } else { ApprovalEnd::Granted };
        Ok(AnswerOutcome::of(how, id.starts_with("late")))
    }

    fn decide(&self, params: &PinsParams, approve: bool) -> Result<OperatorView, OperatorRefusal> {
        let name = params.name.clone().unwrap();
        let mut pins = self.pins.lock();
        let found = pins.iter_mut().find(|pin| pin.name == name && pin.shown() == params.digest);
        let found = found.ok_or_else(|| OperatorRefusal::refused("it changed again meanwhile; read it anew"))?;
        if approve {
            if !std::mem::take(&mut found.is_new) {
                found.approved = found.waiting.take();
            }
            found.state = PinState::Pinned;
        }
        let view = found.clone();
        drop(pins);
        self.did(format!("{} {name}", if approve { "approve" } else { "reject" }));
        Ok(OperatorView::Pin(Box::new(view)))
    }

    fn steer(&self, word: &str, name: &str) -> Result<OperatorView, OperatorRefusal> {
        if !upstreams().iter().any(|view| view.name == name) {
            return Err(OperatorRefusal::Refused(format!("there is no upstream `{name}`")));
        }
        *self.off.lock() = if word == "Disable" { name.to_owned() } else { String::new() };
        self.did(format!("{word} {name}"));
        Ok(if word == "Disable" {
            OperatorView::Empty {}
        } else {
            OperatorView::Restarted(Box::new(RestartedUpstream {
                state: UpstreamState::Ready,
                ..RestartedUpstream::default()
            }))
        })
    }

    fn perform(&self, request: &Request) -> Result<OperatorView, OperatorRefusal> {
        match request {
            Request::Answer(AnswerParams { id, answer, digest }) => {
                self.answer(id, *digest, answer).map(OperatorView::Answered).map_err(OperatorRefusal::Refused)
            }
            Request::AnswerMany(AnswerManyParams { members, answer, .. }) => {
                let one = |member: &ApprovalDigest| self.answer(&member.id, Some(member.digest), answer);
                Ok(OperatorView::AnsweredMany(members.iter().map(one).collect()))
            }
            Request::Unblock(IdParams { id }) => {
                self.did(format!("unblock {id}"));
                let mut blocks = self.blocks.lock();
                let at = blocks.iter().position(|block| block.id == *id);
                let BlockView { caller, item, .. } =
                    blocks.remove(at.ok_or_else(|| OperatorRefusal::refused("no block"))?);
                Ok(OperatorView::Unblocked(EndedBlockView { outcome: "unblocked".to_owned(), caller, item }))
            }
            Request::Revoke(RevokeParams { id, .. }) => {
                let mut grants = self.grants.lock();
                let before = grants.len();
                grants.retain(|grant| Some(&grant.id) != id.as_ref());
                let revoked = before - grants.len();
                drop(grants);
                self.did(format!("revoke {}", id.as_deref().unwrap_or("all")));
                Ok(OperatorView::Revoked(RevokedGrants { revoked }))
            }
            Request::ApprovePins(params) => self.decide(params, true),
            Request::RejectPins(params) => self.decide(params, false),
            Request::Restart(NameParams { name }) => self.steer("Restart", name),
            Request::Switch(params) => self.steer(if params.on { "Enable" } else { "Disable" }, &params.name),
            other => self.log_in_or_out(other),
        }
    }
}

impl OperatorBackend for FakeBackend {
    fn carry_out<'a>(
        &'a self,
        request: &'a Request,
        _: &'a Person,
    ) -> BoxFuture<'a, Result<OperatorView, OperatorRefusal>> {
        Box::pin(async move { self.perform(request) })
    }

    fn now(&self) -> SteadySeconds {
        NOW
    }

    fn approvals(&self) -> Vec<ApprovalView> {
        self.approvals.lock().clone()
    }

    fn approval(&self, id: &str) -> ApprovalState {
        if let Some(open) = self.approvals().into_iter().find(|approval| approval.id == id) {
            return ApprovalState::Open(Box::new(open));
        }
        if self.done().iter().any(|line| line.contains(id)) {
            ApprovalState::Closed { how: ApprovalEnd::Granted, is_late: id.starts_with("late") }
        } else {
            ApprovalState::Unknown
        }
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.blocks.lock().clone()
    }

    fn grants(&self) -> Vec<GrantView> {
        self.grants.lock().clone()
    }

    fn pins(&self) -> Vec<PinView> {
        self.pins.lock().clone()
    }

    fn troubles(&self) -> Vec<String> {
        vec![
            "The configuration was refused at 2026-11-27T09:12:00.000Z (policy.default: `alow` <is> no effect)"
                .to_owned(),
        ]
    }

    fn host_command(&self) -> Option<String> {
        Some("headend stdio --config '/etc/my <b>.toml' --socket /run/x.sock".to_owned())
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        upstreams()
    }

    fn upstream(&self, name: &str) -> Option<UpstreamDetail> {
        let view = upstreams().into_iter().find(|view| view.name == name)?;
        let is_off = *self.off.lock() == name;
        let view = if is_off { UpstreamView { state: UpstreamState::Disabled, ..view } } else { view };
        let line =
            |number, origin, text: &str| LogLine { number, at: NOW * 1000 + number, origin, text: text.to_owned() };
        let lines = match name {
            "legacy-crm" => vec![
                line(1, LineOrigin::Headend, "starting"),
                line(2, LineOrigin::Stderr, "node:internal/modules/cjs/loader:1228"),
                line(3, LineOrigin::Stderr, "\u{202e}Error: Cannot find module 'express' <script>alert(1)</script>"),
                line(4, LineOrigin::Headend, "exit status 1: Error: Cannot find module 'express'"),
            ],
            "files" => vec![line(1, LineOrigin::Headend, "starting"), line(2, LineOrigin::Headend, "ready")],
            _ => Vec::new(),
        };
        let tool = |name: &str, said, effect, bytes| ToolView {
            name: name.to_owned(),
            said,
            is_new: name.contains("move"),
            effect: Some(str::to_owned(effect)),
            bytes: Some(bytes),
            ..ToolView::default()
        };
        let tools = vec![
            tool("files__read_file", READS, "allow", 812),
            tool("files__write_file", SENDS, "ask", 1490),
            tool("files__delete_file", DESTROYS, "deny", 640),
            tool("files__move_file", StatedHints::default(), "ask", 901),
        ];
        let tools = if name == "files" { tools } else { Vec::new() };
        let withheld = if name == "files" {
            let (name, why) = ("files__chmod".to_owned(), "its definition changed".to_owned());
            vec![WithheldItemView { name, kind: PinKind::Tool, why }]
        } else {
            Vec::new()
        };
        let (takes_login, wants_login) = (matches!(name, "docs" | "wiki"), name == "docs");
        Some(UpstreamDetail { view, is_off, takes_login, wants_login, lines, tools, withheld })
    }

    fn login(&self, id: &str) -> Option<LoginOffer> {
        (id == logins::NEW).then(|| logins::begun(id))
    }

    fn opened_login(&self, id: &str) -> Option<LoginOffer> {
        (id == logins::OPENED).then(|| logins::begun(id))
    }

    fn calls(&self, query: DecisionQuery) -> BoxFuture<'_, Result<DecisionPage, SearchError>> {
        let page = super::fake_calls::page(&query);
        Box::pin(async { Ok(page) })
    }

    fn decisions(&self, at_most: usize) -> Vec<DecisionView> {
        decisions().into_iter().take(at_most).collect()
    }

    fn watches(&self) -> Vec<(OperatorDataPart, watch::Receiver<u64>)> {
        vec![
            (OperatorDataPart::Approvals, self.changes.subscribe()),
            (OperatorDataPart::Grants, self.changes.subscribe()),
            (OperatorDataPart::Pins, self.changes.subscribe()),
        ]
    }

    fn counts(&self) -> Vec<(OperatorDataPart, u64)> {
        vec![(OperatorDataPart::Decisions, 1), (OperatorDataPart::Upstreams, 1)]
    }
}
