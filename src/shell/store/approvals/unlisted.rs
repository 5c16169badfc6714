//! The line about open approvals that other processes cannot see.

use crate::base::clock;
use crate::base::tally::Tally;
use crate::store::db::DbError;

/// Lines about prompts that are not entered.
static UNLISTED: Tally = Tally::of(1);

/// A prompt that is not entered is only not seen by other processes.
pub(super) fn unlisted(outcome: Result<(), DbError>) {
    if let Err(error) = outcome
        && !error.is_unwritable()
        && let Some(count) = UNLISTED.count(clock::uptime())
    {
        tracing::warn!(error = %error, count, "open approvals cannot be listed for other processes");
    }
}
