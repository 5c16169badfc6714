//! Instructions and allocations of one call, counted by callgrind: figures that hardly move with
//! the machine.
//!
//! For each path of a call the gateway runs twice, with a few calls and with many, one after the
//! other. Start and end cost the same both times, so the difference is the cost of the calls. A
//! stdio upstream is not counted: the gateway starts it by running its own program, which under
//! callgrind is another one.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::auth::BenchAuth;
use crate::budget::{
    CallCost, GRANTED, JWT, LEGACY_TO_LEGACY, LEGACY_TO_MODERN, LONG_ARGUMENT, MODERN_TO_LEGACY, MODERN_TO_MODERN,
    RULES, Singles, TOKEN,
};
use crate::gateway::{BenchSetup, consent, on_path};
use crate::http::BenchConnection;
use crate::run::fleet::{TOOL, TOOLS, start_upstreams};
use crate::scenario::{LoadEra, LoadSession, Scenario, StampedCall};

/// Growth of a call's instructions at which [`main`] fails, in percent. Two counts of one program
/// differ by less than one.
const MAX_GROWTH: f64 = 3.0;

#[derive(Debug, clap::Args)]
pub(crate) struct InstructionOptions {
    /// The gateway's binary.
    #[arg(long)]
    binary: PathBuf,
    /// An earlier output of this command; fails when a call takes over 3 % more instructions now.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Also tell so many functions that take the most of a call, where the binary has their names.
    #[arg(long, default_value_t = 0)]
    functions: usize,
    /// Only the path of this name.
    #[arg(long)]
    only: Option<String>,
}

/// Calls of the shorter run, in which caches fill and buffers grow.
const FEW: u32 = 300;

/// Number of calls that the longer run makes more.
const MORE: u32 = 1000;

/// Longest time until a gateway under callgrind ends.
const STOP: Duration = Duration::from_secs(60);

/// A path of a call: the eras of the client and of the upstream, and the gateway's policy.
struct CallPath {
    name: &'static str,
    era: LoadEra,
    upstream: &'static str,
    scenario: Scenario,
    settings: PathSettings,
}

enum PathSettings {
    Plain,
    /// A policy of so many rules.
    Rules(usize),
    /// The tool needs an approval and has a grant.
    Granted,
    /// Clients present a credential.
    Authenticated(BenchAuth),
}

const fn way(name: &'static str, era: LoadEra, upstream: &'static str) -> CallPath {
    CallPath { name, era, upstream, scenario: Scenario::Call, settings: PathSettings::Plain }
}

const fn authenticated(name: &'static str, auth: BenchAuth) -> CallPath {
    CallPath { settings: PathSettings::Authenticated(auth), ..way(name, LoadEra::Legacy, "legacy") }
}

const WAYS: [CallPath; 7] = [
    way(LEGACY_TO_LEGACY, LoadEra::Legacy, "legacy"),
    way(MODERN_TO_MODERN, LoadEra::Modern, "both"),
    way(LEGACY_TO_MODERN, LoadEra::Legacy, "both"),
    way(MODERN_TO_LEGACY, LoadEra::Modern, "legacy"),
    CallPath { scenario: Scenario::Arg64k, ..way(LONG_ARGUMENT, LoadEra::Legacy, "legacy") },
    authenticated(TOKEN, BenchAuth::Token),
    authenticated(JWT, BenchAuth::Jwt),
];

/// The first path with a larger policy. The gate leaves these out. Many upstreams are not counted:
/// the cost of their starts varies by a fifth of the cost of all calls.
const LOADED: [CallPath; 2] = [
    CallPath { settings: PathSettings::Granted, ..way(GRANTED, LoadEra::Legacy, "legacy") },
    CallPath { settings: PathSettings::Rules(100), ..way(RULES, LoadEra::Legacy, "legacy") },
];

