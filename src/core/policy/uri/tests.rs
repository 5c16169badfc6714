use proptest::prelude::*;

use super::*;

#[test]
fn a_uri_has_one_reading_two_or_too_many() {
    let other = |text: &str| Reading::Other(text.to_owned());
    let rows = [
        ("file", "file:///srv/a.txt", Reading::Plain),
        ("web", "https://example.com/a?b=//c#d", Reading::Plain),
        ("opaque", "urn:isbn:0", Reading::Plain),
        ("no scheme", "a/b", Reading::Plain),
        ("app", "ui://widget/view.html", Reading::Plain),
        ("template", "file:///{+path}{?q}", Reading::Plain),
        ("not ASCII", "notes://caf\u{e9}", Reading::Plain),
        ("URI in a path", "proxy://get/https://example.com/", Reading::Plain),
        ("dots in a name", "file:///a..b/...", Reading::Plain),
        ("case of an unknown host", "notes://Ann/A", Reading::Plain),
        ("escaped space", "file:///a%20b", other("file:///a b")),
        ("escaped beyond ASCII", "x:%C3%A9", other("x:\u{e9}")),
        ("escaped slash", "x:a%2Fb", other("x:a/b")),
        ("case of the scheme", "X:A", other("x:A")),
        ("case of a host", "https://A.B/C", other("https://a.b/C")),
        ("broken escape", "x:%zz", Reading::Unclear),
        ("signed escape", "x:%+1", Reading::Unclear),
        ("cut escape", "x:%2", Reading::Unclear),
        ("escape before a wide character", "x:%2\u{e9}", Reading::Unclear),
        ("escape of no text", "x:%ff", Reading::Unclear),
        ("escape twice", "x:%2541", Reading::Unclear),
        ("parent", "file:///a/../b", Reading::Unclear),
        ("parent at the end", "file:///a/..", Reading::Unclear),
        ("parent as host", "notes://../a", Reading::Unclear),
        ("self", "file:///a/./b", Reading::Unclear),
        ("half escaped parent", "file:///a/.%2E/b", Reading::Unclear),
        ("parent in a query", "x://a?/../b", Reading::Unclear),
        ("backslash", "file:///a\\b", Reading::Unclear),
        ("escaped backslash", "file:///a%5cb", Reading::Unclear),
        ("null byte", "file:///a%00", Reading::Unclear),
        ("line break", "x:a\nb", Reading::Unclear),
        ("double slash", "file:///a//b", Reading::Unclear),
        ("slash before the path", "file:////a", Reading::Unclear),
        ("short file", "file:/a", Reading::Unclear),
        ("file with a host", "file://localhost/a", Reading::Unclear),
        ("upper-case short file", "FILE:/a", Reading::Unclear),
    ];
    for (label, uri, expected) in rows {
        assert_eq!(read(uri), expected, "{label}");
    }
}

#[test]
fn patterns_are_respelled_as_uris_are() {
    let rows = [
        ("nothing to do", "a+x:b*", None),
        ("no URI", "*", None),
        ("escape", "a+x:b%20*", Some("a+x:b *")),
        ("escape of several bytes", "a+x:%C3%A9*", Some("a+x:\u{e9}*")),
        ("escape of a special character", "a+x:%5B*", Some("a+x:\\[*")),
        ("broken escape", "a+x:%zz", None),
        ("host", "a+HTTPS://Example.com/A*", Some("a+https://example.com/A*")),
    ];
    for (label, glob, expected) in rows {
        assert_eq!(respell(glob).as_deref(), expected, "{label}");
    }
}

proptest! {
    #[test]
    fn any_text_has_a_reading(text in any::<String>()) {
        let _reading = read(&text);
        let _respelled = respell(&text);
    }

    #[test]
    fn escapes_do_not_hide_dots(uri in "x:/[ab]/(\\.|%2e|%2E){2}/[ab]") {
        prop_assert_eq!(read(&uri), Reading::Unclear);
    }
}
