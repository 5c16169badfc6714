//! The states of the upstreams, and what can be done about them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::environment::way_to;
use super::finding::{Findings, Level};
use super::signs::step;
use crate::cli::exit::OK;
use crate::cli::serve::{block_on, start_failure};
use crate::cli::source::{self, Loaded};
use crate::daemon::admin::status;
use crate::daemon::gateway::{Gateway, StopTimes};
use crate::operator::views::View;
use crate::wire::raw::RawObject;

/// How often, and in which rhythm, it is looked whether upstreams have started: twenty seconds.
const LOOKS: u32 = 200;
const LOOK: Duration = Duration::from_millis(100);
/// Lines of stderr that are quoted.
const QUOTED: usize = 5;
/// Name of the chain in the audit log of the processes of this command.
const CHAIN: &str = "doctor";

/// Starts the upstreams in this process, waits for what comes of it, and ends them.
pub(super) fn started(loaded: Loaded, found: &mut Findings) -> Option<RawObject> {
    let store = match source::store(&loaded.config) {
        Ok(store) => store,
        Err(failure) => {
            found.problem("state", failure.text, "do as it says, then `headend doctor` again");
            return None;
        }
    };
    let chain = format!("{CHAIN}-{}", std::process::id());
    let mut told = None;
    let outcome = block_on(StopTimes::PIPE, async {
        let gateway = Gateway::build(loaded.config, loaded.source, Some(store), &chain, StopTimes::PIPE);
        let gateway = gateway.map_err(start_failure)?;
        for _ in 0..LOOKS {
            let now = View::Status(Box::new(status(&gateway))).json();
            let now = now.and_then(|json| RawObject::parse(&json)).unwrap_or_default();
            // Before its task has begun, one that starts at once is idle too.
            let is_on_its_way = |upstream: &RawObject| match upstream.string("state").as_deref() {
                Some("starting") => true,
                Some("idle") => upstream.string("start").as_deref() == Some("eager"),
                _ => false,
            };
            let waits = now.objects("upstreams").iter().any(is_on_its_way);
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

/// A finding for each upstream that needs something, and one for the others.
pub(super) fn look(status: &RawObject, found: &mut Findings) {
    for condition in status.list("degraded").unwrap_or_default() {
        let condition = RawObject::parse(&condition).unwrap_or_default();
        let text = |name: &str| condition.string(name).unwrap_or_default();
        // Upstreams have findings of their own.
        if text("reason") != "upstreams" {
            found.problem(
                &text("reason"),
                text("text"),
                "it goes on by itself when that is mended; `headend status` says so",
            );
        }
    }
    if let Some(text) = status.object("restored").and_then(|restored| restored.string("text")) {
        let next = "`headend grants` lists the grants; `headend grants reviewed` ends this notice";
        found.add(Level::Warning, "restored", text, next);
    }
    let mut ready: Vec<String> = Vec::new();
    for upstream in status.objects("upstreams") {
        let text = |name: &str| upstream.string(name).unwrap_or_default();
        let (name, state) = (text("name"), text("state"));
        let stderr = upstream.get("stderr").and_then(|raw| raw.parse::<Vec<String>>().ok()).unwrap_or_default();
        let quoted = stderr.iter().skip(stderr.len().saturating_sub(QUOTED)).cloned().collect();
        match state.as_str() {
            "ready" => ready.push(name),
            "idle" => found.ok(&name, "starts with its first call"),
            "stopped" | "disabled" => found.add(Level::Note, &name, state, ""),
            "starting" => {
                let next = format!(
                    "if it downloads something, wait: `headend logs -f {name}` shows what it writes; else run its `command` by hand"
                );
                found.add(Level::Warning, &name, "it has not answered yet", next);
            }
            _ if found.0.iter().any(|finding| finding.about == name && finding.level == Level::Problem) => {}
            _ => {
                let why = text("last-error");
                let mut said: Vec<&str> = stderr.iter().map(String::as_str).collect();
                said.push(&why);
                let missing = why.split_once("command `").and_then(|(_, rest)| rest.split_once("` not found in PATH"));
                let way = missing.map(|(word, _)| way_to(&name, word));
                let next = way
                    .or_else(|| step(&name, &said))
                    .or_else(|| upstream.string("advice").filter(|advice| advice.contains("; ")));
                let is_program = upstream.get("program").is_some() || upstream.get("path").is_some();
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
                found.problem(&name, format!("{state}: {why}"), next.unwrap_or_else(by_hand));
                found.quoting(quoted);
            }
        }
    }
    if !ready.is_empty() {
        found.ok("upstreams", format!("ready: {}", ready.join(", ")));
    }
}
