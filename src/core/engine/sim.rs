//! Connections of upstreams in memory, with clients and policy, on virtual time. Hard races are
//! tests here.
//!
//! Long, and one file on purpose: the parts of one stage, which its scenes below share.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::catalog::inventory::{Inventory, ListBounds};
use crate::catalog::merge::{Catalog, ItemFilters, MergeSource, NamingRules, merge};
use crate::catalog::name::UpstreamName;
use crate::engine::askers::{AskerRegistry, CallOrigin, ConductLesson};
use crate::engine::call::{CallOutcome, CallProgress};
use crate::engine::connection::ask::{DeclaredCapabilities, ServerRequest};
use crate::engine::connection::turns::TurnGate;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::EraHint;
use crate::engine::peer::{CallPort, Peer, PeerEvent, PeerOptions, PeerTimes};
use crate::engine::route::{RouteError, params_object, route};
use crate::mcp::asking::input::Roots;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::meta::Meta;
use crate::mcp::method::{ItemList, Method};
use crate::mcp::version::Revision;
use crate::mcp::voice::UpstreamReader;
use crate::policy::{
    ActionKind, Annotations, Caller, CallerRights, Decision, Digest, Limiter, OperatorHints, Policy, PolicyAction,
    PolicySpec, RuleEffect, RuleSpec, RuleSubject, decide,
};
use crate::wire::frame::JsonBounds;
use crate::wire::json::raw::RawJson;
use crate::wire::message::Notification;
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::UnreadableBytes;

/// An event of one call, as its client saw it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SeenCallEvent {
    Progress(Value),
    Log(Value),
    /// A request of the server, by its id.
    Asked(Value),
    Withdrawn(Value),
    Result(Value),
    Error(Value),
    Failed(FailureReason, ExecutionDoubt),
}

impl SeenCallEvent {
    fn is_outcome(&self) -> bool {
        !matches!(self, Self::Progress(_) | Self::Log(_) | Self::Asked(_) | Self::Withdrawn(_))
    }
}

mod attribution;
mod held;
mod http;
mod questions;
mod revisions;
mod room;
mod scripted;
mod unread;

use self::scripted::{Server, claim};

type CallLog = Rc<RefCell<BTreeMap<u64, Vec<SeenCallEvent>>>>;

/// The end of a call that writes down what it gets.
#[derive(Debug)]
struct SimPort {
    key: u64,
    party: CallOrigin,
    progress: Option<CallProgress>,
    askable: bool,
    log: CallLog,
}

impl CallPort for SimPort {
    fn key(&self) -> u64 {
        self.key
    }
    fn party(&self) -> &CallOrigin {
        &self.party
    }
    fn progress(&mut self, params: RawJson) {
        if let Some(params) = self.progress.as_mut().and_then(|p| p.relay(&params)) {
            self.log.borrow_mut().entry(self.key).or_default().push(SeenCallEvent::Progress(params.parse().unwrap()));
        }
    }
    fn log(&mut self, params: RawJson) {
        self.log.borrow_mut().entry(self.key).or_default().push(SeenCallEvent::Log(params.parse().unwrap()));
    }
    fn notice(&mut self, _: Notification) {}
    fn ask(&mut self, request: ServerRequest) -> bool {
        if self.askable {
            self.log.borrow_mut().entry(self.key).or_default().push(SeenCallEvent::Asked(request.id.parse().unwrap()));
        }
        self.askable
    }
    fn withdrawn(&mut self, id: &RawJson) {
        self.log.borrow_mut().entry(self.key).or_default().push(SeenCallEvent::Withdrawn(id.parse().unwrap()));
    }
    fn done(self, outcome: CallOutcome) {
        let seen = match outcome {
            CallOutcome::Result { raw, .. } => SeenCallEvent::Result(raw.parse().unwrap()),
            CallOutcome::Error { raw } => SeenCallEvent::Error(raw.parse().unwrap()),
            CallOutcome::Failed(CallFailure { reason, executed, .. }) => SeenCallEvent::Failed(reason, executed),
        };
        self.log.borrow_mut().entry(self.key).or_default().push(seen);
    }
}

