//! What tools are said to do, under the names that configurations use.

use crate::mcp::annotations::Hints;

use super::file::Table;

/// Reads the four hints; those that are not written stay open.
pub(super) fn hints(table: &mut Table<'_>) -> Hints {
    Hints {
        read_only: table.boolean("read-only"),
        destructive: table.boolean("destructive"),
        idempotent: table.boolean("idempotent"),
        open_world: table.boolean("open-world"),
    }
}
