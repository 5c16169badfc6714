//! Changes between two foreign texts, word by word, with hidden characters spelled out.

use similar::{ChangeTag, TextDiff};

use super::block;

/// A longer text is compared line by line: words would cost too much.
const MAX_WORDS: usize = 64 * 1024;

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
}