struct Upstream {
    name: UpstreamName,
    peer: Peer<SimPort>,
    server: Server,
    inventory: Inventory,
    ready: Option<Revision>,
    failed: Option<EraHint>,
    faults: Vec<ProtocolFault>,
    quirks: Vec<Quirk>,
    unread: Vec<UnreadableBytes>,
    /// The reason why the connection failed.
    why: Option<String>,
    /// True once calls of some items take turns because a question could not be tied.
    in_turns: bool,
    gate: TurnGate,
    /// Number of times that calls which waited could go on.
    lifted: u32,
    askers: Arc<AskerRegistry>,
    alive: bool,
}

/// The whole simulation.
pub(super) struct World {
    now: Instant,
    upstreams: Vec<Upstream>,
    policy: Policy,
    limiter: Limiter,
    log: CallLog,
    calls: u64,
    sent: HashSet<(usize, u64)>,
    /// True if each client is a caller of its own; otherwise all of them are one caller.
    many_callers: bool,
}

/// Returns the time at which a test begins.
#[expect(clippy::disallowed_methods, reason = "an instant can be had no other way; only differences matter")]
pub(super) fn epoch() -> Instant {
    Instant::now()
}

const TIMES: PeerTimes = PeerTimes { probe: Duration::from_secs(5), start: Duration::from_secs(30) };

/// Returns the options of a connection on which the server may ask for everything.
fn options(name: &str, hint: EraHint) -> PeerOptions {
    let all = InputKinds { form: true, url: true, sampling: true, sampling_tools: true, roots: true };
    let declared = DeclaredCapabilities::new(all, &Roots::Client);
    let ear = UpstreamReader::new(name, JsonBounds::CLIENT, |bytes| bytes);
    PeerOptions {
        ear,
        hint,
        times: TIMES,
        bounds: ListBounds::default(),
        declared,
        lists: true,
        askers: Arc::default(),
    }
}

impl World {
    pub(super) fn new() -> Self {
        let policy = Policy::build(&PolicySpec {
            default: RuleEffect::Allow,
            rules: Vec::new(),
            scopes: Vec::new(),
            limits: Vec::new(),
        })
        .unwrap();
        Self {
            now: epoch(),
            upstreams: Vec::new(),
            limiter: Limiter::new(&policy),
            policy,
            log: CallLog::default(),
            calls: 0,
            sent: HashSet::new(),
            many_callers: false,
        }
    }

    fn deny(mut self, pattern: &str) -> Self {
        let rule = RuleSpec { tools: vec![pattern.into()], ..RuleSpec::new("no", RuleEffect::Deny) };
        let spec = PolicySpec { default: RuleEffect::Allow, rules: vec![rule], scopes: Vec::new(), limits: Vec::new() };
        self.policy = Policy::build(&spec).unwrap();
        self.limiter = Limiter::new(&self.policy);
        self
    }

    fn upstream(mut self, name: &str, revision: Revision, tools: &[&str]) -> Self {
        self.add(name, revision, tools, EraHint::Probe);
        self.settle();
        self
    }

    fn add(&mut self, name: &str, revision: Revision, tools: &[&str], hint: EraHint) {
        let options = options(name, hint);
        let askers = Arc::clone(&options.askers);
        self.upstreams.push(Upstream {
            name: UpstreamName::parse(name).unwrap(),
            peer: Peer::new(options, self.now),
            server: Server {
                revision,
                tools: tools.iter().map(ToString::to_string).collect(),
                calls: VecDeque::new(),
                cancelled: Vec::new(),
                seen: Vec::new(),
                silent: false,
                deaf: false,
            },
            inventory: Inventory::default(),
            ready: None,
            failed: None,
            faults: Vec::new(),
            quirks: Vec::new(),
            unread: Vec::new(),
            why: None,
            in_turns: false,
            gate: TurnGate::default(),
            lifted: 0,
            askers,
            alive: true,
        });
    }

