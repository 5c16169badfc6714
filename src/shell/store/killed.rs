//! Processes that die at any moment, for tests of the things that must happen once: a test starts itself again as processes that
//! do nothing but use them, two at a time on one store, and kills them with SIGKILL. A use is a line in the file `upstream` of the
//! store's folder, written only after the store has said yes.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::base::clock;

/// Names the store to a process that is to die.
const STORE: &str = "HEADEND_TEST_STORE";
/// The line of a process that has opened its store.
const BEGAN: &str = "began";
const KILLS: usize = 1000;
/// Stores that are used side by side, and processes on each.
const STORES: usize = 4;
const AT_ONCE: usize = 2;
/// Kills come up to so many microseconds after a process was started, or after it began its work.
const LONGEST: u64 = 15_000;
const UPSTREAM: &str = "upstream";

/// Things to use that are there at the start of each life; more than one life can use.
pub(crate) const AT_HAND: usize = 48;

/// The uses of a process that is to die.
pub(crate) struct Uses(fs::File);

impl Uses {
    /// The store has been opened.
    pub(crate) fn begin(dir: &Path) -> Self {
        println!("\n{BEGAN}");
        Self(OpenOptions::new().append(true).open(dir.join(UPSTREAM)).unwrap())
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.0.write_all(format!("{what}\n").as_bytes()).unwrap();
    }
}

/// The work of a process that is to die, in a test that does nothing when it is run as a test.
pub(crate) fn until_killed<F: Future<Output = ()>>(work: impl FnOnce(PathBuf) -> F) {
    let Some(dir) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(dir));
    // A process that is done early waits for its end, or for that of the test.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

/// All uses so far.
pub(crate) fn uses(dir: &Path) -> Vec<String> {
    fs::read_to_string(dir.join(UPSTREAM)).unwrap().lines().map(str::to_owned).collect()
}

/// Kills 1,000 processes that run the test of this path. Before each life and after the last one, `check` looks at a store and
/// makes up for what was used; it is given its last result, and 0 at first.
pub(crate) fn kill_1000(test: &str, check: impl Fn(&Path, usize) -> usize + Sync) {
    let used: usize = std::thread::scope(|scope| {
        let stores: Vec<_> = (0..STORES).map(|_| scope.spawn(|| lives(test, &check))).collect();
        stores.into_iter().map(|store| store.join().unwrap()).sum()
    });
    assert!(used > KILLS / 10, "{used} uses: the processes are killed before they do anything");
}

/// Lives of one store; the number of uses.
fn lives(test: &str, check: &impl Fn(&Path, usize) -> usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(UPSTREAM), "").unwrap();
    let mut made = 0;
    for life in 0..KILLS / STORES / AT_ONCE {
        made = check(dir.path(), made);
        let mut children: Vec<Child> = (0..AT_ONCE).map(|_| start(test, dir.path())).collect();
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
    check(dir.path(), made);
    uses(dir.path()).len()
}

fn start(test: &str, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // The name that the test runner knows has no crate in front.
    let (_, name) = test.split_once("::").unwrap();
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(STORE, dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}
