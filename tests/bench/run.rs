//! The whole table: every target in turn, round by round, so that ratios compare samples taken
//! within seconds.

mod fleet;
pub(crate) mod instructions;
mod quiet;
mod single;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::budget::{self, Singles};
use crate::load::{self, LoadPlan, WARM_UP};
use crate::peers::PeerFile;
use crate::picture;
use crate::run::fleet::{BenchRow, BenchTarget, Fleet, ROWS};
use crate::run::quiet::Quiet;
use crate::table::{self, Results};

#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// The gateway's binary; by default the one built beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Measured time of each target in each round, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of rounds in which each target is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only rows with one of these in their names; `memory`, `start`, `decide` and `instructions`
    /// name the figures without a load.
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,
    /// A file that says how to start other gateways, which are measured too.
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Also draws the cost of a call.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl RunOptions {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }

    /// Returns the gateway to measure; `None` when none was built and none was named.
    fn gateway(&self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(binary) = &self.binary {
            ensure!(binary.is_file(), "no gateway at {}", binary.display());
            return Ok(Some(binary.clone()));
        }
        let own = std::env::current_exe().context("find this program")?;
        let beside = own.parent().and_then(|examples| examples.parent()).map(|folder| folder.join("headend"));
        let found = beside.filter(|binary| binary.is_file());
        if found.is_none() {
            eprintln!(
                "no gateway was built beside this program: measuring the rest (`cargo build --release`, or --binary)"
            );
        }
        Ok(found)
    }
}

pub(crate) fn main(options: &RunOptions) -> anyhow::Result<()> {
    raise_file_limit();
    until_stopped(run(options))
}

/// Runs `work` to its end, or until SIGTERM or SIGINT.
pub(crate) fn until_stopped(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
        // Ending here, and not by the signal, ends the children too.
        tokio::select! {
            done = Box::pin(work) => done,
            _ = terminate.recv() => anyhow::bail!("terminated"),
            _ = interrupt.recv() => anyhow::bail!("interrupted"),
        }
    })
}

async fn run(options: &RunOptions) -> anyhow::Result<()> {
    let measured = Duration::try_from_secs_f64(options.seconds).context("read --seconds")?;
    let binary = options.gateway()?;
    let (mut results, mut singles, mut problems) = (Results::default(), Singles::default(), Vec::new());
    singles.is_dist = binary.as_ref().is_some_and(|binary| binary.components().any(|part| part.as_os_str() == "dist"));
    if options.wants("memory") {
        single::memory(binary.as_deref(), &mut singles, &mut problems).await?;
    }
    if options.wants("start")
        && let Some(binary) = &binary
        && let Err(error) = single::start(binary, options.rounds, &mut singles).await
    {
        problems.push(format!("start: {error:#}"));
    }
    if options.wants("decide")
        && let Some(binary) = &binary
        && let Err(error) = single::decide(binary, &mut singles)
    {
        problems.push(format!("decide: {error:#}"));
    }
    if options.wants("instructions")
        && let Some(binary) = &binary
    {
        instructions::count(binary, &mut singles, &mut problems).await;
    }
    let rows: Vec<&BenchRow> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    if !rows.is_empty() {
        let peers = options.peers.as_deref().map(PeerFile::read).transpose()?.unwrap_or_default();
        let fleet = Fleet::start(binary.as_deref(), &rows, &peers, &mut problems).await?;
        for row in rows {
            measure(row, &fleet, measured, options.rounds, &mut results).await;
        }
    }
    problems.extend(results.problems());
    let build = if singles.is_dist { "dist" } else { "another" };
    println!("{}; {build} build; {} rounds of {} s, medians\n", table::machine(), options.rounds, options.seconds);
    println!("{}\n{}", budget::markdown(&results, &singles), results.markdown());
    if let Some(file) = &options.svg {
        let drawn = picture::svg(&results, &table::machine()).context("draw: the calls were not measured")?;
        std::fs::write(file, drawn).with_context(|| format!("write {}", file.display()))?;
    }
    for problem in &problems {
        eprintln!("failed: {problem}");
    }
    ensure!(problems.is_empty(), "{} figures could not be measured", problems.len());
    Ok(())
}

/// Measures all rounds of one row.
async fn measure(row: &BenchRow, fleet: &Fleet, measured: Duration, rounds: usize, results: &mut Results) {
    let upstream = fleet.seat(BenchTarget::Direct).map(|seat| seat.process);
    let _quiet = row.quiet.then(|| Quiet::begin(upstream));
    let seats = fleet.seats(row);
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", row.name);
        // Targets rotate: none is always the first, when the machine has just rested, or always
        // behind the same target.
        let (before, after) = seats.split_at((round - 1) % seats.len().max(1));
        for seat in after.iter().chain(before) {
            if results.has_failed(row.name, &seat.label) {
                continue;
            }
            let plan = LoadPlan {
                target: seat.target.clone(),
                era: row.era,
                scenario: row.scenario,
                in_flight: row.in_flight,
                warm_up: WARM_UP,
                measured,
                prefixes: seat.prefixes.clone(),
                tools: seat.tools,
                process: Some(seat.process),
            };
            results.record(row.name, &seat.label, load::measure(&plan).await);
        }
    }
}

/// A thousand sessions take a thousand connections here and two thousand in the floor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
}
