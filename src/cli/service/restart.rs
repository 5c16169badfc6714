//! The command `headend restart NAME`: restarts an upstream and waits for the outcome.

use crate::cli::exit::{NO, OK};
use crate::cli::reach::daemon;
use crate::cli::status::suggest_upstream;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print};
use crate::operator::request::{NameParams, Request};
use crate::operator::upstreams::RestartedUpstream;
use crate::telemetry::upstream_state::UpstreamState;
use crate::wire::foreign;

pub(in crate::cli) fn run(common: &CommonOptions, name: &str) -> Result<u8, CommandFailure> {
    let mut daemon = daemon::connect(common, "admin", None).map_err(CommandFailure::from).map_err(|failure| {
        let text = format!(
            "{}, which starts every upstream; a host that runs `headend stdio` without a daemon starts its own",
            failure.text
        );
        CommandFailure { text, ..failure }
    })?;
    let request = Request::Restart(NameParams { name: name.to_owned() });
    let answer = daemon.ask(&request).map_err(|failure| suggest_upstream(&mut daemon, name, failure))?;
    let RestartedUpstream { state, health, advice, .. } = answer;
    let name = foreign::line(name);
    match state {
        UpstreamState::Ready => print(&format!("{name}: ready\n")),
        // A lazy upstream that no call needs now.
        UpstreamState::Idle => print(&format!("{name}: was started, and is idle until it is needed\n")),
        UpstreamState::Starting => {
            print(&format!("{name}: still starting; `headend status {name}` shows what comes of it\n"))?;
            Ok(OK)
        }
        UpstreamState::NeedsLogin
        | UpstreamState::LoginExpired
        | UpstreamState::Refused
        | UpstreamState::Misconfigured
        | UpstreamState::Down
        | UpstreamState::Stopped
        | UpstreamState::Disabled => {
            let why = foreign::line(health.last_error.as_deref().unwrap_or_default()).into_owned();
            let advice = advice.map(|advice| format!("; {}", foreign::line(&advice))).unwrap_or_default();
            Err(CommandFailure::new(NO, format!("{name} is {state}: {why}{advice}")))
        }
    }
}
