//! `headend check`.

use super::options::Common;
use super::output::{Failure, complain, print};
use super::source;
use crate::config::{Config, Upstream, doubts, preflight, show, unasked};
use crate::mcp::version::Era;
use crate::wire::foreign;

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let loaded = source::load(common, &[])?;
    let config = &loaded.config;
    // `check` starts no upstream; an earlier run may have kept the catalog.
    let store = source::existing_store(common);
    let known = store
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .and_then(|store| store.canonical_names(config.upstreams.iter().chain(&config.disabled)));
    let is_modern = |upstream: &Upstream| {
        let known = store.as_ref().ok().and_then(Option::as_ref);
        let known = known.and_then(|store| store.recall(&upstream.launch_identity()));
        known.is_some_and(|known| known.revision.era() == Era::Modern)
    };
    let silent = unasked(config, is_modern);
    let warnings = loaded.warnings.iter().map(ToString::to_string).chain(preflight(config));
    // Another user may run `serve`, so a store that this user cannot use is only a warning.
    let warnings = warnings.chain(store.err().map(|refused| refused.text));
    for warning in warnings.chain(silent).chain(doubts(config, known.as_deref())) {
        complain(&format!("warning: {}", foreign::line(&warning)));
    }
    print(&format!("{}{}", sources(config), show::render(config)))
}

/// The files that were merged, as comments; nothing where there is one file.
fn sources(config: &Config) -> String {
    if config.also.is_empty() {
        return String::new();
    }
    let files = config.path.iter().chain(&config.also).map(|file| file.display().to_string());
    files.map(|file| format!("# {}\n", foreign::line(&file))).collect::<String>() + "\n"
}
