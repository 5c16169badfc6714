//! The bound on the size of all inventories, and the text for an inventory beyond it.

use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::engine::lists::ListTrouble;
use crate::mcp::method::ItemList;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::state::unread::ListReaders;

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
pub(super) fn set_list_trouble(handle: &UpstreamHandle, inventory: &Inventory, why: Option<String>) {
    let trouble = why.map(|why| ListTrouble { why, attempts: 1, again: clock::now() });
    let refused = inventory.longest();
    for list in ItemList::ALL {
        let trouble = trouble.clone().filter(|_| list == refused);
        handle.unread.told(list, ListReaders::Gateway, trouble, &handle.health);
    }
}