    /// Delivers lines both ways until nothing moves.
    fn settle(&mut self) {
        for (index, upstream) in self.upstreams.iter_mut().enumerate() {
            while upstream.alive {
                let out = upstream.peer.outgoing().split();
                while let Some(event) = upstream.peer.poll_event() {
                    match event {
                        PeerEvent::Ready(agreed) => upstream.ready = Some(agreed.revision),
                        PeerEvent::Inventory(inventory) => upstream.inventory = inventory,
                        PeerEvent::Fault(fault) => upstream.faults.push(fault),
                        PeerEvent::Learned(lesson) => upstream.in_turns |= matches!(lesson, ConductLesson::Suspects(_)),
                        PeerEvent::Gate(gate) => {
                            upstream.lifted += u32::from(upstream.gate.is_held && !gate.is_held);
                            upstream.gate = gate;
                        }
                        PeerEvent::Quirk(quirk) => upstream.quirks.push(quirk),
                        PeerEvent::Unreadable(told) => upstream.unread.push(told),
                        PeerEvent::Updated(_) | PeerEvent::Unclaimed(_) | PeerEvent::List(..) => {}
                        PeerEvent::Failed { why, next } => {
                            (upstream.failed, upstream.why) = (Some(next), Some(why));
                            upstream.alive = false;
                        }
                    }
                }
                if out.is_empty() {
                    break;
                }
                for line in out.as_ref().split(|b: &u8| *b == b'\n').filter(|line| !line.is_empty()) {
                    let text = std::str::from_utf8(line).unwrap();
                    let message: Value = serde_json::from_str(text).unwrap();
                    if let (Some(id), Some(_)) = (message["id"].as_u64(), message["method"].as_str()) {
                        assert!(self.sent.insert((index, id)), "wire id {id} used twice");
                    }
                    for answer in upstream.server.answer(text) {
                        upstream.peer.handle_line(Bytes::from(answer.to_string()), self.now);
                    }
                }
            }
        }
    }

    fn catalog(&self) -> Catalog {
        let filters = ItemFilters::default();
        let annotator = OperatorHints::default();
        let prefixes: Vec<String> = self.upstreams.iter().map(|u| format!("{}__", u.name)).collect();
        let sources: Vec<MergeSource<'_>> = self
            .upstreams
            .iter()
            .enumerate()
            .map(|(index, u)| MergeSource {
                upstream: &u.name,
                prefix: &prefixes[index],
                inventory: &u.inventory,
                filters: &filters,
                annotate: &annotator,
                needs_headers: false,
                standings: None,
                withheld: None,
                withheld_tools: None,
                withheld_views: None,
                apps: true,
                index,
            })
            .collect();
        merge(&sources, NamingRules { max_length: 48, ..NamingRules::default() }).0
    }

    /// Makes one tool call as the shell does: routes it, decides, and hands it to the peer. Returns
    /// its key.
    fn call(&mut self, caller: &str, params: &Value) -> Result<u64, RouteError> {
        let caller = Caller::named(caller);
        let catalog = self.catalog();
        let params = params_object(Some(&RawJson::trusted(params.to_string())))?;
        let rules: Vec<_> = catalog
            .entries()
            .iter()
            .map(|e| self.policy.item_rules(ActionKind::Tool, e.upstream_name.as_str(), &e.canonical))
            .collect();
        let visible =
            |at: usize| !self.policy.hidden(&rules[at], &RuleSubject::ungrouped(&caller, "", Annotations::ASSUMED));
        let routed = route(&catalog, Method::ToolsCall, &params, Meta::of(&params)?, visible)?;
        let entry = catalog.entry(routed.entry).unwrap();
        let arguments = routed.outgoing.body.get("arguments").cloned();
        let action =
            PolicyAction::on(entry, ActionKind::Tool, Digest::of(b""), (caller.clone(), CallerRights::all()), None, 0);
        let action = PolicyAction { arguments, ..action };
        let nobody = |_: &Arc<str>, _| None;
        let decision = decide(&self.policy, &rules[routed.entry], &action, &nobody, &self.limiter, Duration::ZERO);
        let Decision::Allow(_permit) = decision else { panic!("visible and denied: {decision:?}") };
        self.calls += 1;
        let key = self.calls;
        self.log.borrow_mut().insert(key, Vec::new());
        let progress = routed.token.map(|token| CallProgress::new(token, Revision::V2025_11_25));
        let caller = Some(if self.many_callers { caller } else { Caller::named("one") });
        let party = CallOrigin { caller, ..routed.outgoing.party.clone() };
        let port = SimPort { key, party, progress, askable: true, log: Rc::clone(&self.log) };
        self.upstreams[entry.upstream].peer.handle_call(&routed.outgoing, port);
        self.settle();
        Ok(key)
    }

