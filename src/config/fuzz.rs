//! Properties of the configuration that hold for any text.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a property fails by panicking")]

use std::path::Path;

use super::{Config, find_doubts, parse, show};
use crate::policy::Policy;
use crate::source::secret;

/// The value of every variable and file.
const CANARY: &str = "canary-7f3a91c4e2b8d605-canary";

fn read(text: &str) -> Option<Config> {
    let file = |_: &Path| Ok(CANARY.to_owned());
    match parse(text, "fuzz", &|_| Some(CANARY.to_owned()), &file) {
        Ok((config, warnings)) => {
            warnings.iter().for_each(|warning| assert!(!warning.to_string().contains(CANARY), "{warning}"));
            Some(config)
        }
        Err(problems) => {
            assert!(!problems.0.is_empty());
            assert!(!problems.to_string().contains(CANARY), "{problems}");
            None
        }
    }
}

/// Checks that an accepted configuration has a policy, is shown without its secrets, and that the
/// shown text is an equal configuration.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains("canary") {
        return;
    }
    let Some(config) = read(text) else { return };
    assert!(Policy::build(&config.policy).is_ok());
    let _some = find_doubts(&config, Some(&["up__tool".to_owned()]));
    let shown = show::render(&config);
    assert!(!shown.contains("canary"), "{shown}");
    let values = |shown: &str| toml::from_str::<toml::Table>(shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    let table = values(&shown);
    if shown.contains(secret::REDACTED) {
        return;
    }
    let again = read(&shown).unwrap_or_else(|| panic!("{text}\nis shown as\n{shown}"));
    assert_eq!(values(&show::render(&again)), table);
}
