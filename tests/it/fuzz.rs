//! Peers that damage valid dialogues, and the properties that must hold all the same.
//!
//! `mutation` damages bytes by a seed. The fake server itself damages an upstream's answers over stdio, and a relay
//! between it and the gateway over HTTP; a client is a writer of raw bytes on every face. A well-behaved upstream and
//! well-behaved clients are served at the same time. A round makes a bounded number of steps; `HEADEND_FUZZ_SECONDS`
//! runs each test for that long, `HEADEND_FUZZ_SEED` repeats a printed seed.

use std::time::{Duration, Instant};

mod clients;
mod lines;
#[path = "../fuzz/mutation.rs"]
mod mutation;
mod relay;
mod scene;
mod upstreams;

/// Duration of a test.
#[derive(Debug)]
struct Round {
    seed: u64,
    steps: u64,
    least: u64,
    until: Instant,
}

impl Round {
    /// A round of so many steps, or longer if the environment says so.
    fn new(name: &str, least: u64) -> Self {
        let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
        let seed = number("HEADEND_FUZZ_SEED").unwrap_or(1);
        let seconds = number("HEADEND_FUZZ_SECONDS").unwrap_or(0);
        eprintln!("{name}: HEADEND_FUZZ_SEED={seed}");
        Self { seed, steps: 0, least, until: Instant::now() + Duration::from_secs(seconds) }
    }

    /// The number of the next step; `None` at the end.
    fn step(&mut self) -> Option<u64> {
        self.steps += 1;
        (self.steps <= self.least || Instant::now() < self.until).then_some(self.steps)
    }
}