/// Counts every path; failures are added to `problems`. Without valgrind there are no figures.
pub(crate) async fn count(binary: &Path, singles: &mut Singles, problems: &mut Vec<String>) {
    if !on_path("valgrind") {
        eprintln!("valgrind is not installed: instructions per call are left out");
        return;
    }
    for way in WAYS.iter().chain(&LOADED) {
        eprintln!("instructions: {}", way.name);
        match per_call(binary, way).await {
            Ok((count, _)) => singles.counts.push((way.name, count)),
            Err(error) => problems.push(format!("instructions, {}: {error:#}", way.name)),
        }
    }
}

/// Prints the instructions of each path of a call, and compares them with an earlier output.
pub(crate) async fn main(options: &InstructionOptions) -> anyhow::Result<()> {
    ensure!(on_path("valgrind"), "valgrind is not installed");
    let before = match &options.against {
        Some(file) => Some(fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?),
        None => None,
    };
    let mut grown = Vec::new();
    let ways = WAYS.iter().chain(LOADED.iter().filter(|_| options.only.is_some()));
    for way in ways.filter(|way| options.only.as_ref().is_none_or(|only| only == way.name)) {
        let (count, functions) =
            per_call(&options.binary, way).await.with_context(|| format!("count: {}", way.name))?;
        println!("{:>8.0} {}", count.instructions, way.name);
        for (name, cost) in functions.iter().take(options.functions) {
            println!("  {cost:>8.0} {name}");
        }
        if let Some(before) = &before {
            let growth = growth(before, way.name, count.instructions)?;
            eprintln!("{growth:+.1} %: {}", way.name);
            if growth > MAX_GROWTH {
                grown.push(way.name);
            }
        }
    }
    if !grown.is_empty() {
        bail!("more than {MAX_GROWTH} % more instructions for a call: {}", grown.join(", "));
    }
    Ok(())
}

/// Returns the growth over the figure that was printed before, in percent.
fn growth(before: &str, name: &str, now: f64) -> anyhow::Result<f64> {
    let mut figures = before.lines().filter_map(|line| line.trim_start().split_once(' '));
    let figure = figures.find(|(_, of)| *of == name).and_then(|(figure, _)| figure.parse::<f64>().ok());
    let figure = figure.with_context(|| format!("no earlier figure for: {name}"))?;
    Ok((now / figure - 1.0) * 100.0)
}

/// Counts the cost of one call, and of each function in it, the most expensive first.
async fn per_call(binary: &Path, way: &CallPath) -> anyhow::Result<(CallCost, Vec<(String, f64)>)> {
    let few = run_under_callgrind(binary, way, FEW).await?;
    let many = run_under_callgrind(binary, way, FEW + MORE).await?;
    let (fewer, of_fewer) = read(&few).context("callgrind wrote no total")?;
    let (more, of_more) = read(&many).context("callgrind wrote no total")?;
    let difference = |of: fn(&CallCost) -> f64| (of(&more) - of(&fewer)) / f64::from(MORE);
    let count = CallCost {
        instructions: difference(|count| count.instructions),
        sha: difference(|count| count.sha),
        allocations: difference(|count| count.allocations),
    };
    let before = |name: &str| of_fewer.get(name).copied().unwrap_or_default();
    let functions = of_more.into_iter().map(|(name, cost)| (name.to_owned(), (cost - before(name)) / f64::from(MORE)));
    let mut functions: Vec<(String, f64)> = functions.collect();
    functions.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    Ok((count, functions))
}

/// Runs a gateway under callgrind for so many calls, and returns callgrind's output.
async fn run_under_callgrind(binary: &Path, way: &CallPath, calls: u32) -> anyhow::Result<String> {
    let folder = tempfile::tempdir().context("create a folder for the gateway")?;
    let file = folder.path().join("callgrind.out");
    let (_upstream, addresses) = start_upstreams(way.upstream, 1, TOOLS)?;
    let mut setup = BenchSetup::of(&addresses, TOOLS);
    setup.rules = if let PathSettings::Rules(count) = way.settings { count } else { 0 };
    setup.asks = matches!(way.settings, PathSettings::Granted);
    setup.auth = if let PathSettings::Authenticated(auth) = way.settings { auth } else { BenchAuth::Anyone };
    let mut gateway = setup.start_counted(binary, &file, folder.path()).await?;
    if setup.asks {
        consent(binary, folder.path(), TOOL)?;
    }
    let mut connection = BenchConnection::open(&gateway.target.authority).await?;
    let session = LoadSession::open(gateway.target.clone(), way.era, &mut connection).await?;
    let mut call = StampedCall::new(&session, way.scenario, 0, "").context("a scenario without calls")?;
    for _ in 0..calls {
        call.make(&mut connection).await?;
    }
    session.close(&mut connection).await?;
    drop(connection);
    ensure!(gateway.server.end(STOP), "the gateway did not end within {STOP:?}");
    fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
}

