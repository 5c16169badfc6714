//! The directory of the replicas on a stage, in memory.

use std::cell::RefCell;
use std::sync::Arc;

use crate::store::port::MemoryReplicas;

thread_local! {
    static REPLICAS: RefCell<Option<Arc<MemoryReplicas>>> = const { RefCell::new(None) };
}

/// Makes this the directory of all gateways of this thread; `None` leaves them with their stores.
pub fn install(replicas: Option<Arc<MemoryReplicas>>) {
    REPLICAS.set(replicas);
}

/// Returns the directory of this thread.
pub fn installed() -> Option<Arc<MemoryReplicas>> {
    REPLICAS.with_borrow(Option::clone)
}
