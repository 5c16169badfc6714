//! What is measured once and without a load: memory, and the time to start.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::time::sleep;

use crate::budget::{Memory, Singles};
use crate::gateway::Setup;
use crate::http::Connection;
use crate::process::{Process, Server};
use crate::run::fleet::{MANY, TOOLS, TOOLS_OF_MANY, floor_arguments, start_upstreams, url};
use crate::scenario::{Era, Session, Target};
use crate::table::median;

/// How many sessions are held open.
const SESSIONS: u32 = 1000;

/// How long a process is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Memory of the floor and of the gateway, each in front of an upstream of its own.
///
/// # Errors
/// When the floor cannot be measured; what the gateway does wrong is added to `problems`.
pub(crate) async fn memory(
    binary: Option<&Path>,
    singles: &mut Singles,
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    eprintln!("memory");
    let (upstream, addresses) = start_upstreams("legacy", 1, TOOLS)?;
    let address = addresses.first().context("an upstream without an address")?;
    let (floor, addresses) = Server::start_own(&floor_arguments(address), 1)?;
    let target = Target::new(&url(addresses.first())?, None)?;
    singles.floor = Some(memory_of(&target, floor.process()).await.context("memory of the floor")?);
    drop((floor, upstream));
    let Some(binary) = binary else { return Ok(()) };
    match gateway_memory(binary).await {
        Ok(memory) => singles.headend = Some(memory),
        Err(error) => problems.push(format!("memory: {error:#}")),
    }
    Ok(())
}

async fn gateway_memory(binary: &Path) -> anyhow::Result<Memory> {
    let (_upstream, addresses) = start_upstreams("legacy", 1, TOOLS)?;
    let setup = Setup::of(&addresses, TOOLS);
    let folder = tempfile::tempdir().context("create a folder for the gateway")?;
    let gateway = setup.start(binary, folder.path()).await?;
    memory_of(&gateway.target, gateway.server.process()).await
}

/// Reads a process's memory when idle, and again with [`SESSIONS`] legacy sessions that each listed the tools and hold a
/// GET stream open on a connection of its own; their POSTs share one connection.
async fn memory_of(target: &Target, process: Process) -> anyhow::Result<Memory> {
    sleep(SETTLE).await;
    let idle = process.rss_kib()?;
    let mut connection = Connection::open(&target.authority).await?;
    let mut open = Vec::new();
    for number in 0..SESSIONS {
        let session = Session::open(target.clone(), Era::Legacy, &mut connection).await?;
        session.count_tools(&mut connection, u64::from(number)).await?;
        let stream = Connection::open(&target.authority).await?.subscribe(&session.get_stream()).await;
        open.push(stream.with_context(|| format!("open the stream of session {number}"))?);
    }
    sleep(SETTLE).await;
    let full = process.rss_kib()?;
    drop(open);
    let kib = |value: u64| u32::try_from(value).map_or(f64::INFINITY, f64::from);
    Ok(Memory { idle_mib: kib(idle) / 1024.0, session_kib: (kib(full) - kib(idle)) / f64::from(SESSIONS) })
}

/// From the gateway's start to the full list of ten upstreams that are already up: with nothing on disk, and with the state
/// that this left.
///
/// # Errors
/// When the gateway does not come up.
pub(crate) async fn start(binary: &Path, rounds: usize, singles: &mut Singles) -> anyhow::Result<()> {
    let (_upstreams, addresses) = start_upstreams("legacy", MANY, TOOLS_OF_MANY)?;
    let setup = Setup::of(&addresses, TOOLS_OF_MANY);
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("start: round {round} of {rounds}");
        let folder = tempfile::tempdir().context("create a folder for the gateway")?;
        for times in [&mut fresh, &mut again] {
            let gateway = setup.start(binary, folder.path()).await?;
            times.push(gateway.ready_after.as_secs_f64() * 1e3);
        }
    }
    (singles.spawn_ms, singles.respawn_ms) = (median(fresh), median(again));
    Ok(())
}
