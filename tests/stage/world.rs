//! The world: clients and servers of each pair of eras, on pipes and HTTP, around the real gateway.
//! A seed decides everything that they do: whose bytes arrive next and how they are cut, who calls,
//! asks, answers, approves, cancels or dies, and when time passes.
//!
//! A world has [`ROUNDS`] interleavings of [`EVENTS`] events. After each it comes to rest, and the
//! invariants are checked (`truth`): each call has ended once, with its own answer; a call was sent
//! once, unless a server proved that it had not begun with it; no call was sent without an approval
//! that it needs; no question reached another client; and nothing is left over.
//!
//! A failure prints its seed and the story of the world. `HEADEND_WORLD_SEED=N` plays that world
//! alone and prints everything, `HEADEND_WORLD_RUNS=N` plays so many interleavings of each pair of
//! eras. The choices of tokio's `select!` are repeated too under `--cfg tokio_unstable`; without
//! it, a failure that depends on them may need several runs of its seed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::gateway::service::Service;
use crate::mcp::version::{Era, Revision};
use crate::policy::ApprovalEvidence;
use crate::policy::consent::{GrantLifetime, PersonAnswer};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::upstream::Fake;
use crate::stage::{StageOptions, block_on, set_options, stage};

mod chance;
mod client;
mod event;
mod http;
mod server;
mod side;
mod tasks;
mod truth;
mod upstream;
mod words;

use self::chance::WorldChance;
use self::client::WorldClient;
use self::event::{EventSender, WireEvent};
use self::side::{ClientDoor, ClientSide};
use self::truth::{WorldTruth, take_story};
use self::upstream::WorldUpstream;
use self::words::about;

/// Rounds of one world, between which its connections stay. Each is one interleaving.
const ROUNDS: u64 = 20;
/// Interleavings of each pair of eras, and in the gate.
const INTERLEAVINGS: u64 = 500;
const IN_GATE: u64 = 2_000;
/// Events of one round before it comes to rest.
const EVENTS: usize = 24;
/// Clients at any time.
const CLIENTS: usize = 3;
/// Lines of the story that a failure prints.
const STORY: usize = 400;

const TOKEN: &str = "token-of-the-second-caller-0123456789";
/// The policy of a world. The times are short, so that little time passes until nothing is left.
const POLICY: &str = r#"default = "allow"
[policy.consent]
timeout = "10s"
hold = "5s"
approval-life = "10s"
per-minute = 100
max-open = 100"#;
const RULES: &str = r#"
[[policy.rules]]
id = "no"
effect = "deny"
tools = ["a__hidden", "b__hidden"]

[[policy.rules]]
id = "ask"
effect = "ask"
tools = ["a__asks", "b__asks"]
"#;
/// A rule that a reload adds or removes.
const NO_OPEN: &str = r#"
[[policy.rules]]
id = "no-open"
effect = "deny"
tools = ["a__open", "b__open"]
"#;
/// Tools that the gateway lists when both upstreams are known.
const TOOLS: usize = 8;

struct PlayedWorld {
    chance: WorldChance,
    truth: WorldTruth,
    clients: Vec<ClientSide>,
    upstreams: Vec<WorldUpstream>,
    gateway: Gateway,
    sender: EventSender,
    events: mpsc::UnboundedReceiver<WireEvent>,
    era: Era,
    /// The callers of clients.
    callers: &'static [&'static str],
    /// Clients so far.
    made: u64,
    /// Sessions that clients left without a farewell.
    abandoned: usize,
    /// Free call slots at the start.
    free: usize,
    /// The configuration without [`NO_OPEN`].
    config: String,
}

