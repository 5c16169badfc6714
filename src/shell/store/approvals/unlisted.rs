//! The wait for an approval's place in the list of open ones, and the log line about those that
//! other processes cannot see.

use tokio::sync::oneshot;

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::policy::consent::ApprovalId;
use crate::store::db::DbError;

/// Receives the id of an approval in the store of a cluster; `None` if it cannot be kept.
pub(super) type ListedId = oneshot::Receiver<Option<ApprovalId>>;

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
