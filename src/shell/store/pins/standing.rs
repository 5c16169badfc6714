//! Tools with what their pins say about them, for rules over claims.

use std::collections::HashMap;

use super::PinRegistry;
use crate::catalog::name::UpstreamName;
use crate::mcp::definition::item::Definition;
use crate::policy::PinStatus;
use crate::store::pin_record::PinKind;

impl PinRegistry {
    /// Returns what the pins say about each of an upstream's tools, by name: whether the tool is
    /// new, and whether its text is in doubt.
    pub fn standings(&self, upstream: &UpstreamName, tools: &[Definition]) -> HashMap<String, PinStatus> {
        let book = self.book();
        let launch = book.launch(upstream);
        let standing = |tool: &Definition| {
            let record = book.get(upstream, PinKind::Tool, &tool.key);
            let standing = record.map(|record| record.standing(launch, tool.digest)).unwrap_or_default();
            (tool.key.clone(), standing)
        };
        tools.iter().map(standing).collect()
    }
}