impl PlayedWorld {
    fn new(seed: u64, clients: Era, servers: Era) -> Self {
        let mut chance = WorldChance::new(seed);
        set_options(StageOptions { seed, event_interval: 8 });
        let (sender, events) = mpsc::unbounded_channel();
        let revisions: Vec<Revision> = Revision::of(servers).collect();
        let mut setup = GatewaySetup::new().policy(POLICY).toml(RULES);
        let callers: &[&str] = if chance.one_in(3) { &["x", "y"] } else { &["x"] };
        if callers.len() > 1 {
            setup = setup.second_caller(TOKEN);
        }
        setup = setup.server("limits.session-idle = \"12h\"");
        let upstreams = [("a", false), ("b", true)];
        let upstreams =
            upstreams.map(|(name, http)| WorldUpstream::new(name, http, chance.pick(&revisions), &mut chance));
        let kinds = ["auto", "auto", "per-caller", "per-session"];
        let instances = kinds.map(|kind| format!("instance = \"{kind}\"\ncall-timeout = \"15s\"\n"));
        let instances = [0, 1].map(|_| instances[chance.below(instances.len())].clone());
        upstream::play_programs("a", 0, &sender);
        let url = block_on(async { upstream::listen(1, &sender) });
        let setup = setup.fake("a", &Fake::stdio("both")).toml(&instances[0]).url("b", &url).toml(&instances[1]);
        let gateway = setup.start();
        let config = std::fs::read_to_string(&gateway.config).unwrap();
        let free = gateway.inner().service.admission.free();
        let mut world = Self {
            chance,
            truth: WorldTruth::default(),
            clients: Vec::new(),
            upstreams: upstreams.into(),
            gateway,
            sender,
            events,
            era: clients,
            callers,
            made: 0,
            abandoned: 0,
            free,
            config,
        };
        for upstream in &world.upstreams {
            world.truth.note(|| upstream.told());
        }
        block_on(world.rest());
        for _ in 0..CLIENTS {
            let entered = stage();
            let _entered = entered.runtime.enter();
            let client = world.new_client();
            world.clients.push(client);
        }
        block_on(world.rest());
        world
    }

    fn service(&self) -> Arc<Service> {
        Arc::clone(&self.gateway.inner().service)
    }

    fn new_client(&mut self) -> ClientSide {
        self.made += 1;
        let revisions: Vec<Revision> = Revision::of(self.era).collect();
        let (revision, caller) = (self.chance.pick(&revisions), self.chance.pick(self.callers));
        // Pipes are our own user's.
        let is_http = caller == "y" || self.chance.one_in(2);
        let client = WorldClient::new(self.made, caller, revision, is_http, &mut self.chance);
        self.truth.note(|| format!("client {} of {caller} speaks {revision}, HTTP: {is_http}", self.made));
        let token = if caller == "y" { TOKEN.to_owned() } else { self.gateway.token().unwrap() };
        let door = ClientDoor { port: self.gateway.address.port(), token };
        ClientSide::connect(client, self.gateway.inner(), door, self.sender.clone())
    }

