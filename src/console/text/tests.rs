//! Tests how text is cut into pieces, compared and marked.

use super::*;

fn shown(pieces: &[ForeignPiece]) -> String {
    let mark = |piece: &ForeignPiece| match piece.kind {
        ForeignPieceKind::Plain => piece.text.clone(),
        ForeignPieceKind::Hidden => format!("<{}>", piece.text),
        ForeignPieceKind::Key => format!("{{{}}}", piece.text),
        ForeignPieceKind::Added => format!("[+{}+]", piece.text),
        ForeignPieceKind::Removed => format!("[-{}-]", piece.text),
        ForeignPieceKind::Gap => format!("~{}~", piece.text),
    };
    pieces.iter().map(mark).collect()
}

#[test]
fn hidden_characters_are_spelled() {
    for (label, text, want) in [
        ("plain", "a b", "a b"),
        ("override", "a\u{202e}b", "a\\u{202e}b"),
        ("zero width", "a\u{200b}b", "a\\u{200b}b"),
        ("tag", "\u{e0041}", "\\u{e0041}"),
        ("line break in a name", "a\nb", "a\\nb"),
        ("terminal", "\u{1b}[2J", "\\u{1b}[2J"),
        ("other scripts stay", "日本語 äöü שלום", "日本語 äöü שלום"),
        ("blank that is none", "a\u{a0}b", "a\\u{a0}b"),
    ] {
        assert_eq!(visible(text), want, "{label}");
    }
    assert_eq!(shown(&block("a\n\u{202e}b")), "a\n<\\u{202e}>b");
}

#[test]
fn names_of_members_and_escapes_stand_out_in_json() {
    for (label, text, want) in [
        ("key", "{\n  \"a\": 1\n}", "{\n  {\"a\"}: 1\n}"),
        ("value alone", "[\n  \"a\"\n]", "[\n  \"a\"\n]"),
        ("quote in a key", "  \"a\\\"b\": 1", "  {\"a\\\"b\"}: 1"),
        ("escaped override", "\"a\\u202eb\"", "\"a<\\u202e>b\""),
        ("braced", "\"a\\u{200b}b\"", "\"a<\\u{200b}>b\""),
        ("escaped backslash", "\"\\\\u202e\"", "\"\\\\u202e\""),
        ("raw", "\"a\u{202e}b\"", "\"a<\\u{202e}>b\""),
        ("letter", "\"\\u0041\"", "\"\\u0041\""),
    ] {
        assert_eq!(shown(&json(text)), want, "{label}");
    }
}

#[test]
fn a_diff_shows_words_and_leaves_far_lines_out() {
    for (label, old, new, want) in [
        ("same", "a b", "a b", "a b"),
        ("word", "sends a mail", "sends a letter", "sends a [-mail-][+letter+]"),
        (
            "words become one change",
            "reads one file now",
            "deletes all files now",
            "[-reads one file-][+deletes all files+] now",
        ),
        ("hidden", "a", "a\u{202e}", "[-a-][+a\\u{202e}+]"),
        (
            "gap",
            "x\n1\n2\n3\n4\n5\n6\n7\n8\ny\n",
            "z\n1\n2\n3\n4\n5\n6\n7\n8\nw\n",
            "[-x-][+z+]\n1\n2\n~3 unchanged lines~6\n7\n8\n[-y-][+w+]\n",
        ),
    ] {
        assert_eq!(shown(&diff(old, new)), want, "{label}");
    }
}

#[test]
fn times_are_words() {
    assert_eq!(span(5), "5 s");
    assert_eq!(span(120), "2 min");
    assert_eq!(span(7200), "2 h");
    assert_eq!(span(5 * 86_400), "5 days");
    assert_eq!(ago(10, 10), "just now");
    assert_eq!(ago(10, 20), "just now");
    assert_eq!(moment(0), "1970-01-01T00:00:00Z");
}

proptest::proptest! {
    #[test]
    fn no_hidden_character_survives(text in "\\PC*|.*") {
        let is_hidden = |c: char| is_hidden(c) && !matches!(c, '\u{200d}' | '\u{fe0f}');
        proptest::prop_assert!(!visible(&text).contains(|c| is_hidden(c) || c == '\n'));
        for pieces in [block(&text), json(&text), diff("a", &text)] {
            let shown: String = pieces.into_iter().map(|piece| piece.text).collect();
            proptest::prop_assert!(!shown.contains(is_hidden));
        }
    }
}
