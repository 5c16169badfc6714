//! Tests of time-outs and cancellations under load: each happens, and none of them late.
//!
//! `HEADEND_TEST_DEADLINES` sets the number of each; if it is set, a delay above [`LATE`] is a
//! failure.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::http::PATIENCE;
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::eventually;
use crate::tools::upstream::{Fake, InputLog, Listening};

/// Number of clients that call at once.
const CLIENTS: usize = 32;
const TIMEOUT: Duration = Duration::from_secs(1);
/// Largest delay of one call, if a core is free.
const LATE: Duration = Duration::from_millis(250);
/// An hour: no call here ends by itself.
const LONG: u64 = 3_600_000;

/// A daemon in front of one server that never answers `sleep` in time.
struct DeadlineGateway {
    gateway: Gateway,
    log: InputLog,
    era: ClientEra,
    name: &'static str,
    _server: Option<Listening>,
}

fn scenes() -> [DeadlineGateway; 3] {
    [
        ("legacy HTTP", ClientEra::LEGACY, Some("legacy")),
        ("modern HTTP", ClientEra::Modern, Some("modern")),
        ("stdio", ClientEra::LEGACY, None),
    ]
    .map(|(name, era, http)| {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let server = http.map(|era| Fake::http(era).logging(&log).spawn());
        let way = match &server {
            Some(server) => format!("url = {:?}", server.url),
            None => format!("command = {}", Fake::stdio("legacy").logging(&log).command()),
        };
        let room = "max-in-flight = 256\ncall-timeout = \"1s\"\ncall-max = \"1s\"";
        let gateway = setup.toml(&format!("[upstreams.fx]\n{way}\n{room}")).start();
        gateway.wait_for_tools(&["fx__sleep", "fx__echo"]);
        DeadlineGateway { gateway, log, era, name, _server: server }
    })
}

/// Returns how many of each to run, and whether delays are judged.
fn number() -> (usize, bool) {
    let set = std::env::var("HEADEND_TEST_DEADLINES").ok().map(|number| number.parse().unwrap());
    (set.unwrap_or(2 * CLIENTS), set.is_some())
}

/// Lets the clients do `one` this many times in all, while another client is served. Returns the
/// delay of each.
fn under_load(
    scene: &DeadlineGateway,
    number: usize,
    one: impl Fn(&mut Mcp, usize) -> Duration + Sync,
) -> Vec<Duration> {
    let (next, done, late) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            let mut client = scene.gateway.client(scene.era);
            while !done.load(Ordering::Relaxed) {
                assert_eq!(client.call("fx__echo", json!({"text": "still here"})).text(), "still here");
                thread::sleep(Duration::from_millis(5));
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = scene.gateway.client(scene.era);
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= number {
                            return;
                        }
                        let took = one(&mut client, at);
                        late.lock().unwrap().push(took);
                    }
                })
            })
            .collect();
        // The additional client ends even if one of these fails.
        let ended: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        served.join().unwrap();
        for client in ended {
            client.unwrap();
        }
    });
    late.into_inner().unwrap()
}

/// Checks that none is lost, and prints the delays; judges them if a number was set.
fn judge(what: &str, name: &str, number: usize, is_judged: bool, mut late: Vec<Duration>) {
    assert_eq!(late.len(), number, "{what}, {name}");
    late.sort_unstable();
    let at = |part: usize| late[(late.len() - 1) * part / 100];
    eprintln!("{number} {what}, {name}: late by {:?} (half of them), {:?} (99 %), {:?} (all)", at(50), at(99), at(100));
    assert!(!is_judged || at(100) <= LATE, "{what}, {name}: late by {:?}", at(100));
}

#[test]
fn no_time_out_is_lost_or_late_under_load() {
    let (number, is_judged) = number();
    for scene in scenes() {
        let late = under_load(&scene, number, |client, at| {
            let begun = Instant::now();
            let answer = client.call("fx__sleep", json!({"ms": LONG, "n": at}));
            let took = begun.elapsed();
            assert_eq!(answer.result()["_meta"]["headend/refusal"]["executed"], "unknown", "{}", answer.raw);
            took.checked_sub(TIMEOUT).unwrap_or_else(|| panic!("too early: {took:?}"))
        });
        judge("time-outs", scene.name, number, is_judged, late);
        eventually("the server stops each", || scene.log.lines_with(&["\"stopped\":"]).len() == number);
    }
}