    /// Takes the events on the wires.
    fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.take_event(event);
        }
    }

    fn take_event(&mut self, event: WireEvent) {
        match event {
            WireEvent::Answered { client, .. } | WireEvent::Told { client, .. } | WireEvent::Ended { client, .. } => {
                let at = self.clients.iter().position(|one| one.client.number == client);
                if let Some(at) = at {
                    self.clients[at].take(event, &mut self.truth);
                }
            }
            WireEvent::Started { upstream, .. }
            | WireEvent::Line { upstream, .. }
            | WireEvent::Exited { upstream, .. }
            | WireEvent::Requested { upstream, .. }
            | WireEvent::Closed { upstream, .. } => self.upstreams[upstream].take(event, &mut self.truth),
        }
    }

    /// Delivers one piece on one wire; returns whether there was any.
    fn deliver(&mut self) -> bool {
        let count = self.upstreams.len();
        let upstreams = (0..count).filter(|at| self.upstreams[*at].moves());
        let clients = (0..self.clients.len()).filter(|at| self.clients[*at].moves()).map(|at| at + count);
        let moving: Vec<usize> = upstreams.chain(clients).collect();
        if moving.is_empty() {
            return false;
        }
        let at = self.chance.pick(&moving);
        match at.checked_sub(count) {
            None => self.upstreams[at].deliver(&mut self.chance, &mut self.truth),
            Some(at) => self.clients[at].deliver(&mut self.chance, &mut self.truth),
        }
        true
    }

    /// Lets the gateway work for a moment that may end in the middle of things.
    async fn breathe(&mut self) {
        for _ in 0..self.chance.below(6) {
            tokio::task::yield_now().await;
        }
        self.take_events();
    }

    async fn pass(&mut self, time: Duration) {
        self.truth.note(|| format!("{time:?} pass"));
        tokio::time::sleep(time).await;
        self.take_events();
    }

    /// Lets time pass until something happens on a wire: all sides listen while the world rests.
    async fn wait_for_event(&mut self, time: Duration) {
        self.truth.note(|| format!("at most {time:?} pass"));
        if let Ok(Some(event)) = tokio::time::timeout(time, self.events.recv()).await {
            self.take_event(event);
        }
    }

    fn client_dies(&mut self, at: usize) {
        let mut client = self.new_client();
        std::mem::swap(&mut client, &mut self.clients[at]);
        self.end_client(client, 2);
    }

    /// Removes a client; one in so many ends its session before.
    fn end_client(&mut self, mut client: ClientSide, one_in: u32) {
        let says_farewell = self.chance.one_in(one_in);
        self.truth.note(|| format!("client {} goes, farewell: {says_farewell}", client.client.number));
        client.client.dies(&mut self.truth);
        self.abandoned += usize::from(client.has_session() && !says_farewell);
        client.leave(says_farewell);
    }

    /// Answers an open approval as the operator, if there is one.
    async fn operate(&mut self) {
        let approvals = Arc::clone(&self.service().approvals);
        let open = approvals.open_approvals();
        if open.is_empty() {
            return;
        }
        let approval = &open[self.chance.below(open.len())];
        let n = about(&approval.message(), "\n  n: ").expect("an approval shows the arguments");
        let is_yes = !self.chance.one_in(3);
        self.truth.note(|| format!("the operator answers the approval of call {n}: {is_yes}"));
        self.truth.call(n).agreed |= is_yes;
        let answer = if is_yes { PersonAnswer::Allow(GrantLifetime::Once) } else { PersonAnswer::Deny };
        drop(approvals.answer(&approval.id, answer, ApprovalEvidence::Operator, "operator").await);
    }

    /// Reloads a configuration that denies the open tools, or one that allows them again.
    async fn reload(&mut self) {
        let denies = !std::mem::take(&mut self.truth.denies_open);
        self.truth.note(|| format!("a reload; open tools are denied: {denies}"));
        let config = if denies { self.config.clone() + NO_OPEN } else { self.config.clone() };
        self.gateway.world.write("headend.toml", &config);
        let daemon = Arc::clone(self.gateway.inner());
        daemon.reload("operator", None).await.unwrap();
        // A call that passed its last check before is written by then.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.take_events();
        self.truth.denies_open = denies;
    }

    /// Plays one random event.
    async fn step(&mut self) {
        match self.chance.below(100) {
            0..=54 => {
                self.deliver();
            }
            55..=74 => {
                let at = self.chance.below(self.clients.len());
                self.clients[at].client.act(&mut self.chance, &mut self.truth);
                self.clients[at].flush();
            }
            75..=89 => {
                let at = self.chance.below(self.upstreams.len());
                self.upstreams[at].act(&mut self.chance, &mut self.truth);
            }
            90..=92 => self.operate().await,
            93..=96 => {
                let time = match self.chance.below(40) {
                    0 => {
                        // The gateway keeps the rest of a broken stream for 5 minutes.
                        for client in &mut self.clients {
                            client.come_back();
                        }
                        self.pass(Duration::from_millis(1)).await;
                        Duration::from_secs(601)
                    }
                    1..=2 => Duration::from_secs(31),
                    3..=12 => Duration::from_secs(1),
                    _ => Duration::from_millis(51),
                };
                self.pass(time).await;
            }
            97 => {
                let at = self.chance.below(self.clients.len());
                self.clients[at].breaks(&mut self.chance, &self.truth);
            }
            98 if self.chance.one_in(4) => self.reload().await,
            98 => {
                let at = self.chance.below(self.upstreams.len());
                match self.chance.below(4) {
                    0 | 1 => self.upstreams[at].die(&mut self.chance, &mut self.truth),
                    2 => self.upstreams[at].forget(&mut self.chance, &mut self.truth),
                    _ => self.upstreams[at].breaks(&mut self.chance, &mut self.truth),
                }
            }
            _ if self.chance.one_in(3) => {
                let at = self.chance.below(self.clients.len());
                self.client_dies(at);
            }
            _ => {}
        }
        self.breathe().await;
    }

    /// Delivers everything until nothing comes any more; returns whether there was anything.
    async fn settle(&mut self) -> bool {
        let mut moved = false;
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.take_events();
            if !self.deliver() {
                return moved;
            }
            moved = true;
            while self.deliver() {}
        }
    }

    /// Lets everything end that was begun, then checks whether it did.
    async fn rest(&mut self) {
        // The waits grow while nothing happens.
        let (waits, mut at) = ([51, 51, 1_000, 5_000, 6_000, 16_000, 31_000, 301_000, 301_000, 601_000], 0);
        self.truth.note(|| "rest".to_owned());
        for _ in 0..1_000 {
            let mut moved = self.settle().await;
            for client in &mut self.clients {
                moved |= client.come_back();
                moved |= client.client.answer(&mut self.chance, &mut self.truth);
                client.flush();
            }
            for upstream in &mut self.upstreams {
                moved |= upstream.end_one(&mut self.chance, &mut self.truth);
            }
            if moved {
                at = 0;
                continue;
            }
            if self.left().is_empty() {
                self.truth.rests = false;
                return self.truth.at_rest();
            }
            let Some(time) = waits.get(at) else { break };
            at += 1;
            self.truth.rests = true;
            self.wait_for_event(Duration::from_millis(*time)).await;
        }
        panic!("no rest: {}", self.left());
    }

    /// Describes everything that is left over.
    fn left(&self) -> String {
        let service = self.service();
        let snapshot = service.snapshots.load();
        let calls: i64 = snapshot.handles.iter().map(|handle| handle.metrics.in_flight().get()).sum();
        let busy = self.clients.iter().filter(|side| !side.client.is_idle()).count();
        let left = [
            ("tools not listed", TOOLS.saturating_sub(snapshot.whole.catalog.entries().len())),
            ("busy clients", busy),
            ("calls at servers", self.upstreams.iter().map(WorldUpstream::left).sum()),
            ("calls in flight", usize::try_from(calls).unwrap()),
            ("places of calls", self.free.abs_diff(service.admission.free())),
            ("calls in queues", service.admission.waiting()),
            ("held calls", service.held.count()),
            ("parked calls", service.parks.count()),
            ("approvals", service.approvals.open_approvals().len()),
        ];
        left.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}; ")).collect()
    }

    /// Removes all clients and checks that nothing of them is left.
    async fn end(&mut self) {
        for client in std::mem::take(&mut self.clients) {
            self.end_client(client, 1);
        }
        self.rest().await;
        let sessions = self.gateway.inner().sessions.len();
        assert_eq!(sessions, self.abandoned, "sessions are left over");
    }
}

