//! Changes between two foreign texts, word by word, with hidden characters spelled out.

use similar::{Algorithm, ChangeTag, DiffOp, DiffTag, TextDiff, capture_diff_slices};

use super::block;

/// A longer text is compared line by line: words would cost too much.
const MAX_WORDS: usize = 64 * 1024;
/// More lines between the first and the last change are not compared with each other.
const MAX_LINES: usize = 2000;

/// Whether a part is in both texts, or in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Kept,
    Removed,
    Added,
}

/// The parts of both texts in their order. No two of a kind stand side by side.
pub fn changes(old: &str, new: &str) -> Vec<(Change, String)> {
    let (old, new) = (block(old), block(new));
    let diff = if old.len() + new.len() > MAX_WORDS {
        TextDiff::from_lines(old.as_ref(), new.as_ref())
    } else {
        TextDiff::from_words(old.as_ref(), new.as_ref())
    };
    let mut parts: Vec<(Change, String)> = Vec::new();
    for part in diff.iter_all_changes() {
        let change = match part.tag() {
            ChangeTag::Equal => Change::Kept,
            ChangeTag::Delete => Change::Removed,
            ChangeTag::Insert => Change::Added,
        };
        match parts.last_mut() {
            Some((last, text)) if *last == change => text.push_str(part.value()),
            _ => parts.push((change, part.value().to_owned())),
        }
    }
    parts
}

/// The lines of both texts in their order, each with its end, as they are: hidden characters are not spelled out. Where too much
/// changed to be compared, all of it is removed and added.
pub fn by_lines<'t>(old: &'t str, new: &'t str) -> Vec<(Change, &'t str)> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (kept, old) = old.split_at(head);
    let (_, new) = new.split_at(head);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, kept_after) = old.split_at(old.len() - tail);
    let (new, _) = new.split_at(new.len() - tail);
    let ops = if old.len() + new.len() > MAX_LINES {
        vec![DiffOp::Replace { old_index: 0, old_len: old.len(), new_index: 0, new_len: new.len() }]
    } else {
        capture_diff_slices(Algorithm::Myers, old, new)
    };
    let of = |change: Change, lines: &[&'t str], at: usize, count: usize| -> Vec<(Change, &'t str)> {
        lines.iter().skip(at).take(count).map(|line| (change, *line)).collect()
    };
    let mut out = of(Change::Kept, kept, 0, head);
    for op in ops {
        let (_, was, is) = op.as_tag_tuple();
        if op.tag() == DiffTag::Equal {
            out.extend(of(Change::Kept, old, was.start, was.len()));
        } else {
            out.extend(of(Change::Removed, old, was.start, was.len()));
            out.extend(of(Change::Added, new, is.start, is.len()));
        }
    }
    out.extend(of(Change::Kept, kept_after, 0, tail));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_changed_stand_beside_each_other() {
        let told = |old: &str, new: &str| -> String {
            let tell = |(change, text): (Change, String)| format!("{change:?}<{text}>");
            changes(old, new).into_iter().map(tell).collect()
        };
        assert_eq!(
            told("reads a file", "sends a\u{202e} file"),
            "Removed<reads>Added<sends>Kept< >Removed<a>Added<a\\u{202e}>Kept< file>"
        );
        let long = "word ".repeat(MAX_WORDS / 5);
        assert_eq!(changes(&long, &format!("{long}x")).len(), 2, "by lines");
    }

    #[test]
    fn lines_are_compared_as_they_are() {
        let told = |old: &str, new: &str| -> String {
            let sign = |change| match change {
                Change::Kept => ' ',
                Change::Removed => '-',
                Change::Added => '+',
            };
            by_lines(old, new).into_iter().map(|(change, line)| format!("{}{line:?}", sign(change))).collect()
        };
        for (old, new, want) in [
            ("", "", ""),
            ("a\nb\nc\n", "a\nB\nc\n", r#" "a\n"-"b\n"+"B\n" "c\n""#),
            ("a", "a\n", r#"-"a"+"a\n""#),
            ("a\r\n", "a\n", r#"-"a\r\n"+"a\n""#),
            ("x\n", "", r#"-"x\n""#),
            ("", "\u{202e}x", r#"+"\u{202e}x""#),
            ("a\na\n", "a\na\na\n", r#" "a\n" "a\n"+"a\n""#),
        ] {
            assert_eq!(told(old, new), want, "{old:?} {new:?}");
        }
        let (old, new) = ("x\n".repeat(MAX_LINES), "y\n".repeat(MAX_LINES));
        let all = by_lines(&old, &new);
        assert_eq!((all.len(), all[0], all[MAX_LINES].0), (2 * MAX_LINES, (Change::Removed, "x\n"), Change::Added));
    }

    proptest::proptest! {
        #[test]
        fn both_texts_can_be_read_back(old in "[ab\n]{0,12}", new in "[ab\n]{0,12}") {
            let parts = by_lines(&old, &new);
            let side = |without| -> String {
                parts.iter().filter(|(change, _)| *change != without).map(|(_, line)| *line).collect()
            };
            let sides = (side(Change::Added), side(Change::Removed));
            proptest::prop_assert_eq!((sides.0.as_str(), sides.1.as_str()), (old.as_str(), new.as_str()));
        }
    }
}
