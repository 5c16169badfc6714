//! The whole way in memory: clients and servers of every era, on lines and HTTP, with the engine between them. One seed decides
//! all that happens: whose bytes arrive next and how they are cut, who calls, asks, answers, cancels or dies, and when time
//! passes. After each round everything comes to rest, and the invariants of ARCHITECTURE.md are looked at.
//!
//! A failure prints its seed and what led to it. `HEADEND_WORLD_SEED=N` plays that world alone and prints everything;
//! `HEADEND_WORLD_RUNS=N` plays so many interleavings of each pair of eras.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use bytes::Bytes;

use super::epoch;
use crate::engine::replay::{Found, Recording};
use crate::mcp::version::{Era, EventIds, Revision};

mod call;
mod chance;
mod client;
mod face;
mod gateway;
mod house;
mod http;
mod link;
mod server;
mod tasks;
mod truth;
mod words;

use self::chance::{Chance, Pipe};
use self::client::{Client, Sent};
use self::face::Face;
use self::gateway::{Gateway, Tell};
use self::link::Link;
use self::truth::Truth;

/// Rounds of one world, between which its connections stay. Each is one interleaving.
const ROUNDS: u64 = 20;
/// Interleavings of each pair of eras.
const INTERLEAVINGS: u64 = 25_000;
/// Events of one round before it comes to rest.
const EVENTS: usize = 24;

/// What goes to a client on one stream; lines have one.
struct Down {
    stream: u64,
    said: Recording<Bytes>,
    /// The number of the connection that reads it, 0 while there is none.
    reader: u64,
    /// How many events there are, and how many the client has.
    written: u64,
    read: u64,
}

impl Down {
    fn new(stream: u64, now: Duration) -> Self {
        let mut said = Recording::new(now);
        let reader = said.attach(1);
        Self { stream, said, reader, written: 0, read: 0 }
    }

    fn moves(&self) -> bool {
        self.reader != 0 && self.read < self.written
    }
}

/// One client, and the bytes between it and the gateway.
struct Seat {
    client: Client,
    face: Face,
    pipe: Pipe,
    posts: VecDeque<(u64, String)>,
    down: Vec<Down>,
}

impl Seat {
    fn moves(&self) -> bool {
        !self.pipe.is_empty() || !self.posts.is_empty() || self.down.iter().any(Down::moves)
    }

    /// Whether it can come back to a stream that broke.
    fn resumes(&self) -> bool {
        self.client.is_http && self.client.revision.features().event_ids != EventIds::None
    }

    /// The connection of a stream breaks, or the client comes back with the last event that it has. Whether there is one.
    fn breaks(&mut self, chance: &mut Chance, now: Duration) -> bool {
        if !self.resumes() || self.down.is_empty() {
            return false;
        }
        let at = chance.below(self.down.len());
        let down = &mut self.down[at];
        if down.reader == 0 {
            return self.comes_back();
        }
        assert!(down.said.leave(down.reader, now));
        down.reader = 0;
        true
    }

    /// The client asks for the rest of all streams that broke. Whether there were any.
    fn comes_back(&mut self) -> bool {
        let mut any = false;
        for down in self.down.iter_mut().filter(|down| down.reader == 0) {
            down.reader = down.said.resume(down.read).expect("what was said is kept");
            any = true;
        }
        any
    }
}

struct World {
    chance: Chance,
    truth: Truth,
    gateway: Gateway,
    links: Vec<Link>,
    seats: Vec<Seat>,
    clients: u64,
    /// Of all clients.
    callers: &'static [&'static str],
    eras: Era,
}

impl World {
    fn new(seed: u64, client: Era, server: Era, writes: bool) -> Self {
        let mut chance = Chance::new(seed);
        let now = epoch();
        let revisions: Vec<Revision> = Revision::of(server).collect();
        let links = [("a", false), ("b", true)].map(|(name, http)| {
            let revision = chance.pick(&revisions);
            Link::open(name, revision, http, &mut chance, now)
        });
        let (truth, gateway) = (Truth::new(writes), Gateway::new(now));
        // On a connection of two callers no question of doubt is tied at all.
        let callers: &[&str] = if chance.one_in(3) { &["x", "y"] } else { &["x"] };
        let links = links.into();
        let mut world = Self { chance, truth, gateway, links, seats: Vec::new(), clients: 0, callers, eras: client };
        for _ in 0..2 {
            let seat = world.new_seat();
            world.seats.push(seat);
        }
        world.rest();
        world
    }

