//! Operations on pins. Every process takes steps; each is taken from the record that is there at
//! this moment. A number counts the changes, by which processes notice those of others.

use super::error::DbError;
use super::operation::DbOperation;
use crate::policy::PinDecisionError;
use crate::store::pin_record::{PinKey, PinRecord, PinStep};

/// All pins of a store, with the number of changes that are in them.
pub type PinTable = (u64, Vec<(PinKey, PinRecord)>);

/// The result of one step on a pin: the new record, or the reason why the step does not apply.
pub type PinStepResult = (PinKey, Result<PinRecord, PinDecisionError>);

/// The results of steps, and the number of changes before and after them.
#[derive(Debug)]
pub struct PinStepResults {
    pub stepped: Vec<PinStepResult>,
    pub before: u64,
    pub after: u64,
}

/// Operations on pins. The texts of launches whose URL has a query are sealed; the digests beside
/// them, which decide, are not.
pub trait PinOperations {
    /// Seals private texts with the current key, and returns all pins. Blocks.
    ///
    /// # Errors
    /// When they cannot be read; none is left out.
    fn open_pins(&self) -> Result<PinTable, DbError>;

    /// Returns all pins, if their number of changes is not `known`.
    fn pins_changed(&self, known: u64) -> DbOperation<'_, Option<PinTable>>;

    /// Removes pins, then takes steps from the records in the store, which another process may have
    /// changed. Returns the results in order.
    fn take_steps(
        &self,
        steps: Vec<(PinKey, PinStep)>,
        forget: Vec<PinKey>,
        now: u64,
    ) -> DbOperation<'_, PinStepResults>;
}
