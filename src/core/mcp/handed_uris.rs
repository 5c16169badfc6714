//! URIs that the result of a tool hands to its client: the view that renders it, links to
//! resources, and embedded views. Source: MCP Apps 2026-01-26; MCP 2025-06-18, tools, "Resource
//! Links".

use memchr::memchr_iter;

use super::definition::app::{is_view_uri, rename_views};
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::json::tokens::has_escaped_ascii;

/// The text that stands for an embedded view whose app waits for approval.
const WITHHELD: &str = "The app of this view waits for the approval of the gateway's operator.";

/// Reports whether a result may hand out a URI. Never parses it. An escape may hide a mark.
pub fn may_hand_uris(result: &RawJson) -> bool {
    let text = result.bytes();
    // The scheme of a view is before a colon, and the type of a link is the value behind one.
    let is_mark = |at| {
        let (before, behind) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
        before.last_chunk().is_some_and(|scheme: &[u8; 3]| scheme.eq_ignore_ascii_case(b"\"ui"))
            || behind.trim_ascii_start().starts_with(b"\"resource_link\"")
    };
    memchr_iter(b':', text).any(is_mark) || has_escaped_ascii(text, |c| c.is_ascii_alphabetic() || b":/_".contains(&c))
}

/// Passes each view that a result of a tool or a prompt embeds to `passes`, with its URI. Returns
/// the result with a text in the place of each that it refuses; `None` if it refuses none.
///
/// # Errors
/// A content block or the result's `_meta` has a member twice, so that two readers may find
/// different views.
pub fn withhold_embedded_views(
    result: &RawJson,
    passes: &mut dyn FnMut(&str, &RawJson) -> bool,
) -> Result<Option<RawJson>, serde_json::Error> {
    let mut object = RawObject::parse(result)?;
    if let Some(meta) = object.get("_meta").filter(|meta| meta.is_object()) {
        RawObject::parse(meta)?.get("ui").filter(|ui| ui.is_object()).map(RawObject::parse).transpose()?;
    }
    let mut is_new = false;
    for name in ["content", "messages"] {
        let (mut all, mut is_changed) = (object.list(name).unwrap_or_default(), false);
        for one in all.iter_mut().filter(|one| one.is_object() && may_hand_uris(one)) {
            let passed = if name == "content" {
                withhold_block(one, passes)?
            } else {
                let mut message = RawObject::parse(one)?;
                let block = message.get("content").filter(|block| block.is_object());
                let block = block.map(|block| withhold_block(block, passes)).transpose()?.flatten();
                block.map(|block| {
                    message.set("content", block);
                    message.encode()
                })
            };
            if let Some(passed) = passed {
                (*one, is_changed) = (passed, true);
            }
        }
        if is_changed {
            object.set(name, RawJson::list(all));
            is_new = true;
        }
    }
    Ok(is_new.then(|| object.encode()))
}