    fn cancel(&mut self, upstream: usize, key: u64) {
        self.upstreams[upstream].peer.handle_cancel(key, self.now);
        self.settle();
    }

    /// Lets the server answer its oldest call with the call's own arguments, so that a mix-up
    /// shows.
    fn answer_oldest(&mut self, upstream: usize) {
        if let Some(call) = self.upstreams[upstream].server.calls.pop_front() {
            self.server_says(
                upstream,
                &json!({"jsonrpc": "2.0", "id": call["id"], "result": {"echo": call["params"]["arguments"]}}),
            );
        }
    }

    fn server_says(&mut self, upstream: usize, message: &Value) {
        self.upstreams[upstream].peer.handle_line(Bytes::from(message.to_string()), self.now);
        self.settle();
    }

    /// Returns the answer that the server got to one of its requests.
    fn reply_to(&self, upstream: usize, id: &Value) -> Option<Value> {
        let seen = &self.upstreams[upstream].server.seen;
        seen.iter().find(|message| message["method"].is_null() && message["id"] == *id).cloned()
    }

    /// Returns the last question that a call's client has not answered.
    fn open_question(&self, call: u64) -> Option<Value> {
        let log = self.log.borrow();
        let asked = |seen: &SeenCallEvent| if let SeenCallEvent::Asked(id) = seen { Some(id.clone()) } else { None };
        let last = log[&call].iter().rev().find_map(asked)?;
        self.reply_to(0, &last).is_none().then_some(last)
    }

