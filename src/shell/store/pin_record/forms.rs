//! The kept texts of a pin, as a listed item is compared with them. Each is read once, when an item first differs from it.
//!
//! A digest leaves out order that means nothing, and is of the repaired definition. Digests that 0.1.0 wrote are exact and of the
//! definition as it came; grants are bound to them, so they stay, and the text beside them says what they mean.

use std::sync::{Arc, OnceLock};

use crate::mcp::item::Definition;
use crate::mcp::method::List;
use crate::policy::Digest;
use crate::wire::raw::RawJson;

/// A listed item, as far as its pin is compared with it.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    pub list: List,
    pub digest: Digest,
    /// Order included.
    pub exact: Digest,
}

impl Listed {
    pub fn of(item: &Definition) -> Self {
        Self { list: item.list, digest: item.digest, exact: item.exact }
    }
}

/// The pinned and the waiting text.
#[derive(Clone, Debug, Default)]
pub struct Forms {
    approved: Form,
    waiting: Form,
}

/// One text.
#[derive(Clone, Debug, Default)]
struct Form {
    /// Of the text as it is kept.
    bytes: OnceLock<Digest>,
    read: OnceLock<Option<Read>>,
}

/// A text, read as a definition is read today.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// Of the text, as 0.1.0 took it.
    plain: Digest,
    digest: Digest,
    exact: Digest,
}

/// A text that may be there, beside what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'r> {
    text: Option<&'r Arc<str>>,
    form: &'r Form,
}

impl Forms {
    pub fn approved<'r>(&'r self, text: Option<&'r Arc<str>>) -> Kept<'r> {
        Kept { text, form: &self.approved }
    }

    pub fn waiting<'r>(&'r self, text: Option<&'r Arc<str>>) -> Kept<'r> {
        Kept { text, form: &self.waiting }
    }
}

impl Kept<'_> {
    /// Whether an item is this text, order included.
    pub fn is_exactly(self, listed: Listed) -> bool {
        let Some(text) = self.text else { return false };
        // Texts are kept in their canonical form.
        *self.form.bytes.get_or_init(|| Digest::of(text.as_bytes())) == listed.exact
            || self.read(listed.list).is_some_and(|read| read.exact == listed.exact)
    }

    /// Whether an item is this text, whose digest was written down as that.
    pub fn is_of(self, digest: Digest, listed: Listed) -> bool {
        if digest == listed.digest {
            return true;
        }
        let read = self.read(listed.list);
        // A text that is not of its digest says nothing about it.
        read.is_some_and(|read| read.digest == listed.digest && [read.plain, read.digest].contains(&digest))
    }

    fn read(self, list: List) -> Option<Read> {
        let read = || {
            let raw = RawJson::checked(self.text?.to_string()).ok()?;
            let item = Definition::read(list, &raw).ok()?;
            Some(Read { plain: Digest::of_json(&raw), digest: item.digest, exact: item.exact })
        };
        *self.form.read.get_or_init(read)
    }
}
