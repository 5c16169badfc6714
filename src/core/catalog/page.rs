//! Cursors of headend's own lists. A cursor names a page of one list for one viewer; it is
//! authenticated and useless to any other viewer.
//!
//! A cursor names its list by content. It works as long as the list is the same, also after a
//! restart, and no longer, since page numbers mean nothing in another list.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::catalog::holder::SealHolder;
use crate::mcp::method::ItemList;
use crate::wire::digest::Digest;
use crate::wire::secrets::SealSecrets;

/// Lifetime of a cursor.
pub const LIFE: Duration = Duration::from_secs(24 * 3600);

/// The keys that sign and check cursors. The first one signs.
#[derive(Clone, Debug)]
pub struct CursorKey(Vec<hmac::Key>);

/// The viewer and the list that a cursor is bound to.
#[derive(Clone, Copy, Debug)]
pub struct CursorScope<'a> {
    pub list: ItemList,
    pub holder: SealHolder<'a>,
}

/// Length of the truncated authentication tag, in bytes.
const TAG_BYTES: usize = 16;

impl CursorKey {
    pub fn new(secrets: &SealSecrets) -> Self {
        Self(secrets.all().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect())
    }

    /// Returns the cursor to a page of the list with this content. `now` is the time since 1970.
    pub fn seal(&self, scope: CursorScope<'_>, content: &Digest, page: u32, now: Duration) -> String {
        let mut bytes = page.to_be_bytes().to_vec();
        bytes.extend_from_slice(&now.saturating_add(LIFE).as_secs().to_be_bytes());
        let tag = self.0.first().map(|key| tag(key, scope, content, &bytes));
        bytes.extend_from_slice(tag.as_ref().map(head).unwrap_or_default());
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// Returns the page number of a cursor. Returns `None` if the cursor was not sealed for this
    /// scope and content, or has expired.
    pub fn open(&self, scope: CursorScope<'_>, content: &Digest, cursor: &str, now: Duration) -> Option<u32> {
        let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).ok()?;
        let (told, given) = bytes.split_at_checked(12)?;
        let (page, until) = told.split_first_chunk::<4>()?;
        let fits = |key: &hmac::Key| {
            let tag = tag(key, scope, content, told);
            head(&tag).ct_eq(given).into()
        };
        let until = u64::from_be_bytes(until.try_into().ok()?);
        (self.0.iter().any(fits) && now.as_secs() < until).then(|| u32::from_be_bytes(*page))
    }
}

/// Computes the authentication tag of a cursor's page and expiry (`told`) in its scope.
fn tag(key: &hmac::Key, scope: CursorScope<'_>, content: &Digest, told: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(told);
    context.update(content.bytes());
    context.update(&scope.holder.bytes());
    context.update(scope.list.member().as_bytes());
    context.sign()
}

/// Returns the first [`TAG_BYTES`] of a tag.
fn head(tag: &hmac::Tag) -> &[u8] {
    tag.as_ref().get(..TAG_BYTES).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::version::{Era, Revision};

    const NOW: Duration = Duration::from_secs(1_000_000);

    #[test]
    fn a_cursor_opens_only_where_it_was_sealed() {
        let key = CursorKey::new(&SealSecrets::new([1; 32]));
        let revision = Revision::preferred(Era::Modern);
        let holder = SealHolder { caller: "a", kind: "token", profile: "", revision, capabilities: 0 };
        let (scope, content) = (CursorScope { list: ItemList::Tools, holder }, Digest::of(b"the list"));
        let cursor = key.seal(scope, &content, 2, NOW);
        assert_eq!(key.open(scope, &content, &cursor, NOW), Some(2));
        let with = |holder: SealHolder<'static>| CursorScope { holder, ..scope };
        for (label, other) in [
            ("other caller", with(SealHolder { caller: "b", ..holder })),
            ("other kind", with(SealHolder { kind: "pipe", ..holder })),
            ("other list", CursorScope { list: ItemList::Prompts, ..scope }),
            ("other view", with(SealHolder { profile: "reader", ..holder })),
            ("other revision", with(SealHolder { revision: Revision::preferred(Era::Legacy), ..holder })),
            ("other capabilities", with(SealHolder { capabilities: 1, ..holder })),
        ] {
            assert_eq!(key.open(other, &content, &cursor, NOW), None, "{label}");
        }
        assert_eq!(key.open(scope, &Digest::of(b"another list"), &cursor, NOW), None);
        assert_eq!(key.open(scope, &content, &cursor, NOW + LIFE - Duration::from_secs(1)), Some(2));
        assert_eq!(key.open(scope, &content, &cursor, NOW + LIFE), None, "too late");
        for forged in ["", "AAAA", "%%%", &cursor[..10], &cursor[..16], &cursor[..36]] {
            assert_eq!(key.open(scope, &content, forged, NOW), None, "{forged}");
        }
        let later = CursorKey::new(&SealSecrets { current: [2; 32], earlier: vec![[1; 32]] });
        assert_eq!(later.open(scope, &content, &cursor, NOW), Some(2), "of an earlier key");
        assert_eq!(CursorKey::new(&SealSecrets::new([2; 32])).open(scope, &content, &cursor, NOW), None);
        assert_ne!(later.seal(scope, &content, 2, NOW), cursor, "the current key seals");
    }
}
