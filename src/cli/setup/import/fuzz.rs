//! Properties of the import that hold for any file of a host.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a property fails by panicking")]

use std::path::PathBuf;

use super::{SilentDefault, converted};
use crate::config;

/// Checks that the import of any file is a valid configuration, whose rest is comments.
pub(crate) fn import(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for path in ["/home/a/project/.vscode/mcp.json", "/home/a/.codex/config.toml", "/home/a/.config/goose/config.yaml"]
    {
        imported(PathBuf::from(path), text);
    }
}

fn imported(path: PathBuf, text: &str) {
    let Ok(out) = converted(&[(path, text.to_owned())], Some("/home/a"), SilentDefault::Ask) else { return };
    let there = |_: &str| Some("value-of-a-variable".to_owned());
    let checked = config::parse(&out, "imported", &there, &|_| Ok("value-of-a-file".to_owned()));
    let (config, _) = checked.unwrap_or_else(|problems| panic!("{problems}\n{out}"));
    assert!(config.policy_stated);
    let tables = out.lines().filter(|line| line.starts_with("[upstreams.")).count();
    assert_eq!(tables, config.upstreams.len() + config.disabled.len(), "{out}");
}
