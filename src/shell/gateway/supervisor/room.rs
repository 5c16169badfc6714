//! The bound on the size of all inventories, and the text for an inventory beyond it.

use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::engine::lists::Trouble;
use crate::mcp::method::List;
use crate::upstream::session::handle::Handle;
use crate::upstream::state::unread::Readers;

/// Bound on the size of all inventories together, in bytes.
pub(super) const MAX_INVENTORY_BYTES: usize = 256 << 20;

/// Words the refusal of an inventory: why, and what to do.
pub(super) fn too_many_bytes(bytes: usize) -> String {
    let most = MAX_INVENTORY_BYTES >> 20;
    format!(
        "its lists take {bytes} bytes, and those of all upstreams may take {most} MiB together; \
         set `max-inventory` of this upstream or of others to a smaller number"
    )
}

/// Sets the trouble of an upstream's longest list to `why`, or clears that of all lists if `None`.
pub(super) fn refuse(handle: &Handle, inventory: &Inventory, why: Option<String>) {
    let trouble = why.map(|why| Trouble { why, attempts: 1, again: clock::now() });
    let refused = inventory.longest();
    for list in List::ALL {
        let trouble = trouble.clone().filter(|_| list == refused);
        handle.unread.told(list, Readers::Gateway, trouble, &handle.health);
    }
}
