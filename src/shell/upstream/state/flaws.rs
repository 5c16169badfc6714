//! The definitions of one upstream that were repaired or are withheld, since no schema of the protocol allows them: lines for the
//! operator.

use crate::catalog::inventory::{Flaw, Inventory};
use crate::mcp::method::List;
use crate::wire::foreign;

/// Lines that are kept; the others are counted.
const KEPT: usize = 50;
/// Characters of an item's name.
const NAME: usize = 200;

/// The flaws of an upstream's lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// Changes of definitions, those without a line included.
    pub repairs: usize,
    /// The first of them and of the items that are withheld.
    pub lines: Vec<String>,
    pub more: usize,
}

impl Flaws {
    pub fn of(inventory: &Inventory) -> Self {
        let mut flaws = Self::default();
        for flaw in inventory.flaws() {
            flaws.repairs += usize::from(!flaw.is_withheld);
            if flaws.lines.len() < KEPT { flaws.lines.push(line(&flaw)) } else { flaws.more += 1 }
        }
        flaws
    }
}

fn line(flaw: &Flaw<'_>) -> String {
    let kind = match flaw.list {
        List::Tools => "tool",
        List::Prompts => "prompt",
        List::Resources => "resource",
        List::Templates => "resource template",
    };
    let verb = if flaw.is_withheld { "withheld: " } else { "" };
    format!("{kind} `{}`: {verb}{}", foreign::short(flaw.key, NAME), flaw.line)
}
