//! Reads the audit log for commands about rules: its records up to an age, the latest first.

use std::time::Duration;

use time::OffsetDateTime;

use crate::cli::audit::{self, unreadable};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain};
use crate::config;
use crate::operator::audit::{AuditLog, PeriodSummary, ReadingTally};
use crate::policy::records::chain::{AuditLine, timestamp};
use crate::wire::foreign;

/// Most that a clock may have been set back, so that later records precede earlier ones.
const SLACK: Duration = Duration::from_secs(3600);

/// Parses an age such as `7d`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let age = config::parse_duration(text).filter(|age| !age.is_zero());
    age.ok_or_else(|| "must be a time such as 7d or 12h".to_owned())
}

/// The audit log from some time on.
#[derive(Debug)]
pub(super) struct AuditWindow {
    log: AuditLog,
    /// Date of the oldest record that counts; reading continues to the earlier date `end`.
    since: String,
    end: String,
}

impl AuditWindow {
    /// Opens the audit log of the configuration in force, for records up to this age.
    ///
    /// # Errors
    /// 78 if the environment names no state directory.
    pub(super) fn of(common: &CommonOptions, age: Duration) -> Result<Self, CommandFailure> {
        let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default();
        let date = |age: Duration| timestamp(now.saturating_sub(age.as_secs()).saturating_mul(1000));
        Ok(Self { log: audit::log(common)?, since: date(age), end: date(age.saturating_add(SLACK)) })
    }

    /// Passes all records that count to `take`, the latest first, and counts damaged lines.
    ///
    /// # Errors
    /// 70 if the folder cannot be read.
    pub(super) fn read(&self, take: &mut dyn FnMut(&AuditLine<'_>)) -> Result<PeriodSummary, CommandFailure> {
        self.log.read(&self.since, &self.end, take).map_err(|error| unreadable(&self.log, &error))
    }
}

/// Formats the period that was read: `2026-11-16 10:15 to 2026-11-23 09:40 UTC`.
pub(super) fn period(read: &PeriodSummary) -> Option<String> {
    let minute = |date: &String| date.get(..16).unwrap_or(date).replace('T', " ");
    Some(format!("{} to {} UTC", minute(read.from.as_ref()?), minute(read.to.as_ref()?)))
}

/// Prints to stderr which parts of the log could not be read.
pub(super) fn warn(ReadingTally { damaged, example, unread, why, .. }: &ReadingTally) {
    if *damaged > 0 {
        let place = example.as_deref().unwrap_or("-");
        complain(&format!(
            "{damaged} damaged {} left out, the first in {}; run headend audit verify",
            if *damaged == 1 { "line was" } else { "lines were" },
            foreign::line(place)
        ));
    }
    if let Some(why) = why {
        complain(&format!(
            "{unread} {} not read: {}",
            if *unread == 1 { "chain was" } else { "chains were" },
            foreign::line(why)
        ));
    }
}
