//! The bytes of a list for one kind of client, rendered once and shared until the catalog changes.

use std::hash::{BuildHasher, Hasher};

use bytes::{BufMut, BytesMut};

use crate::catalog::merge::Catalog;
use crate::mcp::meta::{SERVER_INFO, implementation};
use crate::mcp::method::List;
use crate::mcp::project;
use crate::mcp::version::{Era, Revision};
use crate::wire::digest::Digest;
use crate::wire::raw::RawJson;

/// Items on a page. Some clients never ask for a second page, so one page holds real catalogs.
pub(crate) const PAGE_ITEMS: usize = 1000;

/// One list, rendered: whole results, page by page.
#[derive(Debug)]
pub struct Rendered {
    pub pages: Vec<RawJson>,
    /// Equal for equal content, in any generation.
    pub digest: u64,
    /// The name of the content in cursors. A list of one page has none and needs none.
    pub content: Option<Digest>,
}

/// Renders one list for clients of one revision.
///
/// `visible`: the entries (by index in the catalog) that the caller may see. `cursor` seals a page number of the list with that
/// content. `ttl_ms`: how long a modern client may keep the list.
pub fn render(
    catalog: &Catalog,
    list: List,
    revision: Revision,
    ttl_ms: u32,
    visible: impl Fn(usize) -> bool,
    cursor: impl Fn(&Digest, u32) -> String,
) -> Rendered {
    let entries = catalog.entries().iter().enumerate();
    let items: Vec<Vec<u8>> = entries
        .filter(|(at, entry)| entry.list == list && visible(*at))
        .map(|(_, entry)| {
            let shown = project::definition(list, &entry.definition, &entry.exposed, revision);
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
    Rendered { pages, digest: hasher.finish(), content }
}

/// The digest of items in their order, each with its length so that no two lists are the same bytes.
fn content_of(items: &[Vec<u8>]) -> Digest {
    let lengths: Vec<[u8; 8]> = items.iter().map(|item| (item.len() as u64).to_be_bytes()).collect();
    let parts: Vec<&[u8]> = lengths.iter().zip(items).flat_map(|(length, item)| [&length[..], &item[..]]).collect();
    Digest::of_parts(&parts)
}

fn one_page(list: List, items: &[Vec<u8>], next: Option<&str>, revision: Revision, ttl_ms: u32) -> RawJson {
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
