//! `headend check`.

use super::options::Common;
use super::output::{Failure, complain, print};
use super::source;
use crate::config::{doubts, preflight, show};
use crate::wire::foreign;

pub(super) fn run(common: &Common) -> Result<u8, Failure> {
    let loaded = source::load(common, &[])?;
    let config = &loaded.config;
    // Nothing is started to find out what there is; an earlier run may have kept it.
    let store = source::existing_store(common);
    let known = store.as_ref().ok().and_then(Option::as_ref).and_then(|store| store.canonical_names(&config.upstreams));
    let warnings = loaded.warnings.iter().map(ToString::to_string).chain(preflight(config));
    // The one who checks need not be the one who serves.
    let warnings = warnings.chain(store.err().map(|refused| refused.text));
    for warning in warnings.chain(doubts(config, known.as_deref())) {
        complain(&format!("warning: {}", foreign::line(&warning)));
    }
    print(&show::render(config))
}
