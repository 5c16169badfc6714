//! Cursors of our own lists: a page of one generation for one viewer, authenticated, useless for any other.

use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;

use crate::mcp::method::List;

/// Signs and checks cursors.
#[derive(Clone, Debug)]
pub struct CursorKey(hmac::Key);

/// The viewer and list that a cursor is bound to.
#[derive(Clone, Copy, Debug)]
pub struct CursorScope<'a> {
    pub list: List,
    /// Of the snapshot. A cursor ends with it: offsets mean nothing in another list.
    pub generation: u64,
    pub caller: &'a str,
    /// Profile, or empty.
    pub view: &'a str,
}

const TAG_BYTES: usize = 16;

impl CursorKey {
    /// `secret` is random and lives as long as the process.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub fn seal(&self, scope: CursorScope<'_>, page: u32) -> String {
        let mut bytes = page.to_be_bytes().to_vec();
        bytes.extend(self.tag(scope, page));
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// The page of a cursor; `None` when it was not sealed for this scope.
    pub fn open(&self, scope: CursorScope<'_>, cursor: &str) -> Option<u32> {
        let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).ok()?;
        let (page, tag) = bytes.split_first_chunk::<4>()?;
        let page = u32::from_be_bytes(*page);
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.tag(scope, page), tag).ok()?;
        Some(page)
    }

    fn tag(&self, scope: CursorScope<'_>, page: u32) -> Vec<u8> {
        let text = format!("{}\0{}\0{page}\0{}\0{}", scope.list.member(), scope.generation, scope.caller, scope.view);
        let tag = hmac::sign(&self.0, text.as_bytes());
        tag.as_ref().iter().take(TAG_BYTES).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_opens_only_where_it_was_sealed() {
        let key = CursorKey::new(b"secret");
        let scope = CursorScope { list: List::Tools, generation: 3, caller: "a", view: "" };
        let cursor = key.seal(scope, 2);
        assert_eq!(key.open(scope, &cursor), Some(2));
        for (label, other) in [
            ("other caller", CursorScope { caller: "b", ..scope }),
            ("other list", CursorScope { list: List::Prompts, ..scope }),
            ("other generation", CursorScope { generation: 4, ..scope }),
            ("other view", CursorScope { view: "reader", ..scope }),
        ] {
            assert_eq!(key.open(other, &cursor), None, "{label}");
        }
        assert_eq!(CursorKey::new(b"other").open(scope, &cursor), None);
        for forged in ["", "AAAA", "%%%", &cursor[..10]] {
            assert_eq!(key.open(scope, forged), None, "{forged}");
        }
    }
}
