//! Tools with what their pins say about them, for rules over claims.

use std::collections::{HashMap, HashSet};

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

    /// Returns the original names of an upstream's tools that have pins.
    pub fn tool_names(&self, upstream: &UpstreamName) -> HashSet<String> {
        self.book().kind(upstream, PinKind::Tool).map(|(name, _)| name.clone()).collect()
    }
}
