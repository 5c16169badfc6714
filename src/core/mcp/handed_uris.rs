//! URIs that the result of a tool hands to its client: the view that renders it, links to resources,
//! and embedded views. Source: MCP Apps 2026-01-26; MCP 2025-06-18, tools, "Resource Links".

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::definition::app::{is_view_uri, rename_views};
use crate::wire::json::raw::{RawJson, RawObject};

/// Searchers for the URI of a view and for a link. Prepared once: preparing a search costs as much
/// as searching most results.
static MARKS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| ["\"ui:", "\"resource_link\""].map(Finder::new));

/// Reports whether a result may hand out a URI. Never parses it.
pub fn may_hand_uris(result: &RawJson) -> bool {
    MARKS.iter().any(|mark| mark.find(result.bytes()).is_some())
}

/// Passes each URI that a tool's result hands out to `rename`, and returns the result with the URIs
/// that it returns; `None` if it returns none.
pub fn rename_handed_uris(result: &RawJson, rename: &mut dyn FnMut(&str) -> Option<String>) -> Option<RawJson> {
    let mut object = RawObject::parse(result).ok()?;
    let mut is_renamed = rename_views(&mut object, rename);
    let (mut content, mut is_new) = (object.list("content").unwrap_or_default(), false);
    for block in content.iter_mut().filter(|block| may_hand_uris(block)) {
        if let Some(renamed) = rename_in_block(block, rename) {
            (*block, is_new) = (renamed, true);
        }
    }
    if is_new {
        object.set("content", RawJson::list(content));
        is_renamed = true;
    }
    is_renamed.then(|| object.encode())
}

/// Renames the URI of one content block, if it is a link or an embedded view.
fn rename_in_block(block: &RawJson, rename: &mut dyn FnMut(&str) -> Option<String>) -> Option<RawJson> {
    let mut block = RawObject::parse(block).ok()?;
    match &*block.string("type")? {
        "resource_link" => {
            let renamed = rename(&block.string("uri")?)?;
            block.set("uri", RawJson::string(&renamed));
        }
        "resource" => {
            let mut resource = block.object("resource")?;
            let renamed = rename(&resource.string("uri").filter(|uri| is_view_uri(uri))?)?;
            resource.set("uri", RawJson::string(&renamed));
            block.set("resource", resource.encode());
        }
        _ => return None,
    }
    Some(block.encode())
}

/// Returns the result of a read in which the contents of `original` have the URI `asked`, as hosts
/// look for the URI that they asked for; `None` if no content has `original`.
pub fn rename_contents(result: &RawJson, original: &str, asked: &str) -> Option<RawJson> {
    let mut object = RawObject::parse(result).ok()?;
    let (mut contents, mut is_new) = (object.list("contents")?, false);
    for content in &mut contents {
        let Ok(mut item) = RawObject::parse(content) else { continue };
        if item.said("uri").is_some_and(|uri| uri == original) {
            item.set("uri", RawJson::string(asked));
            (*content, is_new) = (item.encode(), true);
        }
    }
    object.set("contents", RawJson::list(contents));
    is_new.then(|| object.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(result: &str) -> (Vec<String>, Option<String>) {
        let (raw, mut seen) = (RawJson::checked(result.to_owned()).unwrap(), Vec::new());
        let mut rename = |uri: &str| {
            seen.push(uri.to_owned());
            uri.strip_prefix("ui://").map(|rest| format!("ui://a+{rest}"))
        };
        let out = may_hand_uris(&raw).then(|| rename_handed_uris(&raw, &mut rename)).flatten();
        (seen, out.map(|out| out.text().into_owned()))
    }

    #[test]
    fn uris_are_found_where_the_protocol_has_them_and_only_views_are_renamed() {
        for (result, seen, want) in [
            (r#"{"content":[{"type":"text","text":"see ui://a and \"ui://b\""}]}"#, vec![], None),
            (r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"uri":"ui://a"}}"#, vec![], None),
            (r#"{"content":[{"type": "resource_link","uri":"file:///a"}]}"#, vec!["file:///a"], None),
            (r#"{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"\"ui:"}}]}"#, vec![], None),
            (
                r#"{"content":[{"type":"text","text":"1" },{"type":"resource_link","uri":"ui:\/\/x","name":"n"}], "x" : 1}"#,
                vec!["ui://x"],
                Some(
                    r#"{"content":[{"type":"text","text":"1" },{"type":"resource_link","uri":"ui://a+x","name":"n"}],"x":1}"#,
                ),
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"uri":"ui://x","text":"<p>"}}],"_meta":{"ui":{"resourceUri":"ui://y"}}}"#,
                vec!["ui://y", "ui://x"],
                Some(
                    r#"{"content":[{"type":"resource","resource":{"uri":"ui://a+x","text":"<p>"}}],"_meta":{"ui":{"resourceUri":"ui://a+y"}}}"#,
                ),
            ),
            (
                r#"{"_meta":{"ui/resourceUri":"ui://y"}}"#,
                vec!["ui://y"],
                Some(r#"{"_meta":{"ui/resourceUri":"ui://a+y"}}"#),
            ),
            (r#"{"content":[{"type":"resource_link"}],"content":[]}"#, vec![], None),
        ] {
            let want = (seen.into_iter().map(str::to_owned).collect(), want.map(str::to_owned));
            assert_eq!(renamed(result), want, "{result}");
        }
    }

    #[test]
    fn contents_have_the_uri_that_was_asked_for_and_their_other_bytes() {
        let raw = RawJson::trusted(
            r#"{"contents":[{"uri":"ui://x","text":"\u003cp>","_meta":{"a": 1}},{"uri":"ui://y"}, 7]}"#,
        );
        let out = rename_contents(&raw, "ui://x", "ui://a+x").unwrap();
        assert_eq!(
            out.text(),
            r#"{"contents":[{"uri":"ui://a+x","text":"\u003cp>","_meta":{"a": 1}},{"uri":"ui://y"},7]}"#
        );
        assert_eq!(rename_contents(&raw, "ui://z", "ui://a+z"), None);
    }
}