#[test]
fn no_cancellation_is_lost_or_late_under_load() {
    let (number, is_judged) = number();
    for scene in scenes() {
        let seen = LoggedCalls::follow(&scene.log);
        // The time-out must not cancel in place of the client.
        let text = std::fs::read_to_string(&scene.gateway.config).unwrap().replace("\"1s\"", "\"1h\"");
        assert!(scene.gateway.reload(&text).status.success());
        let late = under_load(&scene, number, |client, at| {
            let mut call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": LONG, "n": at}}));
            seen.begun(at);
            let begun = Instant::now();
            if scene.era == ClientEra::Modern {
                drop(call);
                return seen.stopped(at).saturating_duration_since(begun);
            }
            client.notify("notifications/cancelled", json!({"requestId": call.id}));
            let when = seen.stopped(at);
            // A cancelled call has no answer, and its response ends.
            assert!(call.next_within(PATIENCE).is_ok_and(|answer| answer.is_none()));
            when.saturating_duration_since(begun)
        });
        judge("cancellations", scene.name, number, is_judged, late);
    }
}

/// The numbered calls in a server's log, read while it is written.
#[derive(Clone, Default)]
struct LoggedCalls(Arc<(Mutex<LoggedCallTimes>, Condvar)>);

#[derive(Default)]
struct LoggedCallTimes {
    begun: HashSet<u64>,
    stopped: HashMap<u64, Instant>,
}

impl LoggedCalls {
    /// Reads the log as long as the value is used.
    fn follow(log: &InputLog) -> Self {
        let (seen, path) = (Self::default(), log.path().to_owned());
        let weak = Arc::downgrade(&seen.0);
        thread::spawn(move || {
            let mut lines = GrowingFile::of(path);
            while let Some(shared) = weak.upgrade() {
                let new = lines.grown();
                let now = Instant::now();
                let mut known = shared.0.lock().unwrap();
                for line in &new {
                    known.read(line, now);
                }
                drop(known);
                shared.1.notify_all();
                drop(shared);
                thread::sleep(Duration::from_millis(2));
            }
        });
        seen
    }

    fn wait<T>(&self, what: &str, found: impl Fn(&LoggedCallTimes) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut known = self.0.0.lock().unwrap();
        loop {
            if let Some(found) = found(&known) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what} never came");
            known = self.0.1.wait_timeout(known, Duration::from_secs(1)).unwrap().0;
        }
    }

    /// Waits until the call of this number runs.
    fn begun(&self, number: usize) {
        self.wait("a call", |known| known.begun.contains(&(number as u64)).then_some(()));
    }

    /// Waits until the server has stopped this call, and returns the time.
    fn stopped(&self, number: usize) -> Instant {
        self.wait("a cancellation", |known| known.stopped.get(&(number as u64)).copied())
    }
}

impl LoggedCallTimes {
    fn read(&mut self, line: &str, now: Instant) {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        self.begun.extend(line["begun"].as_u64());
        self.stopped.extend(line["stopped"].as_u64().map(|number| (number, now)));
    }
}

/// Reads whole lines of a growing file.
struct GrowingFile {
    path: PathBuf,
    file: Option<File>,
    rest: String,
}

impl GrowingFile {
    fn of(path: PathBuf) -> Self {
        Self { path, file: None, rest: String::new() }
    }

    fn grown(&mut self) -> Vec<String> {
        self.file = self.file.take().or_else(|| File::open(&self.path).ok());
        if let Some(file) = &mut self.file {
            file.read_to_string(&mut self.rest).unwrap();
        }
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.rest.split_off(whole);
        std::mem::replace(&mut self.rest, rest).lines().map(str::to_owned).collect()
    }
}
