//! The items and texts that are withheld from clients, each with its reason.

use crate::catalog::name::{UpstreamName, canonical_name, canonical_uri};
use crate::mcp::method::ItemList;
use crate::wire::foreign;

/// The part of an upstream that is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WithheldPart {
    /// An item of this list.
    Item(ItemList),
    /// The app behind this view.
    App,
    /// The instructions of the upstream for clients.
    Instructions,
    /// Everything that it has.
    All,
}

/// A withheld item and the reason, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WithheldItem {
    pub upstream: UpstreamName,
    pub part: WithheldPart,
    /// The item's name or URI at the upstream, on one line.
    pub item: String,
    /// The name that clients would see, if the item has one.
    pub exposed: Option<String>,
    /// The state of the item's pin, if the pin is the reason.
    pub pin: Option<&'static str>,
    pub why: String,
}

impl WithheldItem {
    /// Returns the item's name in rules and commands.
    pub fn canonical(&self) -> String {
        match self.part {
            WithheldPart::Item(ItemList::Tools | ItemList::Prompts) => canonical_name(&self.upstream, &self.item),
            WithheldPart::Item(ItemList::Resources | ItemList::Templates) | WithheldPart::App => {
                canonical_uri(&self.upstream, &self.item)
            }
            WithheldPart::Instructions | WithheldPart::All => self.upstream.to_string(),
        }
    }

    /// Returns the reason and, if an operator can approve the item, the commands that show and
    /// approve it.
    pub fn told(&self) -> String {
        if self.pin.is_none() {
            return self.why.clone();
        }
        let name = self.canonical();
        let name = foreign::word(&name);
        format!("{}; look at it with `headend pins diff {name}`, then `headend pins approve {name}`", self.why)
    }
}
