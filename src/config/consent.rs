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

/// The operator's commands that may answer approvals and decide pins; later ones are stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub(crate) enum Operator {
    /// All, of our own user and root.
    #[default]
    Any,
    /// Those on a terminal, by a code that it shows and that is typed there.
    Terminal,
    /// None: answers come from the console's page alone.
    None,
}

impl Operator {
    /// As it is kept in the store, for commands without a daemon.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Any => 0,
            Self::Terminal => 1,
            Self::None => 2,
        }
    }

    /// Of a kept number; a later program's is the strictest.
    pub(crate) const fn of_number(number: u64) -> Self {
        match number {
            0 => Self::Any,
            1 => Self::Terminal,
            _ => Self::None,
        }
    }
}

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
    pub(crate) operator: Operator,
}

impl Default for Consent {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            prompt_life: Duration::from_secs(900),
            max_open: 20,
            per_minute: 3,
            unused_expiry: 90 * DAY,
            operator: Operator::Any,
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
            operator: table.choice("operator").unwrap_or(default.operator),
        };
        table.finish();
        consent
    }
}
