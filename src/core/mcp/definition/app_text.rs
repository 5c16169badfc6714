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

/// The most bytes of a text. A view whose text is longer is not shown: its operator could not read
/// what it asks for.
const MAX_TEXT: usize = 384 << 10;

/// The members of `_meta.ui` that a pin covers.
const ASKED: [&str; 3] = ["csp", "permissions", "domain"];

/// The members of `_meta` by which one vendor's hosts take the same from a view.
const VENDOR_ASKED: [&str; 2] = ["openai/widgetCSP", "openai/widgetDomain"];

/// The members that have HTML, as text and in base64.
const HTML: [&str; 2] = ["text", "blob"];

/// The permission that an app gets without a person. It is harmless without a click in the app.
const HARMLESS: &str = "clipboardWrite";

/// A view as a client reads it.
#[derive(Clone, Copy, Debug)]
pub struct ReadView<'a> {
    /// The URI of the view at its upstream.
    pub uri: &'a str,
    /// The definition of the resource in its list.
    pub entry: &'a RawObject,
    /// True if the text covers the HTML, and not only what the view asks of its host.
    pub has_html: bool,
}

/// Builds the text of the pin for a result of `resources/read`; `None` if the result shows nothing.
///
/// # Errors
/// Two readers may read the result differently, or its text is too long to be read by a person.
pub fn app_text_of(result: &RawJson, view: ReadView<'_>) -> Result<Option<RawJson>, serde_json::Error> {
    let result = RawObject::parse(result)?;
    let contents = result.get("contents").map(elements).transpose()?.unwrap_or_default();
    let listed = asked_by(view.entry)?;
    let texts = contents.iter().map(|content| content_text(&RawObject::parse(content)?, &listed, view));
    let texts = texts.collect::<Result<Vec<_>, serde_json::Error>>()?;
    let text = (!texts.is_empty()).then(|| RawObject::of([("contents", RawJson::list(texts))]).encode());
    if text.as_ref().is_some_and(|text| text.bytes().len() > MAX_TEXT) {
        return Err(serde::de::Error::custom("the view asks for more than a person can read"));
    }
    Ok(text)
}

/// Returns all that a content or an entry asks of a host: members of its `_meta.ui`, and those of
/// vendors. A member that is `null` asks for nothing.
fn asked_by(of: &RawObject) -> Result<RawObject, serde_json::Error> {
    let member = |of: &RawObject, name: &str| {
        of.get(name).filter(|raw| raw.is_object()).map_or_else(|| Ok(RawObject::default()), RawObject::parse)
    };
    let meta = member(of, "_meta")?;
    let ui = member(&meta, "ui")?;
    let mut asked = RawObject::default();
    let all = ASKED.map(|name| (name, &ui)).into_iter().chain(VENDOR_ASKED.map(|name| (name, &meta)));
    all.for_each(|(name, of)| asked.set_some(name, of.get(name).filter(|raw| !raw.is_null()).cloned()));
    Ok(asked)
}

/// Builds the text of one content. It names the content's URI if that is another one than the
/// view's.
fn content_text(content: &RawObject, listed: &RawObject, view: ReadView<'_>) -> Result<RawJson, serde_json::Error> {
    let ReadView { uri, has_html, .. } = view;
    let own = asked_by(content)?;
    let mut text = RawObject::default();
    let is_another = |raw: &&RawJson| raw.said().is_none_or(|said| said != uri);
    text.set_some("uri", content.get("uri").filter(is_another).cloned());
    text.set_some("mimeType", content.get("mimeType").cloned());
    for name in ASKED.iter().chain(&VENDOR_ASKED) {
        text.set_some(name, own.get(name).or_else(|| listed.get(name)).cloned());
    }
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
    content.retain(|name| ["uri", "mimeType"].contains(&name) || ASKED.contains(&name) || VENDOR_ASKED.contains(&name));
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
        let [csp, permissions, _] = ASKED.map(|name| content.get(name));
        let origins = csp.into_iter().chain(content.get(VENDOR_ASKED[0]));
        permissions.and_then(find_permission_doubt).or_else(|| origins.filter_map(find_origin_doubt).next())
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
            "connectDomains" | "resourceDomains" | "baseUriDomains" | "connect_domains" | "resource_domains" => {
                let wide = origins.into_iter().find(|origin| !is_one_origin(origin))?;
                Some(format!("it asks for the origins `{}`", foreign::short(&wide, 64)))
            }
            _ if origins.is_empty() => None,
            "frameDomains" | "frame_domains" => Some("it embeds pages of other origins".into()),
            other => Some(format!("it asks for `{}`", foreign::short(other, 32))),
        }
    })
}

