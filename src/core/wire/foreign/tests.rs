use super::*;

#[test]
fn what_no_reader_sees_is_spelled_out_and_every_script_stays() {
    for (label, text, want) in [
        ("plain", "a b", "a b"),
        ("line feed", "a\nb", "a\\nb"),
        ("tab and return", "a\tb\r", "a\\tb\\r"),
        ("terminal", "\u{1b}[2J\u{9b}2J\u{7f}", "\\u{1b}[2J\\u{9b}2J\\u{7f}"),
        ("line separators", "a\u{2028}b\u{2029}c\u{85}d", "a\\u{2028}b\\u{2029}c\\u{85}d"),
        ("direction", "\u{202e}a\u{2066}b\u{200f}c\u{61c}", "\\u{202e}a\\u{2066}b\\u{200f}c\\u{61c}"),
        ("zero width", "a\u{200b}b\u{feff}c\u{2060}", "a\\u{200b}b\\u{feff}c\\u{2060}"),
        ("tag", "a\u{e0041}", "a\\u{e0041}"),
        ("Hangul fillers", "\u{3164}\u{115f}\u{1160}\u{ffa0}", "\\u{3164}\\u{115f}\\u{1160}\\u{ffa0}"),
        ("no dots", "a\u{2800}b", "a\\u{2800}b"),
        ("no ink", "a\u{1d159}\u{13441}\u{13442}\u{16fe4}b", "a\\u{1d159}\\u{13441}\\u{13442}\\u{16fe4}b"),
        ("selectors", "a\u{fe0f}b\u{e0100}", "a\\u{fe0f}b\\u{e0100}"),
        ("blanks", "a\u{a0}b\u{2003}c", "a\\u{a0}b\\u{2003}c"),
        ("no character", "\u{378}\u{10ffff}\u{fffe}", "\\u{378}\\u{10ffff}\\u{fffe}"),
        ("private use", "\u{e000}\u{f0000}", "\\u{e000}\\u{f0000}"),
        ("musical format", "\u{1d173}", "\\u{1d173}"),
        ("scripts", "日本語\u{3000}äöü שלום हिन्दी ไทย العربية ᄒ", "日本語\u{3000}äöü שלום हिन्दी ไทย العربية ᄒ"),
        ("signs and marks", "→ € e\u{301} ☃", "→ € e\u{301} ☃"),
        (
            "emoji",
            "\u{1f468}\u{200d}\u{1f469} ❤\u{fe0f} 1\u{fe0f}\u{20e3}",
            "\u{1f468}\u{200d}\u{1f469} ❤\u{fe0f} 1\u{fe0f}\u{20e3}",
        ),
        (
            "emoji with a skin",
            "\u{1f44d}\u{1f3fd}\u{200d}\u{2640}\u{fe0f}",
            "\u{1f44d}\u{1f3fd}\u{200d}\u{2640}\u{fe0f}",
        ),
        ("joiners in a row", "\u{1f468}\u{200d}\u{200d}\u{1f469}", "\u{1f468}\\u{200d}\\u{200d}\u{1f469}"),
        ("joiner in a word", "ad\u{200d}min", "ad\\u{200d}min"),
    ] {
        assert_eq!(line(text), want, "{label}");
    }
    assert_eq!(block("a\n\tb\r\u{1b}"), "a\n\tb\\r\\u{1b}");
    assert_eq!(count_hidden("a\nb\u{202e}\u{3164}❤\u{fe0f}"), 2);
    assert_eq!(json("{\"a\":\"\u{202e}\u{e0041}\"}\n"), "{\"a\":\"\\u202e\\udb40\\udc41\"}\\u000a");
}

#[test]
fn what_is_stripped_from_pinned_texts_never_changes_and_is_hidden() {
    let stripped: Vec<char> = ('\0'..=char::MAX).filter(|c| is_stripped(*c)).collect();
    assert!(stripped.iter().all(|c| is_hidden(*c)));
    let text: String = stripped.iter().collect();
    let digest = crate::wire::digest::Digest::of(text.as_bytes());
    assert_eq!((stripped.len(), digest.short().as_str()), (4225, "7e2cf303"));
}

#[test]
fn directions_turn_by_overrides_embeddings_and_isolates_alone() {
    let turning: Vec<char> = ('\0'..=char::MAX).filter(|c| turns_direction(*c)).collect();
    assert_eq!(turning, ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}').collect::<Vec<_>>());
}

proptest::proptest! {
    #[test]
    fn one_line_stays_one_line_without_hidden_characters(text in "\\PC*|(?s).*") {
        let shown = line(&text);
        let rest = |c: char| (is_hidden(c) && !matches!(c, '\u{200d}' | '\u{fe0f}')) || matches!(c, '\n' | '\t');
        proptest::prop_assert!(!shown.contains(rest));
        proptest::prop_assert_eq!(line(&shown), shown.as_ref(), "again");
    }
}

#[test]
fn a_word_of_a_command_is_one_word_for_a_shell() {
    for (text, want) in [
        ("fx__echo", "fx__echo"),
        ("fx+file:///a/b.txt", "fx+file:///a/b.txt"),
        ("fx+file:///my notes.txt", "'fx+file:///my notes.txt'"),
        ("fx+test://{id}?a=1&b=$(x)", "'fx+test://{id}?a=1&b=$(x)'"),
        ("fx+x:it's", r"'fx+x:it'\''s'"),
        ("fx+x:*;`rm`~#!\"\\", "'fx+x:*;`rm`~#!\"\\'"),
        ("fx+x:é", "'fx+x:é'"),
        ("-f", "'-f'"),
        ("", "''"),
    ] {
        assert_eq!(word(text), want);
    }
}

#[test]
fn a_quoted_text_stays_between_its_quotes_and_is_cut() {
    for (text, want) in [
        ("plain", r#""plain""#),
        ("a\"b\\\n\t", r#""a\"b\\\n\t""#),
        ("语ß😀", r#""语ß😀""#),
        ("\u{202e}a", r#""\u{202e}a""#),
        (r"\u{2}", r#""\\u{2}""#),
        ("0123456789", r#""0123456789""#),
        ("0123456789a", r#""0123456789.." (11 bytes)"#),
        ("012345678语", r#""012345678.." (12 bytes)"#),
    ] {
        assert_eq!(quoted(text, 11), want);
    }
}

#[test]
fn lines_keep_how_they_end() {
    use LineEnd::{Feed, ReturnFeed, Text};
    let read = |text| lines(text).collect::<Vec<_>>();
    assert_eq!(read(""), [("", Text)]);
    assert_eq!(read("a\nb"), [("a", Feed), ("b", Text)]);
    assert_eq!(read("a\n"), [("a", Feed), ("", Text)]);
    assert_eq!(read("a\r\n\rb\r"), [("a", ReturnFeed), ("\rb\r", Text)]);
    assert_eq!([Text, Feed, ReturnFeed].map(LineEnd::mark), ["", "↵", "\\r↵"]);
}

#[test]
fn letters_from_right_to_left_are_known() {
    for (text, want) in [("abc", false), ("日本語 ß", false), ("a שלום", true), ("سلام", true), ("\u{202e}", false)]
    {
        assert_eq!(has_right_to_left(text), want, "{text:?}");
    }
}
