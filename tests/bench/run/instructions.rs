//! Instructions of one call, counted by callgrind: the figure that does not move with the machine.
//!
//! For each way of a call the gateway runs twice, with a few calls and with many, one after the other. Starting and ending cost the
//! same both times, so the difference is that of the calls. Children of the gateway are not counted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::budget::Singles;
use crate::gateway::{Setup, on_path};
use crate::http::Connection;
use crate::run::fleet::{TOOLS, start_upstreams};
use crate::scenario::{Call, Era, Scenario, Session};

/// Calls of the shorter run, in which caches fill and buffers grow.
const FEW: u32 = 300;

/// How many more the longer run makes.
const MORE: u32 = 1000;

/// How long a gateway that is counted may take to end.
const STOP: Duration = Duration::from_secs(60);

/// The era of the client, and how the upstream is reached.
struct Way {
    name: &'static str,
    era: Era,
    stdio: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "modern-http", era: Era::Modern, stdio: false },
    Way { name: "legacy-http", era: Era::Legacy, stdio: false },
    Way { name: "modern-stdio", era: Era::Modern, stdio: true },
    Way { name: "legacy-stdio", era: Era::Legacy, stdio: true },
];

/// Counts every way; what does not work is added to `problems`. Without valgrind there are no figures.
pub(crate) async fn count(binary: &Path, singles: &mut Singles, problems: &mut Vec<String>) {
    if !on_path("valgrind") {
        eprintln!("valgrind is not installed: instructions per call are left out");
        return;
    }
    for way in &WAYS {
        eprintln!("instructions: {}", way.name);
        match per_call(binary, way).await {
            Ok(count) => singles.instructions.push((way.name, count)),
            Err(error) => problems.push(format!("instructions, {}: {error:#}", way.name)),
        }
    }
}

async fn per_call(binary: &Path, way: &Way) -> anyhow::Result<f64> {
    let few = of_run(binary, way, FEW).await?;
    let many = of_run(binary, way, FEW + MORE).await?;
    Ok((many - few) / f64::from(MORE))
}

/// Instructions of a gateway that makes so many calls.
async fn of_run(binary: &Path, way: &Way, calls: u32) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir().context("create a folder for the gateway")?;
    let count = folder.path().join("callgrind.out");
    let (_upstream, setup) = if way.stdio {
        (None, Setup::stdio(TOOLS)?)
    } else {
        let (upstream, addresses) = start_upstreams("both", 1, TOOLS)?;
        (Some(upstream), Setup::of(&addresses, TOOLS))
    };
    let mut gateway = setup.start_counted(binary, &count, folder.path()).await?;
    let mut connection = Connection::open(&gateway.target.authority).await?;
    let session = Session::open(gateway.target.clone(), way.era, &mut connection).await?;
    let mut call = Call::new(&session, Scenario::Call, 0, "").context("a scenario without calls")?;
    for _ in 0..calls {
        call.make(&mut connection).await?;
    }
    session.close(&mut connection).await?;
    drop(connection);
    ensure!(gateway.server.end(STOP), "the gateway did not end within {STOP:?}");
    let text = fs::read_to_string(&count).with_context(|| format!("read {}", count.display()))?;
    total(&text).context("callgrind wrote no total")
}

/// The sum in what callgrind wrote.
fn total(text: &str) -> Option<f64> {
    let totals = text.lines().filter_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    totals.filter_map(|total| total.trim().parse().ok()).reduce(f64::max)
}
