//! The command `headend doctor`: checks for common problems, and gives a next step for each
//! finding.
//!
//! A running daemon is asked for the states of its upstreams. Without a daemon, the upstreams are
//! started in this process, as by `headend stdio` without a daemon: without ports and sockets, and
//! only if their launch is approved.

use clap::Args;
use serde::Serialize;

use crate::cli::exit::{NO, OK};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, print, print_json};
use crate::cli::words::screen::Screen;
use crate::operator::request::{NoParams, Request};

mod clocks;
mod environment;
mod finding;
mod hosts;
mod machine;
mod servers;
mod signs;
mod told;
mod versions;

use self::finding::{DoctorFinding, DoctorFindings, FindingLevel};

#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct DoctorArgs {
    /// Start no upstream where no daemon runs.
    #[arg(long)]
    no_start: bool,
    /// Print every finding in full, also where they do not fit the screen.
    #[arg(long)]
    all: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(common: &CommonOptions, args: DoctorArgs) -> Result<u8, CommandFailure> {
    let mut found = DoctorFindings::default();
    let mut daemon = machine::check_daemon(common, &mut found);
    let loaded = machine::check_configuration(common, daemon.as_mut(), &mut found);
    let state = machine::check_state(common, &mut found);
    if let (Some(daemon), Some(state)) = (&daemon, &state) {
        machine::compare_state(daemon, state, &mut found);
    }
    if let Some(loaded) = &loaded {
        if daemon.is_none() {
            machine::check_ports(&loaded.config, &mut found);
        }
        environment::variables(&loaded.config, &mut found);
        environment::programs(&loaded.config, &mut found);
        hosts::look(&loaded.config, state.as_deref(), &mut found);
        clocks::look(&loaded.config, state.as_deref(), &mut found);
    }
    let is_startable = !args.no_start && state.is_some() && common.socket.is_none() && !machine::is_denied(common);
    let told = match (daemon, loaded) {
        (Some(mut daemon), _) => daemon.ask(&Request::Status(NoParams {})).ok(),
        (None, Some(loaded)) if is_startable => servers::start_upstreams(loaded, &mut found),
        (None, _) => None,
    };
    if let Some(status) = told {
        servers::check_replicas(&status, &mut found);
        servers::check_upstreams(&status, &mut found);
    }
    let problems = found.number(FindingLevel::Problem);
    if args.json {
        print_json(&DoctorReport { problems, findings: &found.0 })?;
    } else {
        print(&told::text(Screen::of_stdout(), &found, args.all))?;
    }
    Ok(if problems > 0 { NO } else { OK })
}

/// All findings, as JSON.
#[derive(Serialize)]
struct DoctorReport<'f> {
    problems: usize,
    findings: &'f [DoctorFinding],
}
