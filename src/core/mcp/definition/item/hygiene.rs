//! Cleans definitions of text that people do not see, references into the network, endless schemas
//! and unsafe icons.
//!
//! Titles and descriptions are cleaned, icons are dropped, and hidden text elsewhere makes the item
//! wait for approval. The other findings make the item unreadable.

use std::borrow::Cow;

use crate::wire::foreign::strip_hidden;
use crate::wire::json::raw::{RawJson, RawObject, elements};
use crate::wire::json::strings::rewritten;
use crate::wire::json::tokens::{unescaped, visit_strings};

/// Removes hidden characters from the titles and descriptions of a definition, also inside its
/// schemas; borrowed if there are none. Refuses a definition with a `$ref` to another host, or with
/// a schema that is too deep or has too many parts.
///
/// # Errors
/// The reason why the item is not offered at all, for the operator.
pub(super) fn clean(raw: &RawJson) -> Result<Cow<'_, RawJson>, String> {
    rewritten(raw, &mut |key, string| match key {
        b"\"$ref\"" if string.follows_key && names_other_host(string.literal) => {
            Err("its schema refers to the network".to_owned())
        }
        b"\"title\"" | b"\"description\"" if string.follows_key => Ok(strip_hidden_text(string.literal)),
        _ => Ok(None),
    })
}

/// Drops icons that a client should not load: icons not fetched over TLS, and SVG, which can carry
/// scripts.
pub(super) fn drop_unsafe_icons(definition: &mut RawObject) {
    let Some(icons) = definition.get("icons") else { return };
    let listed = elements(icons).unwrap_or_default();
    let kept: Vec<RawJson> = listed.iter().filter(|icon| is_safe_icon(icon)).cloned().collect();
    if kept.is_empty() {
        definition.remove("icons");
    } else if kept.len() < listed.len() {
        definition.set("icons", RawJson::list(kept));
    }
}

/// Reports whether an icon is fetched over TLS and is no SVG.
fn is_safe_icon(icon: &RawJson) -> bool {
    let Ok(icon) = RawObject::parse(icon) else { return false };
    let lower = |name: &str| icon.string(name).unwrap_or_default().to_ascii_lowercase();
    let src = lower("src");
    let path = src.split(['?', '#']).next().unwrap_or_default();
    src.starts_with("https://") && !path.ends_with(".svg") && !lower("mimeType").contains("svg")
}

/// Reports whether the string literal of a `$ref` names another host. References within the
/// document, or relative ones, do not.
fn names_other_host(literal: &[u8]) -> bool {
    // Unescaped first, since slashes may be escaped.
    unescaped(literal).is_some_and(|target| target.contains("//") && !target.starts_with('#'))
}

/// Reports whether some string of the definition, a key or a value, has hidden characters.
pub(super) fn has_hidden(definition: &RawJson) -> bool {
    let mut found = false;
    visit_strings(definition.bytes(), &mut |text| found |= strip_hidden(text).is_some());
    found
}

