//! The text of an app's pin: the part of a read view that decides what the app shows and may do.
//!
//! The text has the whole HTML as a digest, and its beginning for the operator. What a view asks of
//! its host is in `_meta.ui` of each content, or else of the entry in the list of resources.

use data_encoding::BASE64;

use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::json::layout::indented;
use crate::wire::json::raw::{RawJson, RawObject, elements};

/// The most bytes of the HTML that a text has.
const MAX_HTML: usize = 128 << 10;

/// The members of `_meta.ui` that a pin covers.
const ASKED: [&str; 3] = ["csp", "permissions", "domain"];

/// The members that have HTML, as text and in base64.
const HTML: [&str; 2] = ["text", "blob"];

/// The permission that an app gets without a person. It is harmless without a click in the app.
const HARMLESS: &str = "clipboardWrite";

/// Builds the text of the pin for a result of `resources/read`; `None` if the result shows nothing.
/// `entry` is the definition of the resource in its list. Without `has_html` the text covers only
/// what the view asks of its host.
///
/// # Errors
/// Two readers may read the result differently.
pub fn app_text_of(result: &RawJson, entry: &RawObject, has_html: bool) -> Result<Option<RawJson>, serde_json::Error> {
    let result = RawObject::parse(result)?;
    let contents = result.get("contents").map(elements).transpose()?.unwrap_or_default();
    let listed = asked_by(entry)?;
    let texts = contents.iter().map(|content| content_text(&RawObject::parse(content)?, &listed, has_html));
    let texts = texts.collect::<Result<Vec<_>, serde_json::Error>>()?;
    Ok((!texts.is_empty()).then(|| RawObject::of([("contents", RawJson::list(texts))]).encode()))
}

/// Returns the `_meta.ui` of a content or an entry; empty without one.
fn asked_by(of: &RawObject) -> Result<RawObject, serde_json::Error> {
    let member = |of: &RawObject, name: &str| {
        of.get(name).filter(|raw| raw.is_object()).map_or_else(|| Ok(RawObject::default()), RawObject::parse)
    };
    member(&member(of, "_meta")?, "ui")
}

/// Builds the text of one content.
fn content_text(content: &RawObject, listed: &RawObject, has_html: bool) -> Result<RawJson, serde_json::Error> {
    let own = asked_by(content)?;
    let mut text = RawObject::default();
    text.set_some("mimeType", content.get("mimeType").cloned());
    ASKED.iter().for_each(|name| text.set_some(name, own.get(name).or_else(|| listed.get(name)).cloned()));
    for name in HTML.iter().filter(|_| has_html) {
        let Some(value) = content.get(name) else { continue };
        let html = value.said().unwrap_or_else(|| value.text());
        let end = (0..=html.len().min(MAX_HTML)).rev().find(|at| html.is_char_boundary(*at)).unwrap_or_default();
        text.set(&format!("{name}-bytes"), RawJson::number(html.len()));
        text.set(&format!("{name}-sha256"), RawJson::string(&Digest::of(html.as_bytes()).hex()));
        text.set(name, RawJson::string(html.get(..end).unwrap_or_default()));
    }
    Ok(text.encode())
}

/// Returns a text without its HTML.
pub fn without_html(text: &RawJson) -> RawJson {
    let plain = |content: &RawJson| asked_of(&RawObject::parse(content).unwrap_or_default()).encode();
    RawObject::of([("contents", RawJson::list(contents_of(text).iter().map(plain)))]).encode()
}

/// Returns the part of a content's text without HTML.
fn asked_of(content: &RawObject) -> RawObject {
    let mut content = content.clone();
    content.retain(|name| name == "mimeType" || ASKED.contains(&name));
    content
}

fn contents_of(text: &RawJson) -> Vec<RawJson> {
    RawObject::parse(text).ok().and_then(|text| text.list("contents")).unwrap_or_default()
}

/// Lays a text out for people: what each content asks of its host, then its HTML.
pub fn lay_out_app(text: &str) -> String {
    let text = RawJson::trusted(text.to_owned());
    let contents = contents_of(&text).into_iter().filter_map(|content| RawObject::parse(&content).ok());
    let contents = contents.map(|content| {
        let mut out = indented(&asked_of(&content).encode().text());
        for name in HTML {
            let member = |part: &str| content.string(&format!("{name}{part}"));
            let (Some(kept), Some(sha256)) = (member(""), member("-sha256")) else { continue };
            let bytes = content.get(&format!("{name}-bytes")).map(RawJson::text).unwrap_or_default();
            let html = BASE64.decode(kept.as_bytes()).ok().filter(|_| name == "blob");
            let html = html.and_then(|html| String::from_utf8(html).ok()).unwrap_or_else(|| kept.clone());
            let part = if *bytes == kept.len().to_string() { "" } else { ", of which this is the beginning" };
            out.push_str(&format!("\n{bytes} bytes of HTML as `{name}`{part}, SHA-256 {sha256}:\n{html}"));
        }
        out
    });
    contents.collect::<Vec<_>>().join("\n")
}

