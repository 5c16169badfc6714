//! Names by which servers of files and editors call the two halves of an edit.

/// The name of the old text; the new one has `new` in the place of `old`.
const OLD: &[&str] = &[
    "old_text",
    "oldText",
    "old_string",
    "oldString",
    "old_str",
    "oldStr",
    "old_content",
    "oldContent",
    "old_code",
    "oldCode",
];

/// The name of the other half; `None` for a name that belongs to no edit.
pub(super) fn partner(name: &str) -> Option<String> {
    let (from, to) = if is_old(name) { ("old", "new") } else { ("new", "old") };
    let other = format!("{to}{}", name.strip_prefix(from)?);
    OLD.iter().any(|old| *old == name || *old == other).then_some(other)
}

/// Whether a name of an edit is that of the old text.
pub(super) fn is_old(name: &str) -> bool {
    name.starts_with("old")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_an_edit_know_each_other() {
        for old in OLD {
            let new = partner(old).unwrap();
            assert!(new.starts_with("new") && partner(&new).as_deref() == Some(old), "{new}");
        }
        for other in ["old", "new", "oldest", "old_path", "text", "new_name", "", "Old_text"] {
            assert_eq!(partner(other), None, "{other}");
        }
    }
}
