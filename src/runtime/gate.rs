//! What has to be on disk before a call goes upstream: the record of its decision, and the use of a consent for one call.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::engine::call::{Executed, Failure, Reason};
use crate::policy::consent::Grant;
use crate::runtime::audit::Recorded;
use crate::runtime::ledger::Ledger;

/// Opens when everything is written. Waiting may be broken off and begun again; the work goes on where it was.
pub(crate) struct Gate(BoxFuture<'static, Result<(), Failure>>);

impl Gate {
    /// `None` where there is nothing to wait for.
    pub(crate) fn new(ledger: &Arc<Ledger>, recorded: Recorded, grant: Option<&Arc<Grant>>) -> Option<Self> {
        let once = grant.filter(|grant| grant.is_once()).map(|grant| (Arc::clone(ledger), Arc::clone(grant)));
        if once.is_none() && matches!(recorded, Recorded::Accepted) {
            return None;
        }
        Some(Self(Box::pin(async move {
            let unrecorded = |text: &str| Failure::new(Reason::Unrecorded, Executed::No, text);
            recorded.written().await.map_err(|_| unrecorded("The call could not be recorded, so it was not made."))?;
            if let Some((ledger, grant)) = once {
                // After the record: a consent is not used up by a call that is refused for want of space.
                let consumed = ledger.consume(&grant).await;
                consumed.map_err(|_| {
                    unrecorded("The approval of this call was used already, or its use could not be kept.")
                })?;
            }
            Ok(())
        })))
    }

    /// Waits. After an error the call must not be made.
    ///
    /// # Errors
    /// [`Reason::Unrecorded`].
    pub(crate) async fn pass(&mut self) -> Result<(), Failure> {
        (&mut self.0).await
    }
}
