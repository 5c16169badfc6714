//! Suggestions for a name that does not exist.

use strsim::{jaro_winkler, osa_distance};

use crate::wire::foreign;

/// Least likeness of a suggested name, from 0 to 1.
const ALIKE: f64 = 0.8;
/// Names that are less alike than the best one by this much are left out.
const NEAR: f64 = 0.05;
/// Most names in a suggestion.
const SUGGESTED: usize = 3;

/// Builds the text `; did you mean `x`?` with the most similar names; empty if none is similar.
pub(in crate::cli) fn suggest_names(name: &str, names: impl IntoIterator<Item = String>) -> String {
    let mut alike: Vec<(f64, String)> =
        names.into_iter().map(|known| (likeness(name, &known), known)).filter(|(how, _)| *how >= ALIKE).collect();
    alike.sort_by(|(how, name), (other, other_name)| other.total_cmp(how).then_with(|| name.cmp(other_name)));
    let best = alike.first().map_or(1.0, |(how, _)| *how);
    alike.retain(|(how, _)| best - how < NEAR);
    let names: Vec<String> =
        alike.iter().take(SUGGESTED).map(|(_, name)| format!("`{}`", foreign::line(name))).collect();
    match names.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}

/// Returns how alike two names are, from 0 to 1. A tool's name without its server's prefix counts
/// as equal, and one or two wrong letters cost little.
fn likeness(name: &str, known: &str) -> f64 {
    let (name, known) = (name.to_ascii_lowercase().replace('-', "_"), known.to_ascii_lowercase().replace('-', "_"));
    let parts = |name: &str| {
        name.split_once("__").map_or((String::new(), name.to_owned()), |(a, b)| (a.to_owned(), b.to_owned()))
    };
    let ((server, tool), (known_server, known_tool)) = (parts(&name), parts(&known));
    if name == known || name == known_tool || name.len() > 2 && known_tool.ends_with(&format!("_{name}")) {
        return 1.0;
    }
    if osa_distance(&name, &known) <= 2 && name.len() > 3 {
        return 0.95;
    }
    // The server's name is equal for all of its tools, so it does not count in the comparison.
    let is_of_it = server.is_empty() || osa_distance(&server, &known_server) <= 2;
    if is_of_it { jaro_winkler(&tool, &known_tool) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_suggested_best_first() {
        let told = |name: &str| {
            suggest_names(name, ["files__read_file", "files__write_file", "git__log", "time__now"].map(String::from))
        };
        assert_eq!(told("git__lgo"), "; did you mean `git__log`?");
        assert_eq!(told("now"), "; did you mean `time__now`?");
        assert!(told("read_file").starts_with("; did you mean `files__read_file`"), "{}", told("read_file"));
        assert!(told("files__read-file").starts_with("; did you mean `files__read_file`"));
        assert_eq!(told("weather"), "");
        assert_eq!(told(""), "");
    }
}