/// Reports whether a source of a CSP is one origin: a host with or without scheme, port and path,
/// and no wildcard, keyword or scheme alone. A host in escapes is none, since a parser of URLs may
/// find a wildcard in it.
fn is_one_origin(source: &str) -> bool {
    let (scheme, rest) = source.split_once("://").unwrap_or(("https", source));
    let (authority, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or_default();
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address, port),
        None => authority.split_at_checked(authority.find(':').unwrap_or(authority.len())).unwrap_or_default(),
    };
    let has = |text: &str, signs: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c));
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = has(host, "-_.") && host.strip_suffix('.').unwrap_or(host).split('.').all(|label| !label.is_empty());
    let is_address = authority.starts_with('[')
        && !host.is_empty()
        && host.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    has(scheme, "+-.")
        && !scheme.is_empty()
        && (is_name || is_address)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        && has(path, "/.-_:%~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str, entry: &str, has_html: bool) -> String {
        let result = RawJson::checked(format!(r#"{{"contents":[{content}]}}"#)).unwrap();
        let entry = RawObject::parse(&RawJson::checked(entry.to_owned()).unwrap()).unwrap();
        let view = ReadView { uri: "ui://a", entry: &entry, has_html };
        app_text_of(&result, view).unwrap().unwrap().text().into_owned()
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
            text(&format!(r#"{{"uri":"ui:\/\/a","text":"\u003cp>",{base}}}"#), "{}", true),
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
            ("another URI", format!(r#"{{"uri":"ui://b","text":"<p>",{base}}}"#), "{}"),
            (
                "origins of a vendor",
                r#"{"text":"<p>","_meta":{"ui":{"csp":{}},"openai/widgetCSP":{"connect_domains":[]}}}"#.to_owned(),
                "{}",
            ),
            (
                "domain of a vendor in the list",
                format!(r#"{{"text":"<p>",{base}}}"#),
                r#"{"_meta":{"openai/widgetDomain":"https://a.example"}}"#,
            ),
        ] {
            assert_ne!(text(&content, entry, true), one, "{label}");
        }
        let two = |one: &str, other: &str| {
            let content = |uri: &str, html: &str| format!(r#"{{"uri":"{uri}","text":"{html}"}}"#);
            text(&format!("{},{}", content(one, "<p>"), content(other, "<b>")), "{}", true)
        };
        assert_ne!(two("ui://a", "ui://b"), two("ui://b", "ui://a"), "which page has the view's URI counts");
    }

    #[test]
    fn a_member_that_is_null_leaves_that_of_the_list() {
        let camera = r#"{"permissions":{"camera":{}}}"#;
        for own in ["null", r#"{"ui":null}"#, r#"{"ui":{"permissions":null}}"#, r#"{"ui":[]}"#, "[]"] {
            let read =
                text(&format!(r#"{{"text":"<p>","_meta":{own}}}"#), &format!(r#"{{"_meta":{{"ui":{camera}}}}}"#), true);
            assert!(read.contains("camera"), "{read}");
            assert!(find_app_doubt(&RawJson::trusted(read)).is_some());
        }
    }

    #[test]
    fn a_text_is_bounded_whatever_a_view_asks_for() {
        let text_of = |contents: &str| {
            let result = RawJson::trusted(format!(r#"{{"contents":[{contents}]}}"#));
            let entry = RawObject::default();
            app_text_of(&result, ReadView { uri: "ui://a", entry: &entry, has_html: true })
        };
        let origins: Vec<String> = (0..50_000).map(|n| format!(r#""https://{n}.example""#)).collect();
        let asking = |ui: &str| format!(r#"{{"text":"<p>","_meta":{{"ui":{ui}}}}}"#);
        for (label, contents) in [
            ("origins", asking(&format!(r#"{{"csp":{{"connectDomains":[{}]}}}}"#, origins.join(",")))),
            ("a domain", asking(&format!(r#"{{"domain":"{}"}}"#, "x".repeat(MAX_TEXT)))),
            ("a type", format!(r#"{{"mimeType":"{}"}}"#, "x".repeat(MAX_TEXT))),
            ("pages", vec![r#"{"text":"<p>"}"#; 10_000].join(",")),
        ] {
            assert!(text_of(&contents).is_err(), "{label}");
        }
        let both = format!(r#"{{"text":"{0}","blob":"{0}"}}"#, "<p a=\\\"b\\\">".repeat(100_000));
        assert!(text_of(&both).is_ok(), "a large page is no large text");
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
        let entry = RawObject::default();
        let view = ReadView { uri: "ui://a", entry: &entry, has_html: true };
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
            assert!(app_text_of(&result, view).is_err(), "{}", result.text());
        }
        for nothing in ["{}", r#"{"contents":[]}"#] {
            let nothing = RawJson::trusted(nothing);
            assert_eq!(app_text_of(&nothing, view).unwrap(), None);
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
            r#"{"csp":{"connectDomains":["HTTPS://A.example.","http://127.0.0.1:80/%7Ex","https://[::1]:3000","xn--e1a.example"]}}"#,
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
            r#"{"csp":{"connectDomains":[["https://a.example"]]}}"#,
            r#"{"csp":{"connectDomains":[7]}}"#,
            r#"{"csp":{"connectDomains":{"0":"*"}}}"#,
            r#"{"csp":7}"#,
            r#"{"permissions":"camera"}"#,
            r#"{"permissions":{"c\u0061mera":{}}}"#,
            r#"{"\u0063sp":{"frame\u0044omains":["https://a.example"]}}"#,
        ] {
            assert!(doubt(wide).is_some(), "{wide}");
        }
        for origin in [
            "https://*",
            "HTTPS://*.A.EXAMPLE",
            "https://*.a.example:443",
            "https://a.example:*",
            "https://%2a.example",
            "https://%2A.example.",
            "https://.example",
            "https://a..example",
            "https://.",
            "https://\u{ff0a}.example",
            "https://b\u{fc}cher.example",
            "https://a.example:",
            "https://:443",
            "https://a@b.example",
            "https:///a",
            "https:/",
            "wss:",
            "blob:",
            "blob:https://a.example",
            "data:x",
            "data:text/html,x",
            "filesystem:",
            "://a.example",
            "//a.example",
            "'self'",
            "'none'",
            "'nonce-x'",
            "",
            " ",
            "https://a.example https:",
            "https://a.example,https:",
            "https://a.example\thttps:",
            "https://a.example?x",
            "https://[::1",
            "https://[*]",
            "[]",
        ] {
            for name in ["connectDomains", "resourceDomains", "baseUriDomains"] {
                let csp = format!(r#"{{"csp":{{"{name}":[{}]}}}}"#, RawJson::string(origin).text());
                assert!(doubt(&csp).is_some(), "{csp}");
            }
        }
        let vendor = |csp: &str| {
            let text = text(&format!(r#"{{"text":"<p>","_meta":{{"openai/widgetCSP":{csp}}}}}"#), "{}", true);
            find_app_doubt(&RawJson::trusted(text))
        };
        assert_eq!(vendor(r#"{"connect_domains":["https://a.example"],"resource_domains":[]}"#), None);
        for wide in [
            r#"{"connect_domains":["https://*.a.example"]}"#,
            r#"{"frame_domains":["https://a.example"]}"#,
            r#"{"redirect_domains":["https://a.example"]}"#,
            "[]",
        ] {
            assert!(vendor(wide).is_some(), "{wide}");
        }
    }
}