fn play_one(seed: u64, clients: Era, servers: Era) {
    let mut world = PlayedWorld::new(seed, clients, servers);
    block_on(async {
        for _ in 0..ROUNDS {
            for _ in 0..EVENTS {
                world.step().await;
            }
            world.rest().await;
        }
        world.end().await;
    });
}

/// Plays many worlds of one pair of eras.
fn play(clients: Era, servers: Era) {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let alone = number("HEADEND_WORLD_SEED");
    let in_gate = std::env::var("CI").is_ok_and(|value| value == "true");
    let runs = number("HEADEND_WORLD_RUNS").unwrap_or(if in_gate { IN_GATE } else { INTERLEAVINGS });
    let seeds = alone.map_or(0..runs.div_ceil(ROUNDS), |seed| seed..seed + 1);
    for seed in seeds {
        let played = catch_unwind(AssertUnwindSafe(|| play_one(seed, clients, servers)));
        let story = take_story();
        if alone.is_some() || played.is_err() {
            let from = if alone.is_some() { 0 } else { story.len().saturating_sub(STORY) };
            story.iter().skip(from).for_each(|line| eprintln!("{line}"));
        }
        if let Err(failure) = played {
            eprintln!("HEADEND_WORLD_SEED={seed} repeats it: {clients} clients, {servers} servers");
            resume_unwind(failure);
        }
    }
}

#[test]
fn legacy_clients_and_legacy_servers() {
    play(Era::Legacy, Era::Legacy);
}

#[test]
fn legacy_clients_and_modern_servers() {
    play(Era::Legacy, Era::Modern);
}

#[test]
fn modern_clients_and_legacy_servers() {
    play(Era::Modern, Era::Legacy);
}

#[test]
fn modern_clients_and_modern_servers() {
    play(Era::Modern, Era::Modern);
}