/// Returns the unescaped text of a string literal without its hidden characters; `None` if it has
/// no hidden characters.
fn strip_hidden_text(literal: &[u8]) -> Option<String> {
    // Hidden characters are escaped, or not ASCII, or DEL.
    if !literal.iter().any(|byte| matches!(byte, b'\\' | 0x7f..)) {
        return None;
    }
    strip_hidden(&unescaped(literal)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::strings::{MAX_CONTAINERS, MAX_DEPTH};

    fn cleaned(text: &str) -> Result<String, String> {
        let raw = RawJson::trusted(text.to_owned());
        clean(&raw).map(|raw| raw.text().into_owned())
    }

    #[test]
    fn hidden_text_is_taken_out_of_titles_and_descriptions_alone() {
        for (label, text, want) in [
            ("escape", r#"{"description":"a\u001b[8mb\nc"}"#, r#"{"description":"a[8mb\nc"}"#),
            ("tags", r#"{"title":"a\udb40\udc41b"}"#, r#"{"title":"ab"}"#),
            ("literal", "{\"description\" : \"a\u{202e}b\"}", r#"{"description" : "ab"}"#),
            (
                "in a schema",
                r#"{"s":{"p":{"description":"\u200bx"}},"n":1.50}"#,
                r#"{"s":{"p":{"description":"x"}},"n":1.50}"#,
            ),
            (
                "two",
                r#"{"title":"\u0000","x": [1] ,"description":"\u007f"}"#,
                r#"{"title":"","x": [1] ,"description":""}"#,
            ),
            ("a value", r#"{"enum":["a\u200b"],"pattern":"\u0000"}"#, r#"{"enum":["a\u200b"],"pattern":"\u0000"}"#),
            ("a property of that name", r#"{"description":{"x":"\u200b"}}"#, r#"{"description":{"x":"\u200b"}}"#),
            ("marks of direction", r#"{"description":"a\u200eb\u200fc\u061cd"}"#, r#"{"description":"abcd"}"#),
            ("soft and shapeless", r#"{"description":"a\u00adb\u3164c\u034f"}"#, r#"{"description":"abc"}"#),
            ("joiners as bits", r#"{"description":"a\u200d\u200c\u200db"}"#, r#"{"description":"ab"}"#),
            ("joiners in a row", "{\"description\":\"é\u{200d}\u{200d}é\"}", "{\"description\":\"é\u{200d}é\"}"),
            (
                "selectors as bytes",
                "{\"description\":\"é\u{fe01}\u{fe02}\u{fe03}\"}",
                "{\"description\":\"é\u{fe01}\"}",
            ),
            (
                "languages",
                r#"{"description":"نمی\u200cخواهم 👩\u200d💻\ufe0f"}"#,
                r#"{"description":"نمی\u200cخواهم 👩\u200d💻\ufe0f"}"#,
            ),
            ("quotes", r#"{"description":"\"\\","title":"\u200b\""}"#, r#"{"description":"\"\\","title":"\""}"#),
        ] {
            assert_eq!(cleaned(text).as_deref(), Ok(want), "{label}");
        }
    }

    #[test]
    fn a_schema_stays_within_its_document_and_within_bounds() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for (label, text, good) in [
            ("own reference", r##"{"$ref":"#/$defs/a//b"}"##.to_owned(), true),
            ("network", r#"{"$ref":"http://169.254.169.254/x"}"#.to_owned(), false),
            ("network, escaped", r#"{"$ref" : "https:\/\/evil.example"}"#.to_owned(), false),
            ("no scheme", r#"{"$ref":"//evil.example/x"}"#.to_owned(), false),
            ("a property of that name", r#"{"$ref":{"description":"http://x"}}"#.to_owned(), true),
            ("another key", r#"{"$id":"http://x"}"#.to_owned(), true),
            ("deep", nested(MAX_DEPTH), true),
            ("too deep", nested(MAX_DEPTH + 1), false),
            ("brackets in text", format!("\"{}\"", "[".repeat(100)), true),
            ("wide", format!("[{}1]", "{},".repeat(MAX_CONTAINERS - 1)), true),
            ("too wide", format!("[{}1]", "{},".repeat(MAX_CONTAINERS)), false),
        ] {
            assert_eq!(cleaned(&text).is_ok(), good, "{label}");
        }
    }

    #[test]
    fn pictures_come_over_tls_and_hold_no_scripts() {
        let icons = |list: &str| {
            let text = format!(r#"{{"name":"a","icons":[{list}]}}"#);
            let mut object = RawObject::parse(&RawJson::trusted(text)).unwrap();
            drop_unsafe_icons(&mut object);
            object.encode().text().into_owned()
        };
        let good = r#"{"src":"https://a.example/i.png"}"#;
        assert_eq!(icons(good), format!(r#"{{"name":"a","icons":[{good}]}}"#));
        for bad in [
            r#"{"src":"http://a.example/i.png"}"#,
            r#"{"src":"data:image/png;base64,AA=="}"#,
            r#"{"src":"https://a.example/i.SVG?x"}"#,
            r#"{"src":"https://a.example/i","mimeType":"image/svg+xml"}"#,
            "7",
        ] {
            assert_eq!(icons(bad), r#"{"name":"a"}"#, "{bad}");
            assert_eq!(icons(&format!("{bad},{good}")), format!(r#"{{"name":"a","icons":[{good}]}}"#), "{bad}");
        }
    }
}