    /// Answers a question as its client.
    fn answer_question(&mut self, upstream: usize, id: &Value) {
        let answer = Ok(RawJson::trusted(r#"{"action":"accept"}"#));
        self.upstreams[upstream].peer.handle_reply(&RawJson::trusted(id.to_string()), &answer);
        self.settle();
    }

    /// Lets the server answer the call of that key, which is found by its arguments.
    fn answer_call(&mut self, upstream: usize, key: u64) {
        let calls = &mut self.upstreams[upstream].server.calls;
        if let Some(at) = calls.iter().position(|call| call["params"]["arguments"]["n"] == key) {
            let call = calls.remove(at).unwrap();
            self.server_says(upstream, &json!({"jsonrpc": "2.0", "id": call["id"], "result": {}}));
        }
    }

    fn crash(&mut self, upstream: usize) {
        self.upstreams[upstream].peer.handle_closed("crashed");
        self.settle();
        self.upstreams[upstream].alive = false;
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for upstream in &mut self.upstreams {
            if upstream.peer.poll_timeout().is_some_and(|at| at <= self.now) {
                upstream.peer.handle_timeout(self.now);
            }
        }
        self.settle();
    }

    fn seen(&self, key: u64) -> Vec<SeenCallEvent> {
        self.log.borrow()[&key].clone()
    }

    /// Checks that every call has at most one outcome, and nothing after it.
    fn check(&self) {
        for (key, seen) in self.log.borrow().iter() {
            let outcomes = seen.iter().filter(|s| s.is_outcome()).count();
            assert!(outcomes <= 1, "call {key} ended {outcomes} times: {seen:?}");
            let last = seen.iter().position(SeenCallEvent::is_outcome);
            assert!(last.is_none_or(|at| at + 1 == seen.len()), "call {key} heard something after its end: {seen:?}");
        }
    }

    /// Lets the servers answer all calls, and checks that every call that was not cancelled has
    /// exactly one outcome.
    fn finish(&mut self, cancelled: &HashSet<u64>) {
        for upstream in 0..self.upstreams.len() {
            while self.upstreams[upstream].alive && !self.upstreams[upstream].server.calls.is_empty() {
                self.answer_oldest(upstream);
            }
        }
        self.check();
        for (key, seen) in self.log.borrow().iter() {
            let ended = seen.iter().any(SeenCallEvent::is_outcome);
            assert!(ended || cancelled.contains(key), "call {key} never ended");
        }
    }
}

fn echo(tool: &str, n: u64) -> Value {
    json!({"name": tool, "arguments": {"n": n}})
}

#[test]
fn the_era_of_an_upstream_is_found_and_all_pages_are_read() {
    for &revision in Revision::ALL {
        let world = World::new().upstream("a", revision, &["t1", "t2", "t3", "t4", "t5"]);
        assert_eq!(world.upstreams[0].ready, Some(revision));
        assert_eq!(world.upstreams[0].inventory.items(ItemList::Tools).len(), 5, "{revision}");
    }
}

#[test]
fn a_call_comes_back_under_its_own_key_in_any_order_of_answers() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let (one, two) = (world.call("x", &echo("a__t", 1)).unwrap(), world.call("y", &echo("a__t", 2)).unwrap());
    world.upstreams[0].server.calls.swap(0, 1);
    world.finish(&HashSet::new());
    assert_eq!(world.seen(one), [SeenCallEvent::Result(json!({"echo": {"n": 1}}))]);
    assert_eq!(world.seen(two), [SeenCallEvent::Result(json!({"echo": {"n": 2}}))]);
}

#[test]
fn progress_reaches_the_call_that_asked_and_no_other() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let with = |n| json!({"name": "a__t", "arguments": {"n": n}, "_meta": {"progressToken": "same"}});
    let (one, two) = (world.call("x", &with(1)).unwrap(), world.call("y", &with(2)).unwrap());
    let token = world.upstreams[0].server.calls[1]["params"]["_meta"]["progressToken"].clone();
    world.server_says(0, &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}));
    assert_eq!(world.seen(one), []);
    assert_eq!(world.seen(two), [SeenCallEvent::Progress(json!({"progressToken": "same", "progress": 1}))]);
    world.server_says(
        0,
        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 999, "progress": 1}}),
    );
    assert_eq!(world.upstreams[0].faults, [ProtocolFault::BadProgress]);
    world.finish(&HashSet::new());
}

#[test]
fn a_log_message_on_a_pipe_reaches_the_only_call_in_flight_or_nobody() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
    world.server_says(0, &message);
    let one = world.call("x", &echo("a__t", 1)).unwrap();
    world.server_says(0, &message);
    let two = world.call("y", &echo("a__t", 2)).unwrap();
    world.server_says(0, &message);
    assert_eq!(world.seen(one), [SeenCallEvent::Log(json!({"level": "info", "data": 1}))]);
    assert_eq!(world.seen(two), []);
    world.finish(&HashSet::new());
}

#[test]
fn a_late_reply_after_a_cancel_is_dropped_and_the_upstream_was_told() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let key = world.call("x", &echo("a__t", 1)).unwrap();
    let id = world.upstreams[0].server.calls[0]["id"].clone();
    world.cancel(0, key);
    assert_eq!(world.upstreams[0].server.cancelled, [id]);
    let next = world.call("x", &echo("a__t", 2)).unwrap();
    world.answer_oldest(0);
    assert_eq!(world.seen(key), []);
    assert_eq!(world.upstreams[0].faults, [ProtocolFault::LateReply]);
    world.finish(&HashSet::from([key]));
    assert_eq!(world.seen(next), [SeenCallEvent::Result(json!({"echo": {"n": 2}}))]);
}

