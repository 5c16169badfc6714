//! The room for the inventories of all upstreams.

use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::engine::lists::Trouble;
use crate::mcp::method::List;
use crate::upstream::session::handle::Handle;
use crate::upstream::state::unread::Readers;

/// Bytes that the inventories of all upstreams may have together.
pub(super) const MAX_INVENTORY_BYTES: usize = 256 << 20;

/// Says that an inventory is refused, and what to do.
pub(super) fn too_many_bytes(bytes: usize) -> String {
    let most = MAX_INVENTORY_BYTES >> 20;
    format!(
        "its lists take {bytes} bytes, and those of all upstreams may take {most} MiB together; \
         set `max-inventory` of this upstream or of others to a smaller number"
    )
}

/// Tells why an inventory is refused, or that it is taken.
pub(super) fn refuse(handle: &Handle, inventory: &Inventory, why: Option<String>) {
    let trouble = why.map(|why| Trouble { why, attempts: 1, again: clock::now() });
    let refused = inventory.longest();
    for list in List::ALL {
        let trouble = trouble.clone().filter(|_| list == refused);
        handle.unread.told(list, Readers::Gateway, trouble, &handle.health);
    }
}
