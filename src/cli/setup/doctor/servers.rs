//! Checks the states of the upstreams, and gives next steps for them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::environment::describe_remedy;
use super::finding::{DoctorFindings, FindingLevel};
use super::signs::next_step;
use crate::cli::exit::OK;
use crate::cli::reach::source;
use crate::cli::reach::source::CommandConfig;
use crate::cli::service::bound::start_failure;
use crate::cli::service::serve::block_on;
use crate::cli::status::time;
use crate::cluster::membership::describe_other_keys;
use crate::config::StartMode;
use crate::daemon::admin::build_status;
use crate::daemon::gateway::{RunningGateway, StopTimes};
use crate::gateway::condition::UPSTREAMS;
use crate::operator::status::StatusView;
use crate::operator::upstreams::{HealthView, UpstreamFacts, UpstreamView};
use crate::telemetry::upstream_state::UpstreamState;

/// Most polls until upstreams have started, twenty seconds in all.
const LOOKS: u32 = 200;
const LOOK: Duration = Duration::from_millis(100);
/// Lines of stderr that a finding quotes.
const QUOTED: usize = 5;
/// Prefix of the audit chain of this command; the process id follows.
const CHAIN: &str = "doctor";

/// Starts the upstreams in this process, waits until none is starting, and stops them. Returns
/// their last status; `None` if the gateway could not be built, which is a finding.
pub(super) fn start_upstreams(loaded: CommandConfig, found: &mut DoctorFindings) -> Option<StatusView> {
    let store = match source::open_store(&loaded.config) {
        Ok(store) => store,
        Err(failure) => {
            found.problem("state", failure.text, "do as it says, then `headend doctor` again");
            return None;
        }
    };
    let chain = format!("{CHAIN}-{}", std::process::id());
    let mut told = None;
    let outcome = block_on(StopTimes::PIPE, async {
        let gateway = RunningGateway::build(loaded.config, loaded.source, Some(store), &chain, StopTimes::PIPE);
        let gateway = gateway.map_err(start_failure)?;
        for _ in 0..LOOKS {
            let now = build_status(&gateway);
            // Before its task has begun, an upstream that is to start at once is idle too.
            let is_eager = |upstream: &UpstreamView| {
                upstream.facts.as_ref().is_some_and(|facts| facts.start == StartMode::Eager.into_str())
            };
            let is_on_its_way = |upstream: &UpstreamView| {
                upstream.state == UpstreamState::Starting || upstream.state == UpstreamState::Idle && is_eager(upstream)
            };
            let waits = now.upstreams.iter().any(is_on_its_way);
            told = Some(now);
            if !waits {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        gateway.shut_down(&CancellationToken::new()).await;
        Ok(OK)
    });
    if let Err(failure) = outcome {
        found.problem("upstreams", failure.text, "do as it says, then `headend doctor` again");
    }
    told
}

/// Adds findings about replicas that do not fit to the one that answers.
pub(super) fn check_replicas(status: &StatusView, found: &mut DoctorFindings) {
    for replica in status.replicas.iter().filter(|replica| !replica.silent) {
        let parts = replica.differs.iter().map(String::as_str);
        let (names, parts): (Vec<&str>, Vec<&str>) = parts.partition(|part| *part == "name");
        if !names.is_empty() {
            let next = "write another `name` in [cluster] of one of them, and restart it";
            found.problem("cluster", format!("two replicas are called {}", replica.name), next);
        }
        if !parts.is_empty() {
            let what = format!("replica {} has not the same {} as this one", replica.name, parts.join(" and "));
            let next = "give all replicas the same configuration and version, one after the other";
            found.add(FindingLevel::Warning, "cluster", what, next);
        }
    }
    if status.replicas_with_another_key > 0 {
        let what = describe_other_keys(status.replicas_with_another_key);
        found.problem("cluster", what, "\"A new key\" in config/cluster.md has the order of steps");
    }
}

/// Adds a finding for each upstream that needs attention, and one for all others.
pub(super) fn check_upstreams(status: &StatusView, found: &mut DoctorFindings) {
    // Each upstream has a finding of its own.
    for condition in status.degraded.iter().filter(|condition| condition.reason != UPSTREAMS) {
        let next = "it goes on by itself when that is mended; `headend status` says so";
        found.problem(&condition.reason, condition.text.clone(), next);
    }
    if let Some(restored) = &status.restored {
        let next = "`headend grants` lists the grants; `headend grants reviewed` ends this notice";
        found.add(FindingLevel::Warning, "restored", restored.text.clone(), next);
    }
    let (mut ready, none): (Vec<&str>, _) = (Vec::new(), UpstreamFacts::default());
    for UpstreamView { name, state, facts, advice } in &status.upstreams {
        let facts = facts.as_deref().unwrap_or(&none);
        let HealthView { stderr, last_error, .. } = &facts.health;
        let quoted = stderr.iter().skip(stderr.len().saturating_sub(QUOTED)).cloned().collect();
        match state {
            UpstreamState::Ready => ready.push(name),
            UpstreamState::Idle => found.ok(name, "starts with its first call"),
            UpstreamState::Stopped | UpstreamState::Disabled => {
                found.add(FindingLevel::Note, name, state.to_string(), "")
            }
            UpstreamState::Starting => {
                let next = format!(
                    "if it downloads something, wait: `headend logs -f {name}` shows what it writes; else run its `command` by hand"
                );
                let so_far = time(facts.health.since_seconds);
                found.add(FindingLevel::Warning, name, format!("it is still starting ({so_far})"), next);
            }
            UpstreamState::NeedsLogin
            | UpstreamState::LoginExpired
            | UpstreamState::Refused
            | UpstreamState::Misconfigured
            | UpstreamState::Down => {
                if found.0.iter().any(|finding| finding.about == *name && finding.level == FindingLevel::Problem) {
                    continue;
                }
                let why = last_error.as_deref().unwrap_or_default();
                let said: Vec<&str> = stderr.iter().map(String::as_str).chain([why]).collect();
                let missing = why.split_once("command `").and_then(|(_, rest)| rest.split_once("` not found in PATH"));
                let way = missing.map(|(word, _)| describe_remedy(name, word));
                let next = way
                    .or_else(|| next_step(name, &said))
                    .or_else(|| advice.clone().filter(|advice| advice.contains("; ")));
                let is_program = facts.program.is_some() || !facts.path.is_empty();
                let by_hand = || {
                    if !is_program {
                        return format!(
                            "correct the `url` of [upstreams.{name}] to the server's MCP endpoint, which often ends in `/mcp` or `/sse`, then \
                             `headend reload`"
                        );
                    }
                    format!(
                        "run its `command` by hand and read what it prints; what a server writes to stdout must be the protocol alone, \
                         so a banner belongs to stderr; then `headend restart {name}`"
                    )
                };
                found.problem(name, format!("{state}: {why}"), next.unwrap_or_else(by_hand));
                found.quoting(quoted);
            }
        }
    }
    if !ready.is_empty() {
        found.ok("upstreams", format!("ready: {}", ready.join(", ")));
    }
}