#[test]
fn a_crash_ends_every_call_in_flight_exactly_once() {
    let mut world = World::new().upstream("a", Revision::V2026_07_28, &["t"]);
    let keys: Vec<u64> = (0..100).map(|n| world.call("x", &echo("a__t", n)).unwrap()).collect();
    world.answer_oldest(0);
    world.crash(0);
    world.finish(&HashSet::new());
    assert_eq!(world.seen(keys[0]), [SeenCallEvent::Result(json!({"echo": {"n": 0}}))]);
    assert!(keys[1..].iter().all(|k| world.seen(*k) == [SeenCallEvent::Failed(FailureReason::UpstreamCrashed, ExecutionDoubt::Unknown)]));
}

#[test]
fn a_denied_tool_is_as_unknown_as_one_that_does_not_exist() {
    let mut world = World::new().deny("a__secret").upstream("a", Revision::V2025_11_25, &["secret", "open"]);
    let denied = world.call("x", &echo("a__secret", 1)).unwrap_err();
    assert_eq!(denied, RouteError::UnknownTool("a__secret".into()));
    assert!(world.call("x", &echo("a__open", 1)).is_ok());
    let sent: Vec<&str> = world.upstreams[0].server.seen.iter().filter_map(|m| m["params"]["name"].as_str()).collect();
    assert_eq!(sent, ["open"]);
}

#[test]
fn a_silent_server_is_asked_in_the_old_way_and_then_given_up() {
    let mut world = World::new();
    world.add("a", Revision::V2025_11_25, &["t"], EraHint::Probe);
    world.upstreams[0].server.silent = true;
    world.settle();
    world.pass(TIMES.probe);
    assert_eq!(world.upstreams[0].server.seen.last().unwrap()["method"], "initialize");
    // Both questions together have the time of one start.
    world.pass(TIMES.start.saturating_sub(TIMES.probe));
    assert_eq!(world.upstreams[0].failed, Some(EraHint::Legacy));
}

#[test]
fn an_exit_during_the_probe_teaches_not_to_probe() {
    let mut world = World::new();
    world.add("a", Revision::V2025_11_25, &["t"], EraHint::Probe);
    world.upstreams[0].peer.handle_closed("exited");
    world.settle();
    assert_eq!(world.upstreams[0].failed, Some(EraHint::Legacy));
    world.add("b", Revision::V2025_11_25, &["t"], EraHint::Legacy);
    world.settle();
    assert!(world.upstreams[1].server.seen.iter().all(|m| m["method"] != "server/discover"));
    assert_eq!(world.upstreams[1].ready, Some(Revision::V2025_11_25));
}

#[test]
fn changes_during_a_reading_are_read_once_more() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    world.upstreams[0].server.tools.push("u".into());
    let before = world.upstreams[0].server.seen.len();
    for _ in 0..5 {
        let now = world.now;
        world.upstreams[0].peer.handle_line(Bytes::from(changed.to_string()), now);
    }
    world.settle();
    assert_eq!(world.upstreams[0].inventory.items(ItemList::Tools).len(), 2);
    assert_eq!(world.upstreams[0].server.seen.len() - before, 2, "one reading and one more");
}

#[test]
fn a_server_that_changes_all_the_time_is_read_less_and_less_often_and_still_seen() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).to_string();
    let readings = |world: &World| {
        let first = |m: &&Value| m["method"] == "tools/list" && m["params"]["cursor"].is_null();
        world.upstreams[0].server.seen.iter().filter(first).count()
    };
    let before = readings(&world);
    for n in 0..100 {
        world.upstreams[0].server.tools.push(format!("u{n}"));
        let now = world.now;
        world.upstreams[0].peer.handle_line(Bytes::from(changed.clone()), now);
        world.settle();
        world.pass(Duration::from_millis(100));
    }
    let asked = readings(&world) - before;
    assert!((7..=9).contains(&asked), "{asked} readings in ten seconds");
    for _ in 0..60 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.upstreams[0].inventory.items(ItemList::Tools).len(), 101, "the last change is seen too");
}

