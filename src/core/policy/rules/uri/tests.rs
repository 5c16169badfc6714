use proptest::prelude::*;

use super::*;

#[test]
fn a_uri_has_one_reading_two_or_too_many() {
    let other = |text: &str| UriReading::Other(text.to_owned());
    let rows = [
        ("file", "file:///srv/a.txt", UriReading::Plain),
        ("web", "https://example.com/a?b=//c#d", UriReading::Plain),
        ("opaque", "urn:isbn:0", UriReading::Plain),
        ("no scheme", "a/b", UriReading::Plain),
        ("app", "ui://widget/view.html", UriReading::Plain),
        ("template", "file:///{+path}{?q}", UriReading::Plain),
        ("not ASCII", "notes://caf\u{e9}", UriReading::Plain),
        ("URI in a path", "proxy://get/https://example.com/", UriReading::Plain),
        ("dots in a name", "file:///a..b/...", UriReading::Plain),
        ("case of an unknown host", "notes://Ann/A", UriReading::Plain),
        ("escaped space", "file:///a%20b", other("file:///a b")),
        ("escaped beyond ASCII", "x:%C3%A9", other("x:\u{e9}")),
        ("escaped slash", "x:a%2Fb", other("x:a/b")),
        ("case of the scheme", "X:A", other("x:A")),
        ("case of a host", "https://A.B/C", other("https://a.b/C")),
        ("broken escape", "x:%zz", UriReading::Unclear),
        ("signed escape", "x:%+1", UriReading::Unclear),
        ("cut escape", "x:%2", UriReading::Unclear),
        ("escape before a wide character", "x:%2\u{e9}", UriReading::Unclear),
        ("escape of no text", "x:%ff", UriReading::Unclear),
        ("escape twice", "x:%2541", UriReading::Unclear),
        ("parent", "file:///a/../b", UriReading::Unclear),
        ("parent at the end", "file:///a/..", UriReading::Unclear),
        ("parent as host", "notes://../a", UriReading::Unclear),
        ("self", "file:///a/./b", UriReading::Unclear),
        ("half escaped parent", "file:///a/.%2E/b", UriReading::Unclear),
        ("parent in a query", "x://a?/../b", UriReading::Unclear),
        ("backslash", "file:///a\\b", UriReading::Unclear),
        ("escaped backslash", "file:///a%5cb", UriReading::Unclear),
        ("null byte", "file:///a%00", UriReading::Unclear),
        ("line break", "x:a\nb", UriReading::Unclear),
        ("double slash", "file:///a//b", UriReading::Unclear),
        ("slash before the path", "file:////a", UriReading::Unclear),
        ("short file", "file:/a", UriReading::Unclear),
        ("file with a host", "file://localhost/a", UriReading::Unclear),
        ("upper-case short file", "FILE:/a", UriReading::Unclear),
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
        prop_assert_eq!(read(&uri), UriReading::Unclear);
    }
}
