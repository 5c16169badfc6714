//! Reads tool annotations under the names of the configuration.

use crate::mcp::definition::annotations::Hints;

use crate::source::file::ConfigTable;

/// Reads the four hints. An absent one stays unset.
pub(crate) fn hints(table: &mut ConfigTable<'_>) -> Hints {
    Hints {
        read_only: table.boolean("read-only"),
        destructive: table.boolean("destructive"),
        idempotent: table.boolean("idempotent"),
        open_world: table.boolean("open-world"),
    }
}
