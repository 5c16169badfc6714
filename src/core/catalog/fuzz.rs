//! Properties of URI templates and cursors, for property tests and fuzzing.
#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a property fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use super::holder::SealHolder;
use super::page::{CursorKey, CursorScope};
use super::template::UriTemplate;
use crate::mcp::method::ItemList;
use crate::mcp::version::{Era, Revision};
use crate::wire::digest::Digest;
use crate::wire::fuzz::{halves, spliced};
use crate::wire::secrets::SealSecrets;

/// Checks that a template matches the URIs that a step-by-step reference matches. `data` is a
/// template, a line feed and a URI.
pub fn templates(data: &[u8]) {
    let (template, uri) = halves(data);
    let (Ok(text), Ok(uri)) = (std::str::from_utf8(template), std::str::from_utf8(uri)) else { return };
    let Some(template) = UriTemplate::parse(text) else { return };
    assert_eq!(template.matches(uri), reference(text, uri), "{text:?} and {uri:?}");
}

/// Matches a URI the slow way: tracks every position at which the template's parts so far can end.
fn reference(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let Some(tail) = uri.strip_prefix(parts.next().unwrap()) else { return false };
    let mut ends = BTreeSet::from([0]);
    for part in parts {
        let (inner, literal) = part.split_once('}').unwrap();
        let operator = inner.chars().next().unwrap_or(' ');
        let spans = "+#/?&".contains(operator) || inner.ends_with('*');
        let mut after = BTreeSet::new();
        for start in ends {
            if "#./;?&".contains(operator) {
                after.insert(start);
            }
            let value = tail[start..].char_indices().take_while(|(_, c)| spans || *c != '/');
            after.extend(value.map(|(at, c)| start + at + c.len_utf8()));
        }
        ends =
            after.into_iter().filter(|end| tail[*end..].starts_with(literal)).map(|end| end + literal.len()).collect();
    }
    ends.contains(&tail.len())
}

/// Checks that a cursor opens for the viewer and the list that it was sealed for, and for no other.
pub fn cursors(data: &[u8]) {
    let key = CursorKey::new(&SealSecrets::new(*Digest::of(data).bytes()));
    let revision = Revision::preferred(Era::Modern);
    let holder = SealHolder { caller: "a", kind: "token", profile: "", revision, capabilities: 0 };
    let (scope, content, now) = (CursorScope { list: ItemList::Tools, holder }, Digest::of(b"list"), Duration::ZERO);
    let sealed = key.seal(scope, &content, 2, now);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let opened = key.open(scope, &content, text, now);
    // The page number can be read from the text; the seal cannot be guessed.
    assert!(opened.is_none() || key.seal(scope, &content, opened.unwrap(), now) == text);
    let forged = spliced(&sealed, text);
    assert_eq!(key.open(scope, &content, &forged, now), (forged == sealed).then_some(2), "{forged}");
    let opens = |holder| key.open(CursorScope { holder, ..scope }, &content, &sealed, now);
    assert_eq!(opens(SealHolder { caller: text, ..holder }), (text == "a").then_some(2));
    assert_eq!(opens(SealHolder { kind: text, ..holder }), (text == "token").then_some(2));
    assert_eq!(opens(SealHolder { profile: text, ..holder }), text.is_empty().then_some(2));
    assert_eq!(key.open(scope, &Digest::of(data), &sealed, now), (text == "list").then_some(2));
}
