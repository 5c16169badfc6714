//! A process that dies at any moment uses no consent twice.
//!
//! The test starts itself again as processes that do nothing but use once-grants, two at a time on one store, and kills them
//! with SIGKILL. What they may do only after `consume` has said yes is a line in a file: the upstream.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::policy::consent::Arguments;

/// Names the store to a process that is to die.
const STORE: &str = "HEADEND_TEST_STORE";
/// What such a process says when it has opened its store.
const BEGAN: &str = "began";
const KILLS: usize = 1000;
/// Stores that are used side by side, and processes on each.
const STORES: usize = 4;
const AT_ONCE: usize = 2;
/// Live once-grants at the start of each life; more than one can use.
const GRANTS: usize = 48;
/// Kills come up to so many microseconds after a process was started, or after it began its work.
const LONGEST: u64 = 15_000;

/// Not a test of its own: what the killed processes do.
#[test]
fn uses_once_grants_until_it_is_killed() {
    let Some(dir) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let approvals = Approvals::open(Db::open(&dir).unwrap(), &limits()).unwrap();
        let mut upstream = OpenOptions::new().append(true).open(dir.join("upstream")).unwrap();
        println!("\n{BEGAN}");
        let mut actions: Vec<Asked> = approvals.grants().iter().map(|grant| grant.asked().clone()).collect();
        actions.sort_by(|a, b| a.item.cmp(&b.item));
        for action in actions {
            let Some(consented) = approvals.grants().claim(&action, approvals.wall()) else { continue };
            let grant = consented.spend();
            if approvals.consume(&grant).await.is_ok() {
                upstream.write_all(format!("{}\n", grant.id()).as_bytes()).unwrap();
            }
        }
    });
    // Whoever is done early waits for its end, or for that of the test.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

#[test]
fn a_used_once_grant_is_never_used_again_also_after_kill_9_at_any_of_1000_points() {
    let used: usize = std::thread::scope(|scope| {
        let stores: Vec<_> = (0..STORES).map(|_| scope.spawn(|| lives(KILLS / STORES / AT_ONCE))).collect();
        stores.into_iter().map(|store| store.join().unwrap()).sum()
    });
    assert!(used > KILLS / 10, "{used} uses: the processes are killed before they do anything");
}

/// Lives of one store; how many grants were used.
fn lives(count: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("upstream"), "").unwrap();
    let mut made = 0;
    for life in 0..count {
        made = grant_more(dir.path(), made);
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
    check(dir.path(), &Db::open(dir.path()).unwrap());
    fs::read_to_string(dir.path().join("upstream")).unwrap().lines().count()
}

fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = concat!(module_path!(), "::uses_once_grants_until_it_is_killed");
    let name = name.split_once("::").unwrap().1;
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(STORE, dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Checks what the last life left, and makes up for what was used.
fn grant_more(dir: &Path, made: usize) -> usize {
    let db = Db::open(dir).unwrap();
    check(dir, &db);
    let live = db.grants().run_now().unwrap().len();
    let more = GRANTS - live.min(GRANTS);
    for row in (made..made + more).map(once) {
        db.keep_grant(row, String::new()).then(|outcome| outcome.unwrap());
    }
    db.all_so_far().run_now().unwrap();
    made + more
}

fn once(n: usize) -> GrantRow {
    GrantRow {
        id: Arc::from(format!("{n:016x}")),
        asked: asked("ci", &format!("fx__{n:08}"), "{}"),
        arguments: Arguments::Exact,
        lifetime: Lifetime::Once,
        evidence: Evidence::Operator,
        by: Arc::from("uid:1"),
        granted_at: clock::unix_seconds(),
        last_used: 0,
        uses: 0,
    }
}

/// Nothing was used twice, and nothing that was used is live.
fn check(dir: &Path, db: &Db) {
    let live: HashSet<String> = db.grants().run_now().unwrap().iter().map(|row| row.id.to_string()).collect();
    let text = fs::read_to_string(dir.join("upstream")).unwrap();
    let mut used = HashSet::new();
    for id in text.lines() {
        assert!(used.insert(id), "{id} was used twice");
        assert!(!live.contains(id), "{id} was used and is live");
    }
}
