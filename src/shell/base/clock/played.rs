//! Clocks for tests: simulated machines whose time and wall clock a test controls, and processes
//! that run on them.
//!
//! A thread that has entered a [`TestProcess`] reads the clock of that process; every other thread
//! reads the real clocks. In the tests of this crate each thread is a process of its own from its
//! start, on the real machine until it starts a process on a [`TestMachine`]. The thread of a store
//! belongs to the process that opened the store.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::steady::{ClockReading, SteadyClock};

thread_local! {
    static RANDOM: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    static PROCESS: RefCell<Option<TestProcess>> = RefCell::new(cfg!(test).then(|| TestProcess::new(None)));
}

/// A simulated machine whose clocks a test sets.
#[derive(Debug)]
pub struct TestMachine(Mutex<ClockReading>);

impl TestMachine {
    /// Creates a machine that has run for an hour and whose wall clock is right.
    pub fn new() -> Arc<Self> {
        let reading = ClockReading { wall: played_reading().wall, machine: Duration::from_secs(3600) };
        Arc::new(Self(Mutex::new(reading)))
    }

    /// Lets this many seconds pass on both clocks.
    pub fn pass(&self, seconds: u64) {
        let mut reading = self.0.lock();
        reading.wall += Duration::from_secs(seconds);
        reading.machine += Duration::from_secs(seconds);
    }

    /// Sets the wall clock forward by this many seconds, or back if negative.
    pub fn step(&self, seconds: i64) {
        let mut reading = self.0.lock();
        let by = Duration::from_secs(seconds.unsigned_abs());
        reading.wall = if seconds < 0 { reading.wall.saturating_sub(by) } else { reading.wall + by };
    }

    /// Restarts the machine, which resets its monotonic clock. Its processes have to be started
    /// again as well.
    pub fn reboot(&self) {
        self.0.lock().machine = Duration::from_secs(1);
    }

    /// Starts a process on the machine and makes this thread a part of it.
    pub fn start(self: &Arc<Self>) -> TestProcess {
        let process = TestProcess::new(Some(Arc::clone(self)));
        process.enter();
        process
    }
}

/// A process of a test: its clock, and the machine whose time it reads (`None`: the real one).
#[derive(Clone, Debug)]
pub struct TestProcess {
    machine: Option<Arc<TestMachine>>,
    clock: Arc<SteadyClock>,
    is_staged: bool,
}

/// Fills the bytes from the stage's seeded source of randomness. Returns `false` without a stage.
pub(super) fn fill_from_seed(bytes: &mut [u8]) -> bool {
    RANDOM.with_borrow_mut(|random| random.as_mut().map(|random| random.fill(bytes))).is_some()
}

/// Returns whether this thread is a stage, on which work that otherwise has its own thread runs
/// here.
pub fn is_staged() -> bool {
    PROCESS.with_borrow(|process| process.as_ref().is_some_and(|process| process.is_staged))
}

impl TestProcess {
    fn new(machine: Option<Arc<TestMachine>>) -> Self {
        Self { machine, clock: Arc::new(SteadyClock::new()), is_staged: false }
    }

    /// Makes this thread a stage and a new process on the real machine. All randomness comes from
    /// the seed.
    pub fn enter_stage(seed: u64) {
        RANDOM.set(Some(fastrand::Rng::with_seed(seed)));
        Self { is_staged: true, ..Self::new(None) }.enter();
    }

    /// Returns the process that this thread has entered.
    pub fn current() -> Option<Self> {
        PROCESS.with_borrow(Option::clone)
    }

    /// Makes this thread a part of the process.
    pub fn enter(&self) {
        PROCESS.set(Some(self.clone()));
    }
}

/// Reads the real machine's clocks for a test. The wall clock advances with the monotonic clock,
/// even while that one is paused or advanced by hand.
fn played_reading() -> ClockReading {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| (super::wall(), super::now()));
    let (wall, at) = *FIRST;
    let now = super::now();
    let wall = wall.saturating_add(now.saturating_duration_since(at));
    ClockReading { wall: wall.saturating_sub(at.saturating_duration_since(now)), machine: super::uptime() }
}

pub(super) fn reading() -> ClockReading {
    PROCESS.with_borrow(|process| match process {
        None => super::real_reading(),
        Some(TestProcess { machine: Some(machine), .. }) => *machine.0.lock(),
        Some(TestProcess { machine: None, .. }) => played_reading(),
    })
}

pub(super) fn with_steady<T>(read: impl FnOnce(&SteadyClock) -> T) -> T {
    PROCESS.with_borrow(|process| match process {
        None => super::with_real_steady(read),
        Some(process) => read(&process.clock),
    })
}
