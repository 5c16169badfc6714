//! Compares two foreign texts word by word, with hidden characters spelled out.

use similar::{Algorithm, DiffTag, DiffableStr as _, capture_diff_slices};

use super::block;

/// The limit of words and blanks between the first and the last change; texts with more are
/// compared line by line.
const MAX_WORDS: usize = 6000;
/// The limit of lines between the first and the last change; texts with more are not compared at
/// all.
pub const MAX_LINES: usize = 2000;

/// Membership of a part of the texts: in both, in the old one, or in the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextChange {
    Kept,
    Removed,
    Added,
}

/// Returns the parts of both texts in order. Adjacent parts of one kind are joined.
pub fn changes(old: &str, new: &str) -> Vec<(TextChange, String)> {
    let (old, new) = (block(old), block(new));
    let words = compare(&old.tokenize_words(), &new.tokenize_words(), &mut { MAX_WORDS });
    let mut parts: Vec<(TextChange, String)> = Vec::new();
    for (change, part) in words.unwrap_or_else(|| by_lines(&old, &new, &mut { MAX_LINES })) {
        match parts.last_mut() {
            Some((last, text)) if *last == change => text.push_str(part),
            _ => parts.push((change, part.to_owned())),
        }
    }
    parts
}

/// Returns the lines of both texts in order, each with its line end; hidden characters are not
/// spelled out. `room` is the number of lines that may still be compared, and shrinks by those that
/// were. If it does not suffice, everything between the common beginning and the common end is
/// returned as removed and added, and `room` stays.
pub fn by_lines<'t>(old: &'t str, new: &'t str, room: &mut usize) -> Vec<(TextChange, &'t str)> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    compare(&old, &new, room).unwrap_or_else(|| {
        let (head, old, new, tail) = split_common_ends(&old, &new);
        pair_with_change(TextChange::Kept, head)
            .chain(pair_with_change(TextChange::Removed, old))
            .chain(pair_with_change(TextChange::Added, new))
            .chain(pair_with_change(TextChange::Kept, tail))
            .collect()
    })
}

/// Returns the parts of both lists in order, and subtracts the compared ones from `room`; `None` if
/// there is not enough room. Without a bound the time would grow with the square of the length.
fn compare<'t>(old: &[&'t str], new: &[&'t str], room: &mut usize) -> Option<Vec<(TextChange, &'t str)>> {
    let (head, old, new, tail) = split_common_ends(old, new);
    *room = room.checked_sub(old.len() + new.len())?;
    let mut out: Vec<(TextChange, &'t str)> = pair_with_change(TextChange::Kept, head).collect();
    for op in capture_diff_slices(Algorithm::Myers, old, new) {
        let (tag, was, is) = op.as_tag_tuple();
        let (was, is) = (old.get(was).unwrap_or_default(), new.get(is).unwrap_or_default());
        if tag == DiffTag::Equal {
            out.extend(pair_with_change(TextChange::Kept, was));
        } else {
            out.extend(pair_with_change(TextChange::Removed, was).chain(pair_with_change(TextChange::Added, is)));
        }
    }
    out.extend(pair_with_change(TextChange::Kept, tail));
    Some(out)
}

/// Splits two lists into their common beginning, the rest of each, and their common end.
fn split_common_ends<'l, 't>(
    old: &'l [&'t str],
    new: &'l [&'t str],
) -> (&'l [&'t str], &'l [&'t str], &'l [&'t str], &'l [&'t str]) {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (kept, old) = old.split_at(head);
    let (_, new) = new.split_at(head);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, kept_after) = old.split_at(old.len() - tail);
    let (new, _) = new.split_at(new.len() - tail);
    (kept, old, new, kept_after)
}

/// Pairs each part with one kind of change.
fn pair_with_change<'l, 't: 'l>(
    change: TextChange,
    parts: &'l [&'t str],
) -> impl Iterator<Item = (TextChange, &'t str)> + use<'l, 't> {
    parts.iter().map(move |part| (change, *part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_changed_stand_beside_each_other() {
        let told = |old: &str, new: &str| -> String {
            let tell = |(change, text): (TextChange, String)| format!("{change:?}<{text}>");
            changes(old, new).into_iter().map(tell).collect()
        };
        assert_eq!(
            told("reads a file", "sends a\u{202e} file"),
            "Removed<reads>Added<sends>Kept< >Removed<a>Added<a\\u{202e}>Kept< file>"
        );
        let long = "word ".repeat(MAX_WORDS);
        assert_eq!(changes(&long, &format!("{long}x")).len(), 2, "what begins alike takes no room");
        let (old, new) = ("a ".repeat(MAX_WORDS), "b ".repeat(MAX_WORDS));
        assert_eq!(told(&format!("1\n{old}\n"), &format!("1\n{new}\n")).matches('<').count(), 3, "by lines");
    }

    #[test]
    fn lines_are_compared_as_they_are() {
        let told = |old: &str, new: &str| -> String {
            let sign = |change| match change {
                TextChange::Kept => ' ',
                TextChange::Removed => '-',
                TextChange::Added => '+',
            };
            by_lines(old, new, &mut { MAX_LINES })
                .into_iter()
                .map(|(change, line)| format!("{}{line:?}", sign(change)))
                .collect()
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
        let all = by_lines(&old, &new, &mut { MAX_LINES });
        assert_eq!(
            (all.len(), all[0], all[MAX_LINES].0),
            (2 * MAX_LINES, (TextChange::Removed, "x\n"), TextChange::Added)
        );
        let mut room = 5;
        let parts = ["b\na\n", "b\na\n"].map(|new| by_lines("a\nb\n", new, &mut room).len());
        assert_eq!((parts, room), ([3, 4], 1), "the second one is not compared");
    }

    proptest::proptest! {
        #[test]
        fn both_texts_can_be_read_back(old in "[ab\n]{0,12}", new in "[ab\n]{0,12}") {
            let parts = by_lines(&old, &new, &mut { MAX_LINES });
            let side = |without| -> String {
                parts.iter().filter(|(change, _)| *change != without).map(|(_, line)| *line).collect()
            };
            let sides = (side(TextChange::Added), side(TextChange::Removed));
            proptest::prop_assert_eq!((sides.0.as_str(), sides.1.as_str()), (old.as_str(), new.as_str()));
        }
    }
}