/// Returns the text in the place of a content block that embeds a view, if `passes` refuses it.
fn withhold_block(
    block: &RawJson,
    passes: &mut dyn FnMut(&str, &RawJson) -> bool,
) -> Result<Option<RawJson>, serde_json::Error> {
    let block = RawObject::parse(block)?;
    let Some(resource) = block.get("resource").filter(|resource| resource.is_object()) else { return Ok(None) };
    let uri = RawObject::parse(resource)?.string("uri").filter(|uri| is_view_uri(uri));
    let is_refused = uri.is_some_and(|uri| !passes(&uri, resource));
    Ok(is_refused.then(|| RawObject::of_strings(&[("type", "text"), ("text", WITHHELD)]).encode()))
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

/// Reports whether a content in the result of a read has the URI of a view.
pub fn has_view_content(result: &RawJson) -> bool {
    let contents = || RawObject::parse(result).ok()?.list("contents");
    let is_view = |content: &RawJson| {
        RawObject::parse(content).is_ok_and(|content| content.said("uri").is_some_and(|uri| is_view_uri(&uri)))
    };
    may_hand_uris(result) && contents().is_some_and(|contents| contents.iter().any(is_view))
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
            // An escape or another case hides no URI.
            (
                r#"{"_meta":{"ui":{"resourceUri":"\u0075\u0069\u003a//y"}}}"#,
                vec!["ui://y"],
                Some(r#"{"_meta":{"ui":{"resourceUri":"ui://a+y"}}}"#),
            ),
            (r#"{"_meta":{"ui":{"resourceUri":"UI://y"}}}"#, vec!["UI://y"], None),
            (r#"{"content":[{"type":"resource\u005flink","uri":"file:///a"}]}"#, vec!["file:///a"], None),
            (
                r#"{"content":[{"type":"resource","resource":{"\u0075ri":"uI:\/\/x","text":"<p>"}}]}"#,
                vec!["uI://x"],
                None,
            ),
        ] {
            let want = (seen.into_iter().map(str::to_owned).collect(), want.map(str::to_owned));
            assert_eq!(renamed(result), want, "{result}");
        }
    }

    #[test]
    fn an_embedded_view_that_is_refused_is_a_text() {
        let raw = |text: &str| RawJson::checked(text.to_owned()).unwrap();
        let view = r#"{"type":"resource","resource":{"uri":"UI:\/\/x","text":"<p>"}}"#;
        let file = r#"{"type":"resource","resource":{"uri":"file:///a","text":"\"ui:"}}"#;
        let result = raw(&format!(r#"{{"content":[{file},{view},7],"x":1}}"#));
        let mut seen = Vec::new();
        let mut judge = |passes: bool| {
            let judged = withhold_embedded_views(&result, &mut |uri, resource| {
                seen.push((uri.to_owned(), resource.text().into_owned()));
                passes
            });
            judged.unwrap().map(|out| out.text().into_owned())
        };
        assert_eq!(judge(true), None);
        let text = format!(r#"{{"type":"text","text":"{WITHHELD}"}}"#);
        assert_eq!(judge(false), Some(format!(r#"{{"content":[{file},{text},7],"x":1}}"#)));
        let prompt = raw(&format!(r#"{{"messages":[{{"role":"user","content":{view}}},7]}}"#));
        let judged = withhold_embedded_views(&prompt, &mut |_, _| false).unwrap().unwrap();
        assert_eq!(judged.text(), format!(r#"{{"messages":[{{"role":"user","content":{text}}},7]}}"#));
        let want = ("UI://x".to_owned(), r#"{"uri":"UI:\/\/x","text":"<p>"}"#.to_owned());
        assert_eq!(seen, [want.clone(), want]);
        for twice in [
            r#"{"content":[{"type":"resource","resource":{"uri":"ui://a"},"resource":{"uri":"file:///a"}}]}"#,
            r#"{"content":[{"type":"resource","resource":{"uri":"file:///a","uri":"ui://a"}}]}"#,
            r#"{"content":["ui://a"],"content":[]}"#,
            r#"{"messages":[{"content":{"type":"text"},"content":{"resource":{"uri":"ui://a"}}}]}"#,
            r#"{"_meta":{"ui":{"resourceUri":"ui://a","resourceUri":"ui://b"}}}"#,
        ] {
            assert!(withhold_embedded_views(&RawJson::trusted(twice), &mut |_, _| true).is_err(), "{twice}");
        }
    }

    #[test]
    fn a_view_among_the_contents_of_a_read_is_found() {
        for (result, want) in [
            (r#"{"contents":[{"uri":"file:///a"},{"uri":"\u0075i://x","text":"<p>"}]}"#, true),
            (r#"{"contents":[{"uri":"UI://x"}]}"#, true),
            (r#"{"contents":[{"uri":"file:///a","text":"see \"ui://x\""}]}"#, false),
            (r#"{"contents":7}"#, false),
        ] {
            assert_eq!(has_view_content(&RawJson::checked(result.to_owned()).unwrap()), want, "{result}");
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
