//! Operations on used states of calls. Every process enters uses.

use super::operation::DbOperation;
use crate::engine::sealed::state::StateUse;

/// Operations on used states of calls.
pub trait StateOperations {
    /// Enters the use of a state: true for exactly one caller over all processes and restarts, and
    /// for none once the state has expired. `now` is in seconds since 1970.
    fn use_state(&self, state: StateUse, now: u64) -> DbOperation<'_, bool>;

    /// Returns the uses of states that have not expired, at most so many.
    fn used_states(&self, now: u64, most: usize) -> DbOperation<'_, Vec<StateUse>>;
}