/// Reads callgrind's output with names and numbers in full: the total, and the own cost of each
/// function.
///
/// Valgrind's processor has no instructions for SHA-256, so the gateway computes the hashes of its
/// audit log by others, which no processor of the last years executes for it. They are told apart
/// and left out.
pub(crate) fn read(text: &str) -> Option<(CallCost, HashMap<&str, f64>)> {
    let totals = text.lines().filter_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    let total = totals.filter_map(|total| total.trim().parse::<f64>().ok()).reduce(f64::max)?;
    let (mut sha, mut allocations) = (0.0, 0.0);
    let (mut is_sha, mut is_allocator, mut allocates, mut is_of_callee) = (false, false, false, false);
    let (mut functions, mut function) = (HashMap::<&str, f64>::new(), "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
            (is_sha, is_allocator) = (name.to_ascii_lowercase().contains("sha256"), name.starts_with("mi_"));
        } else if let Some(name) = line.strip_prefix("cfn=") {
            allocates = !is_allocator && ALLOCATORS.contains(&name);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            let calls = calls.split(' ').next().and_then(|calls| calls.parse::<f64>().ok());
            allocations += calls.filter(|_| allocates).unwrap_or_default();
            // The next line is the cost of the called function, which has lines of its own.
            is_of_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let own = line.rsplit(' ').next().and_then(|cost| cost.parse::<f64>().ok());
            let own = own.filter(|_| !is_of_callee).unwrap_or_default();
            *functions.entry(function).or_default() += own;
            sha += if is_sha { own } else { 0.0 };
            is_of_callee = false;
        }
    }
    Some((CallCost { instructions: total - sha, sha, allocations }, functions))
}

/// Functions of the gateway's allocator that count as an allocation, growth in place included.
const ALLOCATORS: [&str; 6] =
    ["mi_malloc", "mi_malloc_aligned", "mi_zalloc", "mi_zalloc_aligned", "mi_realloc", "mi_realloc_aligned"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_grown_by_a_part_of_what_it_took() {
        let before = "# rustc 1.90.0\n  100000 legacy\n   90000 legacy-to-modern\n";
        assert!((growth(before, "legacy", 103_000.0).unwrap() - 3.0).abs() < 1e-9);
        assert!((growth(before, "legacy-to-modern", 81_000.0).unwrap() + 10.0).abs() < 1e-9);
        assert!(growth(before, "modern", 1.0).is_err(), "a way that nobody has counted yet");
    }

    #[test]
    fn costs_of_hashes_are_left_out_and_calls_of_the_allocator_counted() {
        let text = "events: Ir\n\nfn=call\n12 100\ncfn=sha2::sha256::soft::compress\ncalls=3 40\n14 900\ncfn=mi_malloc\ncalls=7 5\n15 70\n\
                    fn=sha2::sha256::soft::compress\n40 600\n+2 200\ncfn=memcpy\ncalls=1 1\n41 100\nfn=memcpy\n1 100\n\
                    fn=mi_malloc_aligned\n5 50\ncfn=mi_malloc\ncalls=2 5\n6 20\nfn=mi_malloc\n5 40\n\ntotals: 1090\n";
        let text = text.replace("+2 ", "42 ");
        let (count, functions) = read(&text).unwrap();
        assert_eq!((count.instructions, count.sha, count.allocations), (290.0, 800.0, 7.0));
        assert_eq!((functions["call"], functions["memcpy"], functions["mi_malloc_aligned"]), (100.0, 100.0, 50.0));
        assert!(read("fn=call\n12 100\n").is_none(), "it was not written to its end");
    }
}
