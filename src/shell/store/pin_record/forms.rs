//! Comparison of listed items with the stored texts of a pin. Each text is parsed once, when an
//! item first differs from it.
//!
//! A digest is that of the repaired definition without order that has no meaning. Digests of
//! release 0.1.0 are exact and of the definition as it was listed. Grants are bound to them, so
//! they stay, and the stored text shows which definition they mean.

use std::sync::{Arc, OnceLock};

use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::policy::Digest;
use crate::wire::json::raw::RawJson;

/// The parts of a listed item that are compared with its pin.
#[derive(Clone, Copy, Debug)]
pub struct ListedDefinition {
    /// The item's list; `None` for a text that is no definition, which is compared as it is.
    pub list: Option<ItemList>,
    pub digest: Digest,
    /// Digest that includes the order.
    pub exact: Digest,
}

impl ListedDefinition {
    pub fn of(item: &Definition) -> Self {
        Self { list: Some(item.list), digest: item.digest, exact: item.exact }
    }

    /// Describes a text that is no definition.
    pub fn plain(digest: Digest) -> Self {
        Self { list: None, digest, exact: digest }
    }
}

/// Results of parsing the approved and the waiting text of a pin.
#[derive(Clone, Debug, Default)]
pub struct PinTextForms {
    approved: PinTextForm,
    waiting: PinTextForm,
}

/// Results of parsing one text, each computed at first use.
#[derive(Clone, Debug, Default)]
struct PinTextForm {
    /// Digest of the text as it is stored.
    bytes: OnceLock<Digest>,
    read: OnceLock<Option<ParsedPinText>>,
}

/// The digests of a text, parsed as a definition is today.
#[derive(Clone, Copy, Debug)]
struct ParsedPinText {
    /// Digest as release 0.1.0 computed it.
    plain: Digest,
    digest: Digest,
    exact: Digest,
}

/// A stored text, which may be missing, with the results of parsing it.
#[derive(Clone, Copy, Debug)]
pub struct ComparedPinText<'r> {
    text: Option<&'r Arc<str>>,
    form: &'r PinTextForm,
}

impl PinTextForms {
    pub fn approved<'r>(&'r self, text: Option<&'r Arc<str>>) -> ComparedPinText<'r> {
        ComparedPinText { text, form: &self.approved }
    }

    pub fn waiting<'r>(&'r self, text: Option<&'r Arc<str>>) -> ComparedPinText<'r> {
        ComparedPinText { text, form: &self.waiting }
    }
}

impl ComparedPinText<'_> {
    /// Returns true if an item is this text, including the order.
    pub fn is_exactly(self, listed: ListedDefinition) -> bool {
        let Some(text) = self.text else { return false };
        // Texts are stored in their canonical form.
        *self.form.bytes.get_or_init(|| Digest::of(text.as_bytes())) == listed.exact
            || self.read(listed.list).is_some_and(|read| read.exact == listed.exact)
    }

    /// Returns true if an item is this text without regard to order and repairs. `digest` is the
    /// digest under which the text was stored.
    pub fn is_of(self, digest: Digest, listed: ListedDefinition) -> bool {
        if digest == listed.digest {
            return true;
        }
        let read = self.read(listed.list);
        // If the text does not match its digest, it says nothing about it.
        read.is_some_and(|read| read.digest == listed.digest && [read.plain, read.digest].contains(&digest))
    }

    fn read(self, list: Option<ItemList>) -> Option<ParsedPinText> {
        let list = list?;
        let read = || {
            let raw = RawJson::checked(self.text?.to_string()).ok()?;
            let item = Definition::read(list, &raw).ok()?;
            Some(ParsedPinText { plain: Digest::of_json(&raw), digest: item.digest, exact: item.exact })
        };
        *self.form.read.get_or_init(read)
    }
}
