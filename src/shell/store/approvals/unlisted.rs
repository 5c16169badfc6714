//! The log line about open approvals that other processes cannot see.

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::store::db::DbError;

/// Rate limit of the log line that [`log_unlisted`] writes.
static UNLISTED: LogTally = LogTally::of(1);

/// Logs, at a bounded rate, that an approval could not be written to the store. The only effect is
/// that other processes do not see it. Says nothing while the store takes no writes, which it logs
/// itself.
pub(super) fn log_unlisted(outcome: Result<(), DbError>) {
    if let Err(error) = outcome
        && !error.is_unwritable()
        && let Some(count) = UNLISTED.count(clock::uptime())
    {
        tracing::warn!(error = %error, count, "open approvals cannot be listed for other processes");
    }
}
