//! Limits how many tests with peers run at once.
//!
//! Peers have a patience of their own, of some seconds, so with too many of them at once a test
//! would measure the machine. Most of the time they wait, so as many as the machine has cores leave
//! it idle: a machine that rests takes one more.

use std::fs;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which the machine is observed before it takes more tests than it has cores.
const LOOK: Duration = Duration::from_millis(750);
/// Most tests for each core.
const MOST: usize = 4;

/// The turn of one test, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct TestTurn;

struct Playing {
    tests: usize,
    /// Time at which the last test began.
    last: Option<Instant>,
}

static PLAYING: (Mutex<Playing>, Condvar) = (Mutex::new(Playing { tests: 0, last: None }), Condvar::new());

impl TestTurn {
    pub(crate) fn wait() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut look = (Instant::now(), Ticks::read());
        let mut playing = PLAYING.0.lock().unwrap();
        loop {
            let has_room = playing.tests < MOST * cores && look.0.elapsed() >= LOOK;
            // A test that began during the look is not in its figures.
            let is_apart = has_room && playing.last.is_none_or(|last| last < look.0);
            if playing.tests < cores || (is_apart && look.1.most_were_idle()) {
                playing.tests += 1;
                playing.last = Some(Instant::now());
                return Self;
            }
            if look.0.elapsed() >= LOOK {
                look = (Instant::now(), Ticks::read());
            }
            playing = PLAYING.1.wait_timeout(playing, LOOK).unwrap().0;
        }
    }
}

impl Drop for TestTurn {
    fn drop(&mut self) {
        PLAYING.0.lock().unwrap_or_else(PoisonError::into_inner).tests -= 1;
        PLAYING.1.notify_one();
    }
}

/// Time of all cores since the machine's start.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    /// Reads the times of the machine; zero if the system does not tell.
    fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let numbers: Vec<u64> = first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // The last two of the ten numbers are contained in the first two.
        Self { all: numbers.iter().take(8).sum(), idle: numbers.iter().skip(3).take(2).sum() }
    }

    /// Returns whether the cores were idle for most of the time since these figures.
    fn most_were_idle(self) -> bool {
        let now = Self::read();
        now.all > self.all && (now.idle - self.idle) * 2 > now.all - self.all
    }
}
