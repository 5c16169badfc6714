//! The whole run: warm-up, load, rest, verdicts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::SoakOptions;
use crate::disorder;
use crate::hostile::{self, Arsenal};
use crate::ledger::{Ledger, RequestEnd};
use crate::link::{SoakClient, SoakEra, SoakTransport, usual};
use crate::sample::{GIVEN_BACK, ProcessSample, descendants};
use crate::stage::{ASKERS, PLAIN, STEADY, SoakFacts, SoakStage};
use crate::verdict::{RunFindings, SoakVerdict, verdicts};
use crate::visit;

/// Sessions before the start is measured.
const WARM_UP: u64 = 24;
/// Samples before the load, a second apart, fewer in a run that does not wait for the end either.
const LOOKS: u64 = 10;
/// The pace maker looks this often.
const TICK: Duration = Duration::from_millis(10);
/// Longest time of one client. Beyond it, its open request is lost.
const VISIT: Duration = Duration::from_secs(400);
/// One hostile client for so many others.
const HOSTILE: u64 = 10;

/// Plays the whole run, prints the verdicts, and returns whether all of them are good.
pub(crate) async fn run(options: SoakOptions) -> anyhow::Result<bool> {
    raise_file_limit();
    eprintln!("starting the servers and the daemon");
    let mut stage = SoakStage::start(&options).await?;
    let facts = Arc::clone(&stage.facts);
    let outcome = Box::pin(play(&options, &mut stage)).await;
    let (samples, start, end, settled_after) = match outcome {
        Ok(figures) => figures,
        Err(error) => anyhow::bail!("{error:#}\n{}", stage.log()),
    };
    let children = descendants(stage.daemon.pid);
    let stopped = match stage.daemon.stop().await {
        Ok(status) if status.success() => Ok(left_of(&children).await),
        Ok(status) => Err(format!("the daemon ended with {status} at SIGTERM")),
        Err(error) => Err(format!("{error:#}")),
    };
    report(&facts.ledger);
    let findings =
        RunFindings { ledger: &facts.ledger, samples: &samples, start: &start, end: &end, settled_after, stopped };
    let verdicts = verdicts(&options, &findings);
    println!("\nverdicts");
    for SoakVerdict { passed, text } in &verdicts {
        let word = passed.map_or("    ", |passed| if passed { "ok  " } else { "FAIL" });
        println!("  {word} {text}");
    }
    let passed = verdicts.iter().all(|verdict| verdict.passed != Some(false));
    if !passed {
        eprintln!("the end of the daemon's log:\n{}", stage.log());
    }
    Ok(passed)
}

type Figures = (Vec<ProcessSample>, ProcessSample, ProcessSample, Option<Duration>);

async fn play(options: &SoakOptions, stage: &mut SoakStage) -> anyhow::Result<Figures> {
    let facts = Arc::clone(&stage.facts);
    let pid = Arc::new(AtomicU32::new(stage.daemon.pid));
    warm_up(&facts, options.seed).await;
    sleep(options.settling().min(Duration::from_secs(60))).await;
    let start = at_rest(&facts, stage.daemon.pid, options.settle.clamp(1, LOOKS)).await;
    println!("{}\n{}   before the load", ProcessSample::heading(), start.line(&start));
    let begun = Instant::now();
    let load = Duration::from_secs(options.seconds);
    let visits = Arc::new(AtomicU64::new(0));
    let mut around = JoinSet::new();
    if options.reloads > 0 {
        let pause = Duration::from_secs(60) / u32::try_from(options.reloads).unwrap_or(u32::MAX);
        around.spawn(disorder::reload(Arc::clone(&facts), stage.recipe.clone(), pause, options.tame));
    }
    let mut mortal = None;
    if !options.tame {
        if let Some(server) = stage.mortal.take() {
            mortal = Some(tokio::spawn(disorder::kill_web(Arc::clone(&facts), server, Rng::with_seed(options.seed))));
        }
        let current = Arc::clone(&pid);
        let daemon = move || current.load(Ordering::SeqCst);
        around.spawn(disorder::kill_pipe(Arc::clone(&facts), daemon, Rng::with_seed(options.seed + 1)));
        around.spawn(besiege(Arc::clone(&facts), options.rate, Rng::with_seed(options.seed + 2)));
    }
    let clients = tokio::spawn(clients(Arc::clone(&facts), options.clone(), Arc::clone(&visits)));
    let mut samples = vec![start.clone()];
    let mut restarts = 0;
    while begun.elapsed() < load {
        let due =
            begun + (Duration::from_secs(options.sample) * u32::try_from(samples.len()).unwrap_or(u32::MAX)).min(load);
        sleep_until(due.into()).await;
        if let Some(status) = stage.daemon.ended() {
            anyhow::bail!("the daemon ended by itself with {status}");
        }
        let sample =
            ProcessSample::take(&facts, stage.daemon.pid, begun.elapsed(), visits.load(Ordering::SeqCst)).await;
        println!("{}", sample.line(samples.last().unwrap_or(&start)));
        samples.push(sample);
        stage.trim_audit();
        let next = load.as_secs() * (restarts + 1) / (options.restarts + 1);
        if restarts < options.restarts && begun.elapsed().as_secs() >= next {
            restarts += 1;
            stage.restart().await?;
            pid.store(stage.daemon.pid, Ordering::SeqCst);
            println!("          the daemon was restarted");
        }
    }
    facts.stop();
    clients.await?;
    let last_client = Instant::now();
    while around.join_next().await.is_some() {}
    if let Some(mortal) = mortal {
        stage.mortal = Some(mortal.await?);
    }
    if let Err(error) = facts.reload(&stage.recipe.with_guest(Some(PLAIN))).await? {
        anyhow::bail!("the last reload was refused: {error}");
    }
    if options.restarts > 0 {
        // The last daemon must hold the same remains of a warm-up as the first one did.
        warm_up(&facts, options.seed).await;
    }
    let (end, settled_after) = settle(options, stage, &start, begun, last_client, visits.load(Ordering::SeqCst)).await;
    println!("{}   after the load", end.line(samples.last().unwrap_or(&start)));
    Ok((samples, start, end, settled_after))
}

