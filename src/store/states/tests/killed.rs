//! A process that dies at any moment continues no call twice with one state, and uses no once-grant behind one twice.
//!
//! The test starts itself again as processes that go on with the same states, two at a time on one store, and kills them with
//! SIGKILL between the use and the answer. What they may do only after `keep` has said yes is a line in a file: the upstream.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::*;

/// Names the store to a process that is to die.
const STORE: &str = "HEADEND_TEST_STATES";
/// What such a process says when it has opened its store.
const BEGAN: &str = "began";
const KILLS: usize = 1000;
/// Stores that are used side by side, and processes on each.
const STORES: usize = 4;
const AT_ONCE: usize = 2;
/// Unused states at the start of each life; more than one can use.
const STATES: u64 = 48;
/// Kills come up to so many microseconds after a process was started, or after it began its work.
const LONGEST: u64 = 15_000;

/// Not a test of its own: what the killed processes do.
#[test]
fn goes_on_with_states_until_it_is_killed() {
    let Some(dir) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let used = UsedStates::open(Some(Db::open(&dir).unwrap())).unwrap();
        let sealed = fs::read_to_string(dir.join("sealed")).unwrap();
        let mut upstream = OpenOptions::new().append(true).open(dir.join("upstream")).unwrap();
        println!("\n{BEGAN}");
        for n in sealed.lines().map(|line| line.parse::<u64>().unwrap()) {
            // All that were ever sealed are sent again, the used ones too.
            if used.is_first(state(n)) && used.keep(state(n)).await.is_ok() {
                upstream.write_all(format!("{n}\n").as_bytes()).unwrap();
            }
        }
    });
    // Whoever is done early waits for its end, or for that of the test.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

#[test]
fn a_used_state_is_never_used_again_also_after_kill_9_at_any_of_1000_points() {
    let used: usize = std::thread::scope(|scope| {
        let stores: Vec<_> = (0..STORES).map(|_| scope.spawn(|| lives(KILLS / STORES / AT_ONCE))).collect();
        stores.into_iter().map(|store| store.join().unwrap()).sum()
    });
    assert!(used > KILLS / 10, "{used} uses: the processes are killed before they do anything");
}

/// Lives of one store; how many states were used.
fn lives(count: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("upstream"), "").unwrap();
    let mut made = 0;
    for life in 0..count {
        made = seal_more(dir.path(), made);
        let mut children: Vec<Child> = (0..AT_ONCE).map(|_| start(dir.path())).collect();
        for (n, child) in children.iter_mut().enumerate() {
            // Every other one dies while it starts, or while it writes.
            if life % 2 == n % 2 {
                let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
                assert!(said.into_iter().any(|line| line == BEGAN), "it ended by itself");
            }
            let after = u64::from_be_bytes(clock::random()) % LONGEST;
            std::thread::sleep(Duration::from_micros(after));
            child.kill().unwrap();
        }
        for mut child in children {
            let status = child.wait().unwrap();
            assert!(status.code().is_none(), "it ended by itself: {status}");
        }
    }
    used(dir.path()).len()
}

fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = concat!(module_path!(), "::goes_on_with_states_until_it_is_killed");
    let name = name.split_once("::").unwrap().1;
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(STORE, dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Checks what the last life left, and makes up for what was used.
fn seal_more(dir: &Path, made: u64) -> u64 {
    let db = Db::open(dir).unwrap();
    let used = used(dir);
    let kept: HashSet<StateId> = db.used_states(0, usize::MAX).unwrap().iter().map(|state| state.id).collect();
    assert!(used.iter().all(|n| kept.contains(&state(*n).id)), "a state was used that is not on disk as used");
    // A state whose use is on disk was used, or its process died before the call went on.
    let unused = made - kept.len() as u64;
    let made = made + STATES - unused.min(STATES);
    let sealed: String = (0..made).map(|n| format!("{n}\n")).collect();
    fs::write(dir.join("sealed"), sealed).unwrap();
    made
}

/// The states with which a call went on; none twice.
fn used(dir: &Path) -> HashSet<u64> {
    let mut used = HashSet::new();
    for line in fs::read_to_string(dir.join("upstream")).unwrap().lines() {
        assert!(used.insert(line.parse().unwrap()), "{line} was used twice");
    }
    used
}
