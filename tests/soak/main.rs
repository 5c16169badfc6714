//! The soak: the real daemon between clients and servers that come and go, behave and misbehave,
//! for as long as it is told.
//!
//! `cargo build --release --workspace --bins --examples && target/release/examples/soak` plays a
//! minute of it; `--seconds 3600` plays an hour. Prints a line of figures for each sample, a table
//! of requests by kind, and the verdicts; ends with 1 if one of them fails.
//!
//! | module | plays |
//! |---|---|
//! | `stage` | the daemon, its configuration, and the servers behind it |
//! | `pace` | the whole run, from the first start to the verdicts |
//! | `visit`, `link`, `wire` | one client from its first connection to its last |
//! | `hostile` | clients that send malformed bytes, or none |
//! | `disorder` | servers that die, reloads, refused configurations, restarts of the daemon |
//! | `ledger` | one end for each request |
//! | `sample`, `verdict` | figures over time, and what follows from them |

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::large_futures,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program of its own: results go to stdout, notes to stderr; it reads the real clock, and tasks end with its runtime"
)]

mod disorder;
mod hostile;
mod ledger;
mod link;
mod pace;
mod sample;
mod stage;
mod verdict;
mod visit;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Plays clients and servers that come and go around a real daemon, and counts what is lost or left
/// behind.
#[derive(Clone, Debug, Parser)]
#[command(name = "soak")]
struct SoakOptions {
    /// Duration of the load, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Client sessions that begin in a second.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Sessions at once; further ones wait until one has ended.
    #[arg(long, default_value_t = 600)]
    open: usize,
    /// Seconds between two samples.
    #[arg(long, default_value_t = 10)]
    sample: u64,
    /// Seconds from the end of the last client until everything must be as it was at the start.
    /// Below 60, this is not judged.
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Reloads in a minute; each replaces a server that no counted call uses.
    #[arg(long, default_value_t = 30)]
    reloads: u64,
    /// Restarts of the daemon, evenly spread over the run.
    #[arg(long, default_value_t = 0)]
    restarts: u64,
    /// Growth of the resident memory that is allowed after the tenth minute, or after the first
    /// sixth of a shorter run, in percent. Not judged in runs below two minutes.
    #[arg(long, default_value_t = 5.0)]
    growth: f64,
    /// Repeats a run's random choices, not its timing.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leaves hostile clients and servers out.
    #[arg(long)]
    tame: bool,
    /// Daemon to run; by default the one that was built beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Folder for the daemon's files, kept at the end; by default a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
}

impl SoakOptions {
    fn settling(&self) -> Duration {
        Duration::from_secs(self.settle)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = SoakOptions::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let passed = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
        // Ending here, and not by the signal, ends the servers too.
        tokio::select! {
            done = Box::pin(pace::run(options)) => done,
            _ = terminate.recv() => anyhow::bail!("terminated"),
            _ = interrupt.recv() => anyhow::bail!("interrupted"),
        }
    })?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