/// Samples the daemon before the load, several times: its servers come and go, so a single sample
/// would find them all at rest or none.
async fn at_rest(facts: &SoakFacts, pid: u32, looks: u64) -> ProcessSample {
    let mut most = ProcessSample::take(facts, pid, Duration::ZERO, 0).await;
    for _ in 1..looks {
        sleep(Duration::from_secs(1)).await;
        most = most.most(&ProcessSample::take(facts, pid, Duration::ZERO, 0).await);
    }
    most
}

/// Waits until everything is given back, or the time is over.
async fn settle(
    options: &SoakOptions,
    stage: &SoakStage,
    start: &ProcessSample,
    begun: Instant,
    last_client: Instant,
    visits: u64,
) -> (ProcessSample, Option<Duration>) {
    loop {
        let sample = ProcessSample::take(&stage.facts, stage.daemon.pid, begun.elapsed(), visits).await;
        let is_back = |figure: fn(&ProcessSample) -> Option<u64>| figure(&sample) <= figure(start);
        let after = last_client.elapsed();
        if GIVEN_BACK.iter().all(|(_, figure)| is_back(*figure)) {
            return (sample, Some(after));
        }
        if after >= options.settling() {
            return (sample, None);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Opens what the daemon keeps for clients without a session: a session of theirs with each server
/// of the legacy era, which ends after 15 idle minutes. Then a few clients of all kinds.
async fn warm_up(facts: &Arc<SoakFacts>, seed: u64) {
    for asks in [false, true] {
        for upstream in STEADY.iter().chain(ASKERS) {
            let Ok(mut client) = SoakClient::connect(facts, SoakEra::Modern, SoakTransport::Http, asks, 0).await else {
                continue;
            };
            let params = serde_json::json!({"name": format!("{upstream}__echo"), "arguments": {"text": "warm"}});
            // A failure is in the ledger.
            let _answered = client.request("warm-up", "tools/call", params, usual).await;
        }
    }
    for number in 0..WARM_UP {
        visit::play(Arc::clone(facts), number, seed.wrapping_add(77)).await;
    }
}

/// Clients come at the rate of the options until the load ends; returns when the last one has gone.
async fn clients(facts: Arc<SoakFacts>, options: SoakOptions, visits: Arc<AtomicU64>) {
    let places = Arc::new(Semaphore::new(options.open));
    let mut running = JoinSet::new();
    let (mut due, mut number) = (0.0, 0);
    let mut before = Instant::now();
    while !facts.stopping() {
        sleep(TICK).await;
        due += before.elapsed().as_secs_f64() * options.rate as f64;
        before = Instant::now();
        if facts.is_down() {
            due = 0.0;
        }
        while due >= 1.0 {
            due -= 1.0;
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                facts.ledger.note("sessions that did not begin, since too many were open");
                continue;
            };
            number += 1;
            visits.fetch_add(1, Ordering::SeqCst);
            let visit = visit::play(Arc::clone(&facts), number, options.seed);
            let facts = Arc::clone(&facts);
            running.spawn(async move {
                if timeout(VISIT, Box::pin(visit)).await.is_err() {
                    facts.ledger.note("clients that were given up");
                }
                drop(place);
            });
        }
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
}

async fn besiege(facts: Arc<SoakFacts>, rate: u64, mut rng: Rng) {
    let arsenal = match Arsenal::load(&facts) {
        Ok(arsenal) => Arc::new(arsenal),
        Err(error) => {
            eprintln!("no hostile clients: {error:#}");
            return;
        }
    };
    let pause = Duration::from_secs(1) * u32::try_from(HOSTILE).unwrap_or(1) / u32::try_from(rate.max(1)).unwrap_or(1);
    let mut running = JoinSet::new();
    while !facts.stopping() {
        sleep(pause).await;
        if !facts.is_down() {
            running.spawn(hostile::attack(Arc::clone(&facts), Arc::clone(&arsenal), rng.fork()));
        }
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
}

/// Waits a moment after the parent's end, and returns how many of these processes are left.
async fn left_of(children: &[u32]) -> usize {
    for _ in 0..20 {
        if children.iter().all(|pid| !is_alive(*pid)) {
            return 0;
        }
        sleep(Duration::from_millis(100)).await;
    }
    children.iter().filter(|pid| is_alive(**pid)).count()
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn report(ledger: &Ledger) {
    println!(
        "\n{:<34} {:>9} {}",
        "requests",
        "sent",
        RequestEnd::ALL.map(|end| format!("{:>9}", end.name())).join(" ")
    );
    let line = |name: &str, row: &crate::ledger::LedgerRow| {
        let ends = RequestEnd::ALL.map(|end| format!("{:>9}", row.of(end))).join(" ");
        println!("{name:<34} {:>9} {ends}", row.sent);
    };
    for (kind, row) in ledger.rows() {
        line(kind, &row);
    }
    line("all", &ledger.total());
    println!();
    for (name, count) in ledger.notes() {
        println!("{count:>9} {name}");
    }
    for example in ledger.examples() {
        eprintln!("  {example}");
    }
}

fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
}
