//! Servers that die, reloads that replace one of them, and configurations that are refused.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::sample::descendants;
use crate::stage::{PLAIN, Recipe, SoakFacts, SoakServer};

/// Guests, one for each reload.
const GUESTS: &[Option<&[&str]>] = &[
    Some(PLAIN),
    Some(&["stdio", "--behaviour", "garbage"]),
    Some(&["stdio", "--behaviour", "huge-line"]),
    None,
    Some(&["stdio", "--behaviour", "flood"]),
    Some(&["stdio", "--behaviour", "exit-at-start"]),
    Some(&["stdio", "--behaviour", "crash-after=3"]),
    Some(&["stdio", "--behaviour", "slow-start=1500"]),
    Some(PLAIN),
    Some(&["stdio", "--behaviour", "stderr-flood"]),
    Some(&["stdio", "--behaviour", "wrong-id"]),
    Some(&["stdio", "--behaviour", "duplicate-replies"]),
    Some(&["stdio", "--behaviour", "no-newline"]),
    Some(&["stdio", "--behaviour", "stop-reading"]),
    Some(&["stdio", "--behaviour", "ignore-eof"]),
    Some(&["stdio", "--behaviour", "cursor-loop"]),
    Some(&["stdio", "--behaviour", "never-answer"]),
    Some(&["stdio", "--damage", "7"]),
];

/// Configurations that must be refused, by their last lines.
const REFUSED: &[&str] = &[
    "[upstreams",
    "[nonsense]\nx = 1\n",
    "[upstreams.Bad_Name]\ncommand = [\"true\"]\n",
    "[upstreams.guest-two]\ncommand = []\n",
    "[[policy.rules]]\nid = \"x\"\neffect = \"perhaps\"\n",
    "[upstreams.guest-two]\nurl = \"ftp://127.0.0.1/\"\n",
];

/// Seconds between two deaths of a server.
const DEATHS: (u64, u64) = (3, 9);

/// Reloads in this rhythm until the load ends: all of them, or a guest that behaves in turn with
/// none.
pub(crate) async fn reload(facts: Arc<SoakFacts>, recipe: Recipe, pause: Duration, tame: bool) {
    let guests: &[Option<&[&str]>] = if tame { &[None, Some(PLAIN)] } else { GUESTS };
    for number in 1.. {
        sleep(pause).await;
        if facts.stopping() {
            return;
        }
        if facts.is_down() {
            continue;
        }
        let life = facts.life.load(std::sync::atomic::Ordering::SeqCst);
        let good = recipe.with_guest(guests[number % guests.len()]);
        if number % 8 == 0 {
            let _refused = facts.file.write().await;
            let bad = format!("{good}\n{}", REFUSED[number / 8 % REFUSED.len()]);
            match facts.reload(&bad).await {
                Ok(Err(_)) => facts.ledger.note("configurations that were refused"),
                Ok(Ok(_)) => facts.ledger.note(TAKEN),
                Err(_) if facts.is_restarting(life) => {}
                Err(_) => facts.ledger.note(FAILED),
            }
            // A relay must not read the refused configuration.
            if let Ok(Ok(_)) = facts.reload(&good).await {
                facts.ledger.note("reloads");
            }
            continue;
        }
        match facts.reload(&good).await {
            Ok(Ok(_)) => facts.ledger.note("reloads"),
            _ if facts.is_restarting(life) => {}
            _ => facts.ledger.note(FAILED),
        }
    }
}

/// Notes that fail a run.
pub(crate) const FAILED: &str = "reloads that failed";
pub(crate) const TAKEN: &str = "refused configurations that were taken";

/// Kills the server over HTTP now and then, and starts it again.
pub(crate) async fn kill_web(facts: Arc<SoakFacts>, mut server: SoakServer, mut rng: Rng) -> SoakServer {
    while !facts.stopping() {
        sleep(Duration::from_secs(rng.u64(DEATHS.0..DEATHS.1))).await;
        match server.restart(Duration::from_millis(rng.u64(0..800))).await {
            Ok(()) => facts.ledger.note("deaths of servers over HTTP"),
            // The server's port may still be taken for a moment.
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
    server
}

/// Kills the server on a pipe now and then; the daemon starts it again.
pub(crate) async fn kill_pipe(facts: Arc<SoakFacts>, daemon: impl Fn() -> u32, mut rng: Rng) {
    while !facts.stopping() {
        sleep(Duration::from_secs(rng.u64(DEATHS.0..DEATHS.1))).await;
        for pid in descendants(daemon()) {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let is_it =
                words.split(|byte| *byte == 0).any(|word| word == b"mortalpipe") && program.ends_with("fake-upstream");
            let target = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|_| is_it);
            // The process may have ended by itself.
            if target.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()) {
                facts.ledger.note("deaths of servers on pipes");
            }
        }
    }
}
