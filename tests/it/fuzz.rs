//! Fuzz tests of the binary: peers damage valid dialogues, and properties must hold nevertheless.
//!
//! `mutation` damages bytes by a seed. Answers of upstreams are damaged by the fake server itself
//! over stdio, and by a relay between it and the gateway over HTTP; a client writes raw bytes on
//! every interface. Well-behaved upstreams and clients are served at the same time. A round has a
//! bounded number of steps; `HEADEND_FUZZ_SECONDS` sets the duration of each test instead, and
//! `HEADEND_FUZZ_SEED` repeats a printed seed.

use std::time::{Duration, Instant};

mod clients;
mod lines;
#[path = "../fuzz/mutation.rs"]
mod mutation;
mod relay;
mod scene;
mod upstreams;

/// The extent of a test.
#[derive(Debug)]
struct Round {
    seed: u64,
    steps: u64,
    least: u64,
    until: Instant,
}

impl Round {
    /// Starts a round of this many steps, or longer if the environment says so.
    fn new(name: &str, least: u64) -> Self {
        let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
        let seed = number("HEADEND_FUZZ_SEED").unwrap_or(1);
        let seconds = number("HEADEND_FUZZ_SECONDS").unwrap_or(0);
        eprintln!("{name}: HEADEND_FUZZ_SEED={seed}");
        Self { seed, steps: 0, least, until: Instant::now() + Duration::from_secs(seconds) }
    }

    /// Returns the number of the next step; `None` at the end.
    fn step(&mut self) -> Option<u64> {
        self.steps += 1;
        (self.steps <= self.least || Instant::now() < self.until).then_some(self.steps)
    }
}
