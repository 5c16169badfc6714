//! Rendered lists: the bytes of one list for clients of one revision, rendered once and shared
//! until the catalog changes.

use std::hash::{BuildHasher, Hasher};

use bytes::{BufMut, BytesMut};

use crate::catalog::merge::Catalog;
use crate::mcp::meta::{SERVER_INFO, implementation};
use crate::mcp::method::ItemList;
use crate::mcp::project;
use crate::mcp::version::{Era, Revision};
use crate::wire::digest::Digest;
use crate::wire::json::raw::RawJson;

/// Most items on a page. Some clients never ask for a second page, so one page has room for real
/// catalogs.
pub(crate) const PAGE_ITEMS: usize = 1000;

/// A rendered list: one complete `result` for each page.
#[derive(Debug)]
pub struct RenderedList {
    pub pages: Vec<RawJson>,
    /// Hash of the items; equal for equal content, in any generation.
    pub digest: u64,
    /// Digest of the items, to which cursors are bound. A list of one page has no cursors and no
    /// such digest.
    pub content: Option<Digest>,
}

/// Renders one list for clients of one revision.
///
/// `apps` says whether the clients declared Apps. `visible` says whether the caller may see the
/// entry with this index in the catalog. `cursor` seals the cursor to a page of the list with this
/// content. `ttl_ms` is the time in milliseconds for which a modern client may keep the list.
pub fn render(
    catalog: &Catalog,
    list: ItemList,
    revision: Revision,
    apps: bool,
    ttl_ms: u32,
    visible: impl Fn(usize) -> bool,
    cursor: impl Fn(&Digest, u32) -> String,
) -> RenderedList {
    let entries = catalog.entries().iter().enumerate();
    let items: Vec<Vec<u8>> = entries
        .filter(|(at, entry)| entry.list == list && visible(*at))
        .map(|(_, entry)| {
            let shown = project::project_definition(list, &entry.definition, &entry.exposed, revision, apps);
            let mut out = Vec::with_capacity(shown.encoded_len());
            shown.write_to(&mut out);
            out
        })
        .collect();
    let mut hasher = foldhash::fast::FixedState::with_seed(7).build_hasher();
    for item in &items {
        hasher.write(item);
        hasher.write_u8(0);
    }
    let count = items.len().div_ceil(PAGE_ITEMS).max(1);
    let content = (count > 1).then(|| content_of(&items));
    let pages = (0..count)
        .map(|page| {
            let from = page * PAGE_ITEMS;
            let to = items.len().min(from + PAGE_ITEMS);
            let next = u32::try_from(page + 1).ok().filter(|_| page + 1 < count);
            let next = next.zip(content.as_ref()).map(|(page, content)| cursor(content, page));
            one_page(list, items.get(from..to).unwrap_or_default(), next.as_deref(), revision, ttl_ms)
        })
        .collect();
    RenderedList { pages, digest: hasher.finish(), content }
}

/// Returns the digest of items in their order, each with its length, so that no two lists give the
/// same bytes.
fn content_of(items: &[Vec<u8>]) -> Digest {
    let lengths: Vec<[u8; 8]> = items.iter().map(|item| (item.len() as u64).to_be_bytes()).collect();
    let parts: Vec<&[u8]> = lengths.iter().zip(items).flat_map(|(length, item)| [&length[..], &item[..]]).collect();
    Digest::of_parts(&parts)
}

/// Renders the result of one page; `next` is the cursor to the next page.
fn one_page(list: ItemList, items: &[Vec<u8>], next: Option<&str>, revision: Revision, ttl_ms: u32) -> RawJson {
    let size: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut out = BytesMut::with_capacity(size + 256);
    out.put_slice(b"{");
    if revision.era() == Era::Modern {
        let head = format!(r#""resultType":"complete","ttlMs":{ttl_ms},"cacheScope":"private","#);
        out.put_slice(head.as_bytes());
    }
    out.put_slice(format!(r#""{}":["#, list.member()).as_bytes());
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.put_u8(b',');
        }
        out.put_slice(item);
    }
    out.put_u8(b']');
    if let Some(next) = next {
        out.put_slice(format!(r#","nextCursor":"{next}""#).as_bytes());
    }
    if revision.era() == Era::Modern {
        out.put_slice(format!(r#","_meta":{{"{SERVER_INFO}":{}}}"#, implementation().text()).as_bytes());
    }
    out.put_u8(b'}');
    RawJson::trusted(out.freeze())
}