    fn new_seat(&mut self) -> Seat {
        self.clients += 1;
        let revisions: Vec<Revision> = Revision::of(self.eras).collect();
        let (revision, is_http) = (self.chance.pick(&revisions), self.chance.one_in(2));
        let caller = self.chance.pick(self.callers);
        let client = Client::new(self.clients, caller, revision, is_http, &mut self.chance);
        let (pipe, posts, down) = (Pipe::default(), VecDeque::new(), Vec::new());
        Seat { client, face: Face::new(self.clients, caller), pipe, posts, down }
    }

    /// Puts what everybody says on its way.
    fn flush(&mut self) {
        self.links.iter_mut().for_each(Link::drain);
        self.gateway.hear(&mut self.links, &mut self.chance);
        let now = self.gateway.uptime();
        for Tell { client, stream, text, answers } in self.gateway.out.drain(..) {
            let seat = self.seats.iter_mut().find(|seat| seat.client.number == client);
            let Some(seat) = seat else { continue };
            if let Some(id) = answers {
                seat.face.left(&id);
            }
            let at = seat.down.iter().position(|down| down.stream == stream);
            let at = at.unwrap_or_else(|| {
                seat.down.push(Down::new(stream, now));
                seat.down.len() - 1
            });
            let (down, bytes) = (&mut seat.down[at], text.len());
            down.said.push(|| text, bytes, false, now);
            down.written += 1;
        }
        for seat in &mut self.seats {
            for sent in seat.client.out.drain(..) {
                match sent {
                    Sent::Message { text, .. } if !seat.client.is_http => seat.pipe.line(&text),
                    Sent::Message { text, stream } => seat.posts.push_back((stream, text)),
                    Sent::Closes { stream } => {
                        // The request may not even have arrived.
                        seat.posts.retain(|(of, _)| *of != stream);
                        seat.down.retain(|down| down.stream != stream);
                        self.gateway.closed(seat.client.number, stream, &mut self.links);
                    }
                }
            }
        }
        self.links.iter_mut().for_each(Link::drain);
    }

    /// The wires on which something moves: upstreams first.
    fn moving(&self) -> Vec<usize> {
        let links = (0..self.links.len()).filter(|at| self.links[*at].moves());
        let seats = (0..self.seats.len()).filter(|at| self.seats[*at].moves()).map(|at| at + self.links.len());
        links.chain(seats).collect()
    }

    /// Delivers one piece on one wire. Whether there was any.
    fn deliver(&mut self) -> bool {
        let moving = self.moving();
        if moving.is_empty() {
            return false;
        }
        let at = self.chance.pick(&moving);
        let now = self.gateway.now;
        match at.checked_sub(self.links.len()) {
            None => self.links[at].deliver(&mut self.chance, &mut self.truth, now),
            Some(at) => self.deliver_to(at),
        }
        self.flush();
        true
    }

