//! The `[policy.consent]` table.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::file::Table;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A person may sit before a client that holds a stream open, but not for ever.
const TIMEOUT: RangeInclusive<Duration> = SECOND..=HOUR;
const PROMPT_LIFE: RangeInclusive<Duration> = SECOND..=DAY;
const UNUSED: RangeInclusive<Duration> = HOUR..=Duration::from_secs(3660 * 24 * 3600);
const COUNT: RangeInclusive<usize> = 1..=100;

/// How headend asks for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consent {
    /// How long a call waits for the answer of its own client.
    pub(crate) timeout: Duration,
    /// How long the console and the command line can answer an approval.
    pub(crate) prompt_life: Duration,
    /// Open approvals of one caller.
    pub(crate) max_open: usize,
    /// Approvals of one caller that may end without an answer in a minute.
    pub(crate) per_minute: usize,
    /// A grant expires when it is unused for so long.
    pub(crate) unused_expiry: Duration,
}

impl Default for Consent {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            prompt_life: Duration::from_secs(900),
            max_open: 20,
            per_minute: 3,
            unused_expiry: 90 * DAY,
        }
    }
}

impl Consent {
    pub(super) fn read(table: Option<Table<'_>>) -> Self {
        let default = Self::default();
        let Some(mut table) = table else { return default };
        let consent = Self {
            timeout: table.duration("timeout", &TIMEOUT).unwrap_or(default.timeout),
            prompt_life: table.duration("prompt-life", &PROMPT_LIFE).unwrap_or(default.prompt_life),
            max_open: table.count("max-open", &COUNT).unwrap_or(default.max_open),
            per_minute: table.count("per-minute", &COUNT).unwrap_or(default.per_minute),
            unused_expiry: table.duration("unused-expiry", &UNUSED).unwrap_or(default.unused_expiry),
        };
        table.finish();
        consent
    }
}
