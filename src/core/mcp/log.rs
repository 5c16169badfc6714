//! Log messages of servers: their levels, and the form in which clients get them.
//!
//! Source: MCP server/utilities/logging, all revisions.

use std::sync::atomic::{AtomicU8, Ordering};
use strum::VariantArray as _;

use crate::wire::json::raw::{RawJson, RawObject};

/// The severity of a log message, least first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// Reads a level as the protocol writes it; `None` for anything else.
    pub fn read(raw: &RawJson) -> Option<Self> {
        raw.parse::<String>().ok()?.parse().ok()
    }
}

/// The level that a legacy client has set for its session, shared between threads.
#[derive(Debug)]
pub struct SessionLogLevel(AtomicU8);

/// The stored value for no level.
const UNSET: u8 = u8::MAX;

impl Default for SessionLogLevel {
    fn default() -> Self {
        Self(AtomicU8::new(UNSET))
    }
}

impl SessionLogLevel {
    pub fn set(&self, level: LogLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// Sets the level if it is finer than the current one; returns whether it was.
    pub fn lower(&self, level: LogLevel) -> bool {
        self.0.fetch_min(level as u8, Ordering::Relaxed) > level as u8
    }

    /// Resets to no level.
    pub fn forget(&self) {
        self.0.store(UNSET, Ordering::Relaxed);
    }

    pub fn get(&self) -> Option<LogLevel> {
        LogLevel::VARIANTS.iter().copied().find(|level| *level as u8 == self.0.load(Ordering::Relaxed))
    }
}

/// Writes `params` of a log message for a client that wants `least` and above, with the server's
/// name in front of the logger's. `None` for a message below that level, and for a malformed one.
pub fn write_for_client(params: &RawJson, least: LogLevel, upstream: &str) -> Option<RawJson> {
    let mut message = RawObject::parse(params).ok()?;
    if message.get("level").and_then(LogLevel::read)? < least || message.get("data").is_none() {
        return None;
    }
    message.retain(|name| matches!(name, "level" | "logger" | "data"));
    let logger = match message.string("logger") {
        Some(logger) => format!("{upstream}/{logger}"),
        None => upstream.to_owned(),
    };
    message.set("logger", RawJson::string(&logger));
    Some(message.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_what_it_wants_with_the_servers_name() {
        let show = |text: &'static str, least| {
            write_for_client(&RawJson::trusted(text), least, "git").map(|raw| raw.text().into_owned())
        };
        let named = show(r#"{"level":"warning","logger":"db","data":{"a":1}}"#, LogLevel::Info);
        assert_eq!(named.as_deref(), Some(r#"{"level":"warning","logger":"git/db","data":{"a":1}}"#));
        let bare = show(r#"{"level":"info","data":"x"}"#, LogLevel::Info);
        assert_eq!(bare.as_deref(), Some(r#"{"level":"info","data":"x","logger":"git"}"#));
        for (label, text) in [
            ("too fine", r#"{"level":"debug","data":1}"#),
            ("no level", r#"{"data":1}"#),
            ("unknown level", r#"{"level":"loud","data":1}"#),
            ("no data", r#"{"level":"error"}"#),
        ] {
            assert_eq!(show(text, LogLevel::Info), None, "{label}");
        }
    }

    #[test]
    fn a_switch_remembers_the_last_level() {
        let switch = SessionLogLevel::default();
        assert_eq!(switch.get(), None);
        for &level in LogLevel::VARIANTS {
            switch.set(level);
            assert_eq!(switch.get(), Some(level));
        }
    }
}
