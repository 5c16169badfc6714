//! The stage: the whole gateway in one test's thread, on a clock that stands still unless
//! everything waits.
//!
//! A test of the stage reads like one of the real binary, and uses the same tools
//! (`tests/it/tools/mcp.rs`, `setup.rs`, `upstream.rs`). Below them the ground differs: clients,
//! servers and programs are joined by pipes in memory, and every wait of the test runs the runtime
//! of its thread ([`block_on`]). Time is the runtime's and paused. It goes on only while all tasks
//! wait, so a test takes no longer than its work, and a busy machine changes nothing.
//!
//! Random choices come from a seed, which a failure prints and `HEADEND_STAGE_SEED` sets. Those of
//! tokio's `select!` do too where the tests are built with `--cfg tokio_unstable`; no ordinary
//! command needs that flag, so without it the order of branches that are ready at once is tokio's.
//!
//! The database, the writer of the audit log and the maker of snapshots have threads of their own
//! in a daemon and work on this thread here. Commands run in a thread beside, for which time stands
//! still.
#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::needless_pass_by_value,
    clippy::default_trait_access,
    clippy::duplicate_mod,
    dead_code,
    unused_imports,
    reason = "a test fails by panicking, and the tools are those of other tests too"
)]

pub(crate) use headend_shell::stage::replicas;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::base::clock::played::TestProcess;

#[path = "../tests/it/tools/browser.rs"]
mod browser;
#[path = "../tests/it/tools/credentials.rs"]
mod credentials;
#[path = "../tests/fake_upstream/fake.rs"]
mod fake;
mod ground;
mod harness;
#[path = "../tests/it/tools/http.rs"]
mod http;
mod listening;
#[path = "../tests/stage/definitions.rs"]
mod malformed;
#[path = "../tests/it/tools/mcp.rs"]
mod mcp;
pub(crate) mod net;
#[path = "../tests/it/tools/old_client.rs"]
mod old_client;
mod process;
pub(crate) mod program;
#[path = "../tests/it/tools/setup.rs"]
mod setup;
mod stdio;
#[path = "../tests/it/tools/steps.rs"]
mod steps;
pub(crate) mod surroundings;
#[path = "../tests/it/tools/upstream.rs"]
mod upstream;

#[path = "../tests/stage/scenes.rs"]
mod scenes;

/// The variable that sets the seed.
const SEED: &str = "HEADEND_STAGE_SEED";

thread_local! {
    static STAGE: RefCell<Option<Rc<Stage>>> = const { RefCell::new(None) };
}

/// The runtime of a thread and what it logs.
#[derive(Debug)]
struct Stage {
    runtime: Runtime,
    seed: u64,
    log: process::Lines,
    _logging: tracing::subscriber::DefaultGuard,
}

/// A reason for the stage of this thread to stand. It begins with the first and ends with the last.
#[derive(Debug)]
struct StageUse(());

thread_local! {
    static SEATS: Cell<usize> = const { Cell::new(0) };
}

impl StageUse {
    fn take() -> Self {
        if SEATS.get() == 0 {
            enter();
        }
        SEATS.set(SEATS.get() + 1);
        Self(())
    }
}

impl Drop for StageUse {
    fn drop(&mut self) {
        SEATS.set(SEATS.get() - 1);
        if SEATS.get() == 0 {
            drop(STAGE.take());
            net::leave();
            program::leave();
        }
    }
}

/// The choices of a stage that a test makes before its first seat.
#[derive(Clone, Copy, Debug)]
struct StageOptions {
    seed: u64,
    /// Polls of tasks between two of the test; fewer make finer interleavings.
    event_interval: u32,
}

thread_local! {
    static OPTIONS: Cell<Option<StageOptions>> = const { Cell::new(None) };
}

/// The folder for the files of the next stage: in memory, if a test has set options and there is
/// such a folder.
fn base_folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    let in_memory = OPTIONS.get().is_some() && memory.is_dir();
    if in_memory { memory.to_owned() } else { std::env::temp_dir() }
}

/// Makes the next stage of this thread one with these options.
fn set_options(options: StageOptions) {
    OPTIONS.set(Some(options));
}

fn enter() {
    let options = OPTIONS.take();
    let seed = || std::env::var(SEED).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let seed = options.map_or_else(seed, |options| options.seed);
    TestProcess::enter_stage(seed);
    net::enter();
    program::enter();
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    if let Some(options) = options {
        builder.event_interval(options.event_interval);
    }
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    let runtime = builder.build().unwrap();
    let log = process::Lines::default();
    let _logging = tracing::subscriber::set_default(process::subscriber(&log));
    STAGE.set(Some(Rc::new(Stage { runtime, seed, log, _logging })));
}

fn stage() -> Rc<Stage> {
    STAGE.with_borrow(|stage| stage.as_ref().map(Rc::clone)).expect("a `World` or a server is there")
}

/// Whether this thread has a stage.
fn is_set() -> bool {
    STAGE.with_borrow(Option::is_some)
}

/// Waits for something. Everything on the stage goes on meanwhile, and only meanwhile.
fn block_on<F: Future>(future: F) -> F::Output {
    stage().runtime.block_on(future)
}

/// Lets time pass.
fn pass(time: Duration) {
    block_on(async { tokio::time::sleep(time).await });
}

pub(crate) use self::ground::now;

/// Does blocking work in a thread beside. Time stands still while that thread works, and goes on
/// while it sleeps.
fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (started, number) = std::sync::mpsc::channel();
    block_on(async move {
        let mut work = tokio::task::spawn_blocking(move || {
            started.send(rustix::thread::gettid()).unwrap();
            work()
        });
        let number = number.recv().unwrap().as_raw_nonzero();
        let mut asleep = 0;
        let sleeps = || {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
        };
        loop {
            let look = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(2)));
            tokio::select! {
                biased;
                done = &mut work => return done.unwrap(),
                _ = look => {}
            }
            asleep = if sleeps() { asleep + 1 } else { 0 };
            if asleep > 3 {
                tokio::time::advance(Duration::from_millis(20)).await;
            }
        }
    })
}
