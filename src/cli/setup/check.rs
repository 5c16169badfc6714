//! `headend check`: validates the configuration without starting anything, and prints warnings
//! about it.

use clap::Args;

use crate::cli::reach::source;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, count, print};
use crate::config::{
    Config, UpstreamSettings, find_doubts, preflight, show, warn_of_dropped_instructions, warn_of_silent_programs,
};
use crate::mcp::version::Era;
use crate::operator::alone::StateDir;
use crate::wire::foreign;

#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    /// Print the whole configuration as it will be in force, with defaults, secrets redacted.
    #[arg(long)]
    resolved: bool,
    /// Print problems only: no warnings, no last line.
    #[arg(long, short, conflicts_with = "resolved")]
    quiet: bool,
}

/// Runs the command.
pub(in crate::cli) fn run(common: &CommonOptions, args: CheckArgs) -> Result<u8, CommandFailure> {
    let loaded = source::load(common, &[])?;
    if args.quiet {
        return print("");
    }
    let config = &loaded.config;
    // `check` starts no upstream, but an earlier run may have kept its catalog.
    let store = source::open_existing_store(common);
    let known = store
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .and_then(|store| store.canonical_names(config.upstreams.iter().chain(&config.disabled)));
    let is_modern = |upstream: &UpstreamSettings| {
        let known = store.as_ref().ok().and_then(Option::as_ref);
        let known = known.and_then(|store| store.recall(&upstream.inventory_key()));
        known.is_some_and(|known| known.revision.era() == Era::Modern)
    };
    let silent = warn_of_silent_programs(config, is_modern);
    let warnings = loaded.warnings.iter().map(ToString::to_string).chain(preflight(config));
    let keys = store.as_ref().ok().and_then(Option::as_ref).map(StateDir::doubt_keys).unwrap_or_default();
    // Another user may run `serve`, so a store that this user cannot use is only a warning.
    let warnings = warnings.chain(store.err().map(|refused| refused.text));
    let mut told: Vec<String> = Vec::new();
    let silent = silent.into_iter().chain(warn_of_dropped_instructions(config));
    for warning in warnings.chain(keys).chain(silent).chain(find_doubts(config, known.as_deref())) {
        if !told.contains(&warning) {
            complain(&format!("warning: {}", foreign::line(&warning)));
            told.push(warning);
        }
    }
    let verdict = verdict(config, told.len());
    if args.resolved {
        // The last line is written as a comment, so that the output is a configuration.
        return print(&format!("{}{}\n# {verdict}\n", sources(config), show::render(config)));
    }
    let place = config.path.as_ref().map(|path| foreign::line(&path.display().to_string()).into_owned());
    let place = place.unwrap_or_else(|| "no configuration file: the built-in default with its demo servers".to_owned());
    let also: String =
        config.also.iter().map(|path| format!("{}\n", foreign::line(&path.display().to_string()))).collect();
    print(&format!("{place}\n{also}{verdict}\n"))
}

/// Builds the last line: the numbers of upstreams, rules and warnings.
fn verdict(config: &Config, warnings: usize) -> String {
    let mut parts = vec![count(config.upstreams.len(), "upstream"), count(config.policy.rules.len(), "rule")];
    if warnings > 0 {
        parts.push(count(warnings, "warning"));
    }
    format!("ok: {}", parts.join(", "))
}

/// Lists the merged files as comments; empty for a single file.
fn sources(config: &Config) -> String {
    if config.also.is_empty() {
        return String::new();
    }
    let files = config.path.iter().chain(&config.also).map(|file| file.display().to_string());
    files.map(|file| format!("# {}\n", foreign::line(&file))).collect::<String>() + "\n"
}
