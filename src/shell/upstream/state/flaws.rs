//! Lines for the operator about the definitions of one upstream that were repaired or withheld
//! because they violate the protocol's schemas.

use crate::catalog::inventory::{DefinitionFlaw, Inventory};
use crate::mcp::method::ItemList;
use crate::wire::foreign;

/// Most lines that are kept; further ones are counted.
const KEPT: usize = 50;
/// Most characters of an item's name.
const NAME: usize = 200;

/// The flaws in an upstream's lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFlaws {
    /// Number of repairs, including those without a line.
    pub repairs: usize,
    /// Lines about the first flaws: repairs and withheld items.
    pub lines: Vec<String>,
    pub more: usize,
}

impl ListFlaws {
    pub fn of(inventory: &Inventory) -> Self {
        let mut flaws = Self::default();
        for flaw in inventory.flaws() {
            flaws.repairs += usize::from(!flaw.is_withheld);
            if flaws.lines.len() < KEPT { flaws.lines.push(line(&flaw)) } else { flaws.more += 1 }
        }
        flaws
    }
}

fn line(flaw: &DefinitionFlaw<'_>) -> String {
    let kind = match flaw.list {
        ItemList::Tools => "tool",
        ItemList::Prompts => "prompt",
        ItemList::Resources => "resource",
        ItemList::Templates => "resource template",
    };
    let verb = if flaw.is_withheld { "withheld: " } else { "" };
    format!("{kind} `{}`: {verb}{}", foreign::short(flaw.key, NAME), flaw.line)
}
