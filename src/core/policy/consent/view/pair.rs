//! The argument names by which servers for files and editors call the two halves of an edit.

/// Names of the old text. The name of the new text has `new` instead of `old`.
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

/// Returns the name of the other half of an edit; `None` for a name that belongs to no edit.
pub(super) fn partner(name: &str) -> Option<String> {
    let (from, to) = if is_old(name) { ("old", "new") } else { ("new", "old") };
    let other = format!("{to}{}", name.strip_prefix(from)?);
    OLD.iter().any(|old| *old == name || *old == other).then_some(other)
}

/// Whether a name that belongs to an edit names the old text.
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