    fn deliver_to(&mut self, at: usize) {
        let Self { chance, truth, gateway, links, seats, .. } = self;
        let Seat { client, face, pipe, posts, down } = &mut seats[at];
        let up = !pipe.is_empty() || !posts.is_empty();
        let moving: Vec<usize> = (0..down.len()).filter(|at| down[*at].moves()).collect();
        if up && (moving.is_empty() || chance.one_in(2)) {
            if let Some((stream, text)) = posts.remove(chance.below(posts.len().clamp(1, 2))) {
                truth.note(|| format!("client {} sent {text}", client.number));
                return face.post(&text, stream, client.revision, gateway, links, chance);
            }
            let piece = pipe.piece(chance);
            truth.note(|| format!("client {} sent {}", client.number, String::from_utf8_lossy(&piece)));
            return face.bytes(&piece, gateway, links, chance);
        }
        let at = chance.pick(&moving);
        let Down { stream, said, reader, written, read } = &mut down[at];
        let Found::Event((number, text)) = said.find(*reader, |number, text| (number, text.clone())) else {
            panic!("an event is gone: {read}")
        };
        assert_eq!(number, *read + 1, "events are in order, and none twice");
        *read = number;
        client.hear(std::str::from_utf8(&text).unwrap(), *stream, truth);
        if *read == *written && !client.reads(*stream) {
            down.swap_remove(at);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.gateway.now += time;
        let now = self.gateway.now;
        self.truth.note(|| format!("{time:?} pass"));
        self.links.iter_mut().for_each(|link| link.pass(&mut self.chance, now));
        self.gateway.pass(&mut self.links, &mut self.chance);
        self.flush();
    }

    fn client_dies(&mut self, at: usize) {
        let mut seat = self.new_seat();
        std::mem::swap(&mut seat, &mut self.seats[at]);
        self.truth.note(|| format!("client {} dies", seat.client.number));
        seat.client.dies(&mut self.truth);
        let runs_on = seat.client.is_http && !seat.client.is_modern();
        self.gateway.gone(seat.client.number, runs_on, &mut self.links);
        self.flush();
    }

    fn server_dies(&mut self, at: usize) {
        self.truth.note(|| format!("server {} dies", self.links[at].name));
        let is_lines = !self.links[at].is_http();
        let sent = self.gateway.calls.iter().filter(|call| is_lines && call.waits_for(at));
        let sent: Vec<u64> = sent.map(|call| call.key).collect();
        self.links[at].dies(&mut self.chance, self.gateway.now);
        self.flush();
        // Those that waited for their turn go on with the next process.
        let waits = self.gateway.calls.iter().find(|call| sent.contains(&call.key) && call.waits_for(at));
        assert!(waits.is_none(), "a call outlives its server's process");
    }

    /// One event.
    fn step(&mut self) {
        match self.chance.below(100) {
            0..=54 => {
                self.deliver();
            }
            55..=74 => {
                let at = self.chance.below(self.seats.len());
                self.seats[at].client.act(&mut self.chance, &mut self.truth);
            }
            75..=91 => {
                let at = self.chance.below(self.links.len());
                self.links[at].server.act(&mut self.chance, &mut self.truth);
            }
            92..=96 => {
                let time = match self.chance.below(40) {
                    0 => Duration::from_secs(601),
                    1..=2 => Duration::from_secs(61),
                    3..=12 => Duration::from_secs(1),
                    _ => Duration::from_millis(51),
                };
                self.pass(time);
            }
            97 if self.chance.one_in(2) => {
                let at = self.chance.below(self.seats.len());
                self.seats[at].breaks(&mut self.chance, self.gateway.uptime());
            }
            97 => {
                let (at, now) = (self.chance.below(self.links.len()), self.gateway.now);
                self.links[at].breaks(&mut self.chance, now);
            }
            98 if self.chance.one_in(2) => {
                let at = self.chance.below(self.links.len());
                self.server_dies(at);
            }
            _ if self.chance.one_in(3) => {
                let at = self.chance.below(self.seats.len());
                self.client_dies(at);
            }
            _ => {}
        }
        self.flush();
    }

    /// Lets everything end that was begun, then looks whether it did.
    fn rest(&mut self) {
        self.gateway.rests = true;
        // Waits grow while nothing happens. What waits for a question to be tied goes on before any time-out.
        let (waits, mut at) = ([51, 51, 1_000, 6_000, 61_000, 301_000, 601_000, 601_000], 0);
        for _ in 0..500 {
            let mut moved = self.deliver();
            while self.deliver() {}
            for at in 0..self.seats.len() {
                moved |= self.seats[at].comes_back();
                moved |= self.seats[at].client.answer(&mut self.chance, &mut self.truth);
            }
            for at in 0..self.links.len() {
                moved |= self.links[at].server.end_one(&mut self.chance, &mut self.truth);
            }
            self.flush();
            if moved {
                at = 0;
                continue;
            }
            let is_ready = self.links.iter().all(Link::is_ready) && self.seats.iter().all(|seat| seat.client.is_idle());
            if is_ready && self.left().is_empty() {
                self.gateway.rests = false;
                return self.truth.at_rest();
            }
            let Some(time) = waits.get(at) else { break };
            at += 1;
            self.pass(Duration::from_millis(*time));
        }
        panic!("no rest: {}", self.left());
    }

    /// What is left in the tables of the gateway.
    fn left(&mut self) -> String {
        let links = self.links.iter_mut().map(|link| (link.name, link.left())).filter(|(_, left)| *left > 0);
        let links: String = links.map(|(name, left)| format!("{left} at {name} ")).collect();
        // A modern client's request over HTTP stands for itself.
        let has_ids = |seat: &&Seat| !(seat.client.is_http && seat.client.is_modern());
        let busy = self.seats.iter().filter(has_ids).filter(|seat| !seat.face.is_idle()).count();
        let faces = if busy > 0 { format!("{busy} clients with open ids ") } else { String::new() };
        format!("{}{links}{faces}", self.gateway.left())
    }
}

fn one(seed: u64, client: Era, server: Era, writes: bool) {
    let mut world = World::new(seed, client, server, writes);
    for _ in 0..ROUNDS {
        for _ in 0..EVENTS {
            world.step();
        }
        world.rest();
    }
}

/// Plays many worlds of one pair of eras.
fn play(client: Era, server: Era) {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    if let Some(seed) = number("HEADEND_WORLD_SEED") {
        return one(seed, client, server, true);
    }
    for seed in 0..number("HEADEND_WORLD_RUNS").unwrap_or(INTERLEAVINGS) / ROUNDS {
        let played = catch_unwind(AssertUnwindSafe(|| one(seed, client, server, false)));
        if let Err(failure) = played {
            let _the_same = catch_unwind(AssertUnwindSafe(|| one(seed, client, server, true)));
            eprintln!("seed {seed}, clients {client}, servers {server}");
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
