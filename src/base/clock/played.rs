//! Clocks that tests play: a machine whose time they let pass and whose wall clock they set, and processes on it.
//!
//! Each test thread is a process of its own, on the real machine until it starts one on a [`Machine`]. The thread of a store belongs
//! to the process that opened it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::steady::{Reading, SteadyClock};

thread_local! {
    static RANDOM: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    static PROCESS: RefCell<Process> = RefCell::new(Process { machine: None, clock: Arc::new(SteadyClock::new()), is_staged: false });
}

/// A machine whose clocks a test sets.
#[derive(Debug)]
pub(crate) struct Machine(Mutex<Reading>);

impl Machine {
    /// A machine that has run for an hour and whose wall clock is right.
    pub(crate) fn new() -> Arc<Self> {
        let reading = Reading { wall: super::real_reading().wall, machine: Duration::from_secs(3600) };
        Arc::new(Self(Mutex::new(reading)))
    }

    /// Lets so many seconds pass.
    pub(crate) fn pass(&self, seconds: u64) {
        let mut reading = self.0.lock();
        reading.wall += Duration::from_secs(seconds);
        reading.machine += Duration::from_secs(seconds);
    }

    /// Sets the wall clock forward, or back, by so many seconds.
    pub(crate) fn step(&self, seconds: i64) {
        let mut reading = self.0.lock();
        let by = Duration::from_secs(seconds.unsigned_abs());
        reading.wall = if seconds < 0 { reading.wall.saturating_sub(by) } else { reading.wall + by };
    }

    /// Starts the machine again. Its processes have to be started again as well.
    pub(crate) fn reboot(&self) {
        self.0.lock().machine = Duration::from_secs(1);
    }

    /// Starts a process and enters it.
    pub(crate) fn start(self: &Arc<Self>) -> Process {
        let process =
            Process { machine: Some(Arc::clone(self)), clock: Arc::new(SteadyClock::new()), is_staged: false };
        process.enter();
        process
    }
}

/// A process of a test: its clock, and the machine that it reads; the real one where there is none.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    machine: Option<Arc<Machine>>,
    clock: Arc<SteadyClock>,
    is_staged: bool,
}

/// Fills bytes from the stage's own source of randomness; `false` off stage.
pub(super) fn drawn(bytes: &mut [u8]) -> bool {
    RANDOM.with_borrow_mut(|random| random.as_mut().map(|random| random.fill(bytes))).is_some()
}

/// Whether this thread is a stage: what has threads of its own elsewhere works on this thread.
pub(crate) fn is_staged() -> bool {
    PROCESS.with_borrow(|process| process.is_staged)
}

impl Process {
    /// Makes this thread a stage, and a new process on the real machine. All randomness comes from
    /// the seed.
    pub(crate) fn enter_stage(seed: u64) {
        RANDOM.set(Some(fastrand::Rng::with_seed(seed)));
        Self { machine: None, clock: Arc::new(SteadyClock::new()), is_staged: true }.enter();
    }

    /// The process that this thread belongs to.
    pub(crate) fn current() -> Self {
        PROCESS.with_borrow(Self::clone)
    }

    /// Makes this thread one of the process.
    pub(crate) fn enter(&self) {
        PROCESS.set(self.clone());
    }
}

pub(super) fn reading() -> Reading {
    PROCESS
        .with_borrow(|process| process.machine.as_ref().map_or_else(super::real_reading, |machine| *machine.0.lock()))
}

pub(super) fn with_steady<T>(read: impl FnOnce(&SteadyClock) -> T) -> T {
    PROCESS.with_borrow(|process| read(&process.clock))
}
