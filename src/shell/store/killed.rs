//! A harness for tests of effects that must happen once although processes die: a test starts
//! itself again as child processes that only use one store, two at a time, and kills them with
//! SIGKILL at random moments. Each use is a line in the file `upstream` beside the store, written
//! only after the store has allowed it.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::base::clock;

/// Environment variable that names the store's folder to a child process.
const STORE: &str = "HEADEND_TEST_STORE";
/// Line on stdout of a child that has opened its store.
const BEGAN: &str = "began";
/// Children killed in one test.
const KILLS: usize = 1000;
/// Stores that are tested in parallel.
const STORES: usize = 4;
/// Children that use one store at the same time.
const AT_ONCE: usize = 2;
/// Longest time until a kill, in microseconds after the start of the child, or after its [`BEGAN`]
/// line.
const LONGEST: u64 = 15_000;
/// Name of the file that uses are appended to.
const UPSTREAM: &str = "upstream";

/// Number of unused things, such as grants, that a test's `check` puts into the store before each
/// life: more than one life can use.
pub(crate) const AT_HAND: usize = 48;

/// The log of the uses of things in the store, one a line; all children append to it.
pub(crate) struct UseLog(fs::File);

impl UseLog {
    /// Announces on stdout that the store is open, and opens the log of uses.
    pub(crate) fn begin(dir: &Path) -> Self {
        println!("\n{BEGAN}");
        Self(OpenOptions::new().append(true).open(dir.join(UPSTREAM)).unwrap())
    }

    /// Appends a line to the log: the child has used up the thing of this name in the store.
    pub(crate) fn note(&mut self, what: &str) {
        self.0.write_all(format!("{what}\n").as_bytes()).unwrap();
    }
}

/// Runs the work of a child process until it is killed. Does nothing in the test run itself, where
/// [`STORE`] is not set.
pub(crate) fn run_until_killed<F: Future<Output = ()>>(work: impl FnOnce(PathBuf) -> F) {
    let Some(dir) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(dir));
    // A child that finishes early blocks here until it is killed, or until the test ends and closes
    // its stdin.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

/// Reads the log of uses: one name for each use so far, by all children of the store.
pub(crate) fn read_uses(dir: &Path) -> Vec<String> {
    fs::read_to_string(dir.join(UPSTREAM)).unwrap().lines().map(str::to_owned).collect()
}

/// Kills 1,000 child processes that run the test of this path. Before each life and after the last
/// one, `check` verifies a store and refills it; it is given its last result, at first 0.
pub(crate) fn kill_1000(test: &str, check: impl Fn(&Path, usize) -> usize + Sync) {
    let used: usize = std::thread::scope(|scope| {
        let stores: Vec<_> = (0..STORES).map(|_| scope.spawn(|| run_lives(test, &check))).collect();
        stores.into_iter().map(|store| store.join().unwrap()).sum()
    });
    assert!(used > KILLS / 10, "{used} uses: the processes are killed before they do anything");
}

/// Runs all lives of one new store: in each, starts [`AT_ONCE`] children and kills them. Returns
/// the number of uses in its log.
fn run_lives(test: &str, check: &impl Fn(&Path, usize) -> usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(UPSTREAM), "").unwrap();
    let mut made = 0;
    for life in 0..KILLS / STORES / AT_ONCE {
        made = check(dir.path(), made);
        let mut children: Vec<Child> = (0..AT_ONCE).map(|_| start_child(test, dir.path())).collect();
        for (n, child) in children.iter_mut().enumerate() {
            // In turn, one child is killed while it starts, and the other while it writes.
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
    check(dir.path(), made);
    read_uses(dir.path()).len()
}

fn start_child(test: &str, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // The test runner knows the test by its path without the crate.
    let (_, name) = test.split_once("::").unwrap();
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(STORE, dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}
