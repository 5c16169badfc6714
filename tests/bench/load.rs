//! The closed-loop load generator: N connections, one call in flight on each, every answer checked.
//!
//! One thread, so that the target has the other CPUs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::http::BenchConnection;
use crate::process::MeasuredProcess;
use crate::scenario::{BenchEndpoint, LoadEra, LoadSession, Scenario, StampedCall, first_stamp};

/// Time of calls before the first one counts.
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);

/// Longest time of a load beyond its measured time: a target that stops answering must not stop the
/// run.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(crate) struct LoadOptions {
    /// The MCP endpoint.
    #[arg(long)]
    url: String,
    /// A file with the bearer token to send.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Kind of client to play.
    #[arg(long, default_value = "legacy")]
    era: LoadEra,
    /// Number of connections, each with one call in flight.
    #[arg(long, default_value_t = 16)]
    in_flight: u64,
    /// Measured time, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The call to make.
    #[arg(long, default_value = "call")]
    scenario: Scenario,
    /// Prefixes of the tools' names; with several, connections take turns.
    #[arg(long, value_delimiter = ',', default_value = "")]
    prefix: Vec<String>,
    /// Number of tools that a list must have.
    #[arg(long, default_value_t = 4)]
    tools: usize,
    /// Also report this process's CPU time per call.
    #[arg(long)]
    pid: Option<u32>,
}

/// One load on one target.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    pub(crate) target: BenchEndpoint,
    pub(crate) era: LoadEra,
    pub(crate) scenario: Scenario,
    pub(crate) in_flight: u64,
    /// Time of calls before the first one counts.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// Prefixes of the tools' names: connections take turns. Empty: no prefix.
    pub(crate) prefixes: Vec<String>,
    /// Number of tools that a list must have.
    pub(crate) tools: usize,
    pub(crate) process: Option<MeasuredProcess>,
}

/// Figures of one load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LoadSample {
    pub(crate) calls: usize,
    pub(crate) req_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us_per_call: Option<f64>,
}

pub(crate) fn main(options: &LoadOptions) -> anyhow::Result<()> {
    let plan = LoadPlan {
        target: BenchEndpoint::new(&options.url, options.token_file.as_deref())?,
        era: options.era,
        scenario: options.scenario,
        in_flight: options.in_flight,
        warm_up: WARM_UP,
        measured: Duration::try_from_secs_f64(options.seconds).context("read --seconds")?,
        prefixes: options.prefix.clone(),
        tools: options.tools,
        process: options.pid.map(MeasuredProcess::alone),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let sample = runtime.block_on(measure(&plan))?;
    println!("{}", serde_json::to_string(&sample).context("print the figures")?);
    Ok(())
}

/// Puts one load on its target.
///
/// # Errors
/// At the first wrong answer, when a connection breaks, and when answers do not arrive.
pub(crate) async fn measure(plan: &LoadPlan) -> anyhow::Result<LoadSample> {
    let limit = plan.warm_up + plan.measured + GRACE;
    timeout(limit, drive(plan)).await.with_context(|| format!("answers still missing after {limit:?}"))?
}

async fn drive(plan: &LoadPlan) -> anyhow::Result<LoadSample> {
    let mut first = BenchConnection::open(&plan.target.authority).await?;
    let session = LoadSession::open(plan.target.clone(), plan.era, &mut first).await?;
    let mut callers = Vec::new();
    for number in 0..plan.in_flight {
        callers.push(LoadCaller::new(plan, &session, number).await?);
    }
    let start = Instant::now() + plan.warm_up;
    let window = Window { start, end: start + plan.measured };
    let mut running = JoinSet::new();
    for caller in callers {
        running.spawn(caller.run(window));
    }
    // The clock of the CPU time is read while the callers run, at both ends of the window.
    let cpu = async {
        let Some(process) = plan.process else {
            return anyhow::Ok(None);
        };
        sleep_until(window.start).await;
        let before = process.cpu()?;
        sleep_until(window.end).await;
        Ok(Some(process.cpu()?.saturating_sub(before)))
    };
    let latencies = async {
        let mut all = Vec::new();
        while let Some(ended) = running.join_next().await {
            all.extend(ended.context("run a caller")??);
        }
        anyhow::Ok(all)
    };
    let (cpu, latencies) = tokio::try_join!(cpu, latencies)?;
    session.close(&mut first).await?;
    LoadSample::new(latencies, plan.measured, cpu)
}

/// The time in which calls count.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: Instant,
    end: Instant,
}

/// One connection and its requests.
#[derive(Debug)]
struct LoadCaller {
    connection: BenchConnection,
    session: LoadSession,
    /// The call to make; `None` if whole lists are read.
    call: Option<StampedCall>,
    tools: usize,
    id: u64,
}

impl LoadCaller {
    async fn new(plan: &LoadPlan, session: &LoadSession, number: u64) -> anyhow::Result<Self> {
        let turn = usize::try_from(number).unwrap_or_default().checked_rem(plan.prefixes.len());
        let prefix = turn.and_then(|turn| plan.prefixes.get(turn)).map_or("", String::as_str);
        Ok(Self {
            connection: BenchConnection::open(&plan.target.authority).await?,
            session: session.clone(),
            call: StampedCall::new(session, plan.scenario, number, prefix),
            tools: plan.tools,
            id: first_stamp(number),
        })
    }

    /// Makes calls until the window ends. Returns the time of each call that ended within it, in
    /// nanoseconds.
    async fn run(mut self, window: Window) -> anyhow::Result<Vec<u32>> {
        let mut latencies = Vec::new();
        let mut before = Instant::now();
        while before < window.end {
            self.once().await?;
            let now = Instant::now();
            if now >= window.start && now < window.end {
                latencies.push(u32::try_from((now - before).as_nanos()).unwrap_or(u32::MAX));
            }
            before = now;
        }
        Ok(latencies)
    }

    async fn once(&mut self) -> anyhow::Result<()> {
        if let Some(call) = &mut self.call {
            return call.make(&mut self.connection).await;
        }
        self.id += 1;
        let tools = self.session.count_tools(&mut self.connection, self.id).await?;
        ensure!(tools == self.tools, "{tools} tools listed, not {}", self.tools);
        Ok(())
    }
}

impl LoadSample {
    fn new(mut latencies: Vec<u32>, measured: Duration, cpu: Option<Duration>) -> anyhow::Result<Self> {
        ensure!(!latencies.is_empty(), "no call ended within {measured:?}");
        latencies.sort_unstable();
        let calls = latencies.len();
        let percentile = |percent: usize| {
            let nanoseconds = latencies.get(calls * percent / 100).copied().unwrap_or_default();
            f64::from(nanoseconds) / 1e3
        };
        let count = calls as f64;
        Ok(Self {
            calls,
            req_per_s: count / measured.as_secs_f64(),
            p50_us: percentile(50),
            p99_us: percentile(99),
            cpu_us_per_call: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / count),
        })
    }
}