/// Returns the reason why an app with this text waits for a person even at first sight.
pub fn find_app_doubt(text: &RawJson) -> Option<String> {
    let contents = contents_of(text);
    contents.iter().filter_map(|content| RawObject::parse(content).ok()).find_map(|content| {
        let [csp, permissions, _] = ASKED.map(|name| content.get(name).filter(|value| !value.is_null()));
        permissions.and_then(find_permission_doubt).or_else(|| csp.and_then(find_origin_doubt))
    })
}

fn find_permission_doubt(permissions: &RawJson) -> Option<String> {
    let Ok(asked) = RawObject::parse(permissions).and_then(RawObject::into_sorted) else {
        return Some("its permissions cannot be read".into());
    };
    let (name, _) = asked.into_iter().find(|(name, _)| name != HARMLESS)?;
    Some(format!("it asks for `{}`", foreign::short(&name, 32)))
}

fn find_origin_doubt(csp: &RawJson) -> Option<String> {
    let Ok(asked) = RawObject::parse(csp).and_then(RawObject::into_sorted) else {
        return Some("its origins cannot be read".into());
    };
    asked.into_iter().find_map(|(name, origins)| {
        let Ok(origins) = origins.parse::<Option<Vec<String>>>() else {
            return Some("its origins cannot be read".into());
        };
        let origins = origins.unwrap_or_default();
        match &*name {
            "connectDomains" | "resourceDomains" | "baseUriDomains" => {
                let wide = origins.into_iter().find(|origin| !is_one_origin(origin))?;
                Some(format!("it asks for the origins `{}`", foreign::short(&wide, 64)))
            }
            _ if origins.is_empty() => None,
            "frameDomains" => Some("it embeds pages of other origins".into()),
            other => Some(format!("it asks for `{}`", foreign::short(other, 32))),
        }
    })
}

