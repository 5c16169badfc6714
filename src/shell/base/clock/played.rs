//! Clocks that tests play: a machine whose time they let pass and whose wall clock they set, and
//! processes on it.
//!
//! A thread that enters a [`Process`] reads its clock; every other thread reads the real ones. In
//! the tests of this crate each thread is a process of its own from its start, on the real machine
//! until it starts one on a [`Machine`]. The thread of a store belongs to the process that opened
//! it.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::steady::{Reading, SteadyClock};

thread_local! {
    static RANDOM: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    static PROCESS: RefCell<Option<Process>> = RefCell::new(cfg!(test).then(|| Process::new(None)));
}

/// A machine whose clocks a test sets.
#[derive(Debug)]
pub struct Machine(Mutex<Reading>);

impl Machine {
    /// A machine that has run for an hour and whose wall clock is right.
    pub fn new() -> Arc<Self> {
        let reading = Reading { wall: played_reading().wall, machine: Duration::from_secs(3600) };
        Arc::new(Self(Mutex::new(reading)))
    }

    /// Lets so many seconds pass.
    pub fn pass(&self, seconds: u64) {
        let mut reading = self.0.lock();
        reading.wall += Duration::from_secs(seconds);
        reading.machine += Duration::from_secs(seconds);
    }

    /// Sets the wall clock forward, or back, by so many seconds.
    pub fn step(&self, seconds: i64) {
        let mut reading = self.0.lock();
        let by = Duration::from_secs(seconds.unsigned_abs());
        reading.wall = if seconds < 0 { reading.wall.saturating_sub(by) } else { reading.wall + by };
    }

    /// Starts the machine again. Its processes have to be started again as well.
    pub fn reboot(&self) {
        self.0.lock().machine = Duration::from_secs(1);
    }

    /// Starts a process and enters it.
    pub fn start(self: &Arc<Self>) -> Process {
        let process = Process::new(Some(Arc::clone(self)));
        process.enter();
        process
    }
}

/// A process of a test: its clock, and the machine that it reads; the real one where there is none.
#[derive(Clone, Debug)]
pub struct Process {
    machine: Option<Arc<Machine>>,
    clock: Arc<SteadyClock>,
    is_staged: bool,
}

/// Fills bytes from the stage's own source of randomness; `false` off stage.
pub(super) fn drawn(bytes: &mut [u8]) -> bool {
    RANDOM.with_borrow_mut(|random| random.as_mut().map(|random| random.fill(bytes))).is_some()
}

/// Whether this thread is a stage: what has threads of its own elsewhere works on this thread.
pub fn is_staged() -> bool {
    PROCESS.with_borrow(|process| process.as_ref().is_some_and(|process| process.is_staged))
}

impl Process {
    fn new(machine: Option<Arc<Machine>>) -> Self {
        Self { machine, clock: Arc::new(SteadyClock::new()), is_staged: false }
    }

    /// Makes this thread a stage, and a new process on the real machine. All randomness comes from
    /// the seed.
    pub fn enter_stage(seed: u64) {
        RANDOM.set(Some(fastrand::Rng::with_seed(seed)));
        Self { is_staged: true, ..Self::new(None) }.enter();
    }

    /// The process that this thread has entered.
    pub fn current() -> Option<Self> {
        PROCESS.with_borrow(Option::clone)
    }

    /// Makes this thread one of the process.
    pub fn enter(&self) {
        PROCESS.set(Some(self.clone()));
    }
}

/// The real machine's clocks in a test; the wall clock goes as the monotonic one does, paused or
/// not.
fn played_reading() -> Reading {
    static FIRST: LazyLock<(Duration, Instant)> = LazyLock::new(|| (super::wall(), super::now()));
    let (wall, at) = *FIRST;
    let now = super::now();
    let wall = wall.saturating_add(now.saturating_duration_since(at));
    Reading { wall: wall.saturating_sub(at.saturating_duration_since(now)), machine: super::uptime() }
}

pub(super) fn reading() -> Reading {
    PROCESS.with_borrow(|process| match process {
        None => super::real_reading(),
        Some(Process { machine: Some(machine), .. }) => *machine.0.lock(),
        Some(Process { machine: None, .. }) => played_reading(),
    })
}

pub(super) fn with_steady<T>(read: impl FnOnce(&SteadyClock) -> T) -> T {
    PROCESS.with_borrow(|process| match process {
        None => super::with_real_steady(read),
        Some(process) => read(&process.clock),
    })
}