#[test]
fn garbage_and_malformed_answers_cost_one_call_at_most() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let (one, two) = (world.call("x", &echo("a__t", 1)).unwrap(), world.call("x", &echo("a__t", 2)).unwrap());
    let id = world.upstreams[0].server.calls.pop_front().unwrap()["id"].clone();
    let now = world.now;
    for line in ["not json", "[]", "{\"jsonrpc\":\"2.0\",\"id\":77777777,\"result\":{}}"] {
        world.upstreams[0].peer.handle_line(Bytes::from_static(line.as_bytes()), now);
    }
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": id, "result": {}, "error": {"code": 1}}));
    assert_eq!(world.seen(one), [SeenCallEvent::Failed(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown)]);
    world.finish(&HashSet::new());
    assert_eq!(world.seen(two), [SeenCallEvent::Result(json!({"echo": {"n": 2}}))]);
}

#[test]
fn a_server_request_that_belongs_to_no_call_is_answered_at_once() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": "s1", "method": "ping"}));
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": "s2", "method": "elicitation/create", "params": {}}));
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": "s3", "method": "roots/list"}));
    assert_eq!(world.reply_to(0, &json!("s1")).unwrap()["result"], json!({}));
    assert_eq!(world.reply_to(0, &json!("s2")).unwrap()["error"]["code"], -32601);
    // The server would keep a list for good. After an error it asks again, in a call.
    assert_eq!(world.reply_to(0, &json!("s3")).unwrap()["error"]["code"], -32602);
}

#[derive(Clone, Debug)]
enum WorldStep {
    Call(usize, u64),
    Answer(usize),
    Swap(usize),
    Cancel(usize),
    Replay(usize),
    Crash(usize),
}

fn steps() -> impl Strategy<Value = Vec<WorldStep>> {
    let step = prop_oneof![
        6 => (0..2usize, any::<u64>()).prop_map(|(u, n)| WorldStep::Call(u, n)),
        4 => (0..2usize).prop_map(WorldStep::Answer),
        2 => (0..2usize).prop_map(WorldStep::Swap),
        2 => any::<usize>().prop_map(WorldStep::Cancel),
        1 => (0..2usize).prop_map(WorldStep::Replay),
        1 => (0..2usize).prop_map(WorldStep::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn whatever_happens_each_call_ends_once_with_its_own_answer(steps in steps()) {
        let mut world = World::new()
            .upstream("a", Revision::V2025_11_25, &["t"])
            .upstream("b", Revision::V2026_07_28, &["t"]);
        let mut asked: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        let mut cancelled = HashSet::new();
        let mut answered: [Option<Value>; 2] = [None, None];
        for step in steps {
            match step {
                WorldStep::Call(u, n) => {
                    let tool = ["a__t", "b__t"][u];
                    let key = world.call("x", &echo(tool, n)).unwrap();
                    asked.insert(key, (u, n));
                }
                WorldStep::Answer(u) => {
                    answered[u] = world.upstreams[u].server.calls.front().cloned().or(answered[u].take());
                    world.answer_oldest(u);
                }
                WorldStep::Swap(u) => {
                    let calls = &mut world.upstreams[u].server.calls;
                    if calls.len() > 1 {
                        calls.swap_remove_front(1).into_iter().for_each(|c| calls.push_back(c));
                    }
                }
                WorldStep::Cancel(n) if !asked.is_empty() => {
                    let (key, (u, _)) = asked.iter().nth(n % asked.len()).map(|(k, v)| (*k, *v)).unwrap();
                    cancelled.insert(key);
                    world.cancel(u, key);
                }
                WorldStep::Replay(u) => if let Some(call) = &answered[u] {
                    let again = json!({"jsonrpc": "2.0", "id": call["id"], "result": {"echo": "replayed"}});
                    if world.upstreams[u].alive { world.server_says(u, &again); }
                },
                WorldStep::Crash(u) => world.crash(u),
                WorldStep::Cancel(_) => {}
            }
            world.check();
        }
        world.finish(&cancelled);
        for (key, (_, n)) in asked {
            for seen in world.seen(key) {
                if let SeenCallEvent::Result(value) = seen {
                    prop_assert_eq!(value, json!({"echo": {"n": n}}));
                }
            }
        }
    }
}