/// Reports whether a source of a CSP is one origin: a host with or without scheme, port and path,
/// and no wildcard, keyword or scheme alone.
fn is_one_origin(source: &str) -> bool {
    let host = source.split_once("://").map_or(source, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:/[]%~".contains(c);
    !host.is_empty() && !host.ends_with(':') && source.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str, entry: &str, has_html: bool) -> String {
        let result = RawJson::checked(format!(r#"{{"contents":[{content}]}}"#)).unwrap();
        let entry = RawObject::parse(&RawJson::checked(entry.to_owned()).unwrap()).unwrap();
        app_text_of(&result, &entry, has_html).unwrap().unwrap().text().into_owned()
    }

    #[test]
    fn the_text_covers_html_and_what_is_asked_of_the_host() {
        let base = r#""mimeType":"text/html;profile=mcp-app","_meta":{"ui":{"csp":{},"prefersBorder":true}}"#;
        let one = text(&format!(r#"{{"uri":"ui://a","text":"<p>",{base}}}"#), "{}", true);
        let sha = Digest::of(b"<p>").hex();
        assert_eq!(
            one,
            format!(
                r#"{{"contents":[{{"mimeType":"text/html;profile=mcp-app","csp":{{}},"text-bytes":3,"text-sha256":"{sha}","text":"<p>"}}]}}"#
            )
        );
        assert_eq!(
            text(&format!(r#"{{"uri":"ui://b","text":"\u003cp>",{base}}}"#), "{}", true),
            one,
            "another spelling"
        );
        let plain = text(&format!(r#"{{"text":"<p>",{base}}}"#), "{}", false);
        assert_eq!(without_html(&RawJson::trusted(one.clone())).text(), plain);
        for (label, content, entry) in [
            ("html", format!(r#"{{"text":"<p> ",{base}}}"#), "{}"),
            ("blob", format!(r#"{{"blob":"<p>",{base}}}"#), "{}"),
            ("both", format!(r#"{{"text":"<p>","blob":"",{base}}}"#), "{}"),
            ("no text", format!(r#"{{"text":7,{base}}}"#), "{}"),
            (
                "permissions of the list",
                format!(r#"{{"text":"<p>",{base}}}"#),
                r#"{"_meta":{"ui":{"permissions":{}}}}"#,
            ),
            ("domain", r#"{"text":"<p>","_meta":{"ui":{"csp":{},"domain":"x"}}}"#.to_owned(), "{}"),
            ("two contents", format!(r#"{{"text":"<p>",{base}}},{{}}"#), "{}"),
        ] {
            assert_ne!(text(&content, entry, true), one, "{label}");
        }
    }

    #[test]
    fn a_person_reads_what_is_asked_and_the_html_as_text() {
        let entry = r#"{"_meta":{"ui":{"csp":{"connectDomains":["https://a.example"]}}}}"#;
        let sha = Digest::of(b"<p>\n</p>").hex();
        let laid = lay_out_app(&text(r#"{"text":"<p>\n</p>"}"#, entry, true));
        let want = "{\n  \"csp\": {\n    \"connectDomains\": [\n      \"https://a.example\"\n    ]\n  }\n}";
        assert_eq!(laid, format!("{want}\n8 bytes of HTML as `text`, SHA-256 {sha}:\n<p>\n</p>"));
        assert!(lay_out_app(&text(r#"{"blob":"PHA+"}"#, "{}", true)).ends_with(":\n<p>"));
        assert!(lay_out_app(&text(r#"{"blob":"?"}"#, "{}", true)).ends_with(":\n?"));
        assert_eq!(lay_out_app(&text("{}", "{}", false)), "{}");
    }

    #[test]
    fn a_long_html_counts_as_a_whole_and_is_kept_in_part() {
        let html = |end: &str| format!(r#"{{"text":"{}{end}"}}"#, "é".repeat(MAX_HTML));
        let (one, other) = (text(&html("a"), "{}", true), text(&html("b"), "{}", true));
        assert!(one != other && one.len() < MAX_HTML + 1024, "{}", one.len());
    }

    #[test]
    fn what_cannot_be_read_without_doubt_has_no_text() {
        for result in [
            r#"{"contents":{}}"#,
            r#"{"contents":[7]}"#,
            r#"{"contents":[{"text":"a","\u0074ext":"b"}]}"#,
            r#"{"contents":[],"contents":[{"text":"a"}]}"#,
            r#"{"contents":[{"text":"a","_meta":{"ui":{},"ui":{"permissions":{"camera":{}}}}}]}"#,
            r#"{"contents":[{"text":"a","_meta":{"ui":{"csp":{},"csp":{"frameDomains":["a"]}}}}]}"#,
            "[]",
        ] {
            let result = RawJson::trusted(result.to_owned());
            assert!(app_text_of(&result, &RawObject::default(), true).is_err(), "{}", result.text());
        }
        for nothing in ["{}", r#"{"contents":[]}"#] {
            let nothing = RawJson::trusted(nothing);
            assert_eq!(app_text_of(&nothing, &RawObject::default(), true).unwrap(), None);
        }
    }

    #[test]
    fn whatever_reaches_far_waits_for_a_person() {
        let doubt = |ui: &str| {
            let text = text(&format!(r#"{{"text":"<p>","_meta":{{"ui":{ui}}}}}"#), "{}", true);
            find_app_doubt(&RawJson::trusted(text))
        };
        for fine in [
            "{}",
            r#"{"permissions":{"clipboardWrite":{}},"csp":{"frameDomains":[]}}"#,
            r#"{"permissions":null,"csp":{"connectDomains":["https://a.example","wss://b.example:8443","localhost:3000"]}}"#,
            r#"{"csp":{"resourceDomains":["https://cdn.example/x/"],"baseUriDomains":null}}"#,
        ] {
            assert_eq!(doubt(fine), None, "{fine}");
        }
        for wide in [
            r#"{"permissions":{"camera":{}}}"#,
            r#"{"permissions":{"microphone":false}}"#,
            r#"{"permissions":{"clipboardWrite":{},"geolocation":{}}}"#,
            r#"{"permissions":{"new":{}}}"#,
            r#"{"permissions":[]}"#,
            r#"{"csp":{"frameDomains":["https://a.example"]}}"#,
            r#"{"csp":{"newDomains":["https://a.example"]}}"#,
            r#"{"csp":{"connectDomains":["https://a.example","*"]}}"#,
            r#"{"csp":{"resourceDomains":["https://*.a.example"]}}"#,
            r#"{"csp":{"connectDomains":["https:"]}}"#,
            r#"{"csp":{"connectDomains":["https://"]}}"#,
            r#"{"csp":{"connectDomains":["data:"]}}"#,
            r#"{"csp":{"connectDomains":["'unsafe-eval'"]}}"#,
            r#"{"csp":{"connectDomains":["https://a.example; script-src *"]}}"#,
            r#"{"csp":{"connectDomains":"https://a.example"}}"#,
            r#"{"csp":[]}"#,
            r#"{"csp":{"connectDomains":["*"],"connectDomains":[]}}"#,
        ] {
            assert!(doubt(wide).is_some(), "{wide}");
        }
    }
}
