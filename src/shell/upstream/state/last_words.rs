//! The last lines that a child wrote to stderr, with the secrets that it was given replaced by
//! their names.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::source::secret::Secret;
use crate::wire::json::raw::RawJson;

/// Most lines that are kept, and most bytes that are shown of them.
const LINES: usize = 20;
const BYTES: usize = 4096;
/// Shorter values, in bytes, are no secrets but words that occur anywhere, such as `1` and `yes`.
const SHORTEST: usize = 4;

/// The last lines of one child.
#[derive(Clone, Debug)]
pub struct LastWords {
    lines: Arc<Mutex<VecDeque<String>>>,
    secrets: Arc<Secrets>,
}

impl LastWords {
    /// Creates an empty buffer for a child that gets these variables.
    pub fn of(env: &[(String, Secret)]) -> Self {
        Self { lines: Arc::default(), secrets: Arc::new(Secrets::of(env)) }
    }

    /// Returns a line with secrets replaced. A line that `is_cut` may end within a secret.
    pub fn shown(&self, line: &str, is_cut: bool) -> String {
        self.secrets.hidden(line, is_cut)
    }

    pub fn push(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Returns the last line, for a status display.
    pub fn last(&self) -> Option<String> {
        self.lines.lock().back().cloned()
    }

    /// Returns the last lines within the limits, oldest first.
    pub fn all(&self) -> Vec<String> {
        let mut room = BYTES;
        let mut shown = Vec::new();
        for line in self.lines.lock().iter().rev() {
            let Some(left) = room.checked_sub(line.len() + 1) else {
                // The beginning of a line that is too long is still worth showing.
                if shown.is_empty() {
                    shown.push(line.chars().take(BYTES / 4).collect());
                }
                break;
            };
            room = left;
            shown.push(line.clone());
        }
        shown.reverse();
        shown
    }
}

/// Replaces these values in a text for people.
pub(crate) fn without(secrets: &[(String, Secret)], text: String) -> String {
    if secrets.is_empty() { text } else { Secrets::of(secrets).hidden(&text, false) }
}

/// Values to hide, the longest first, with the names that replace them.
struct Secrets(Vec<(String, String)>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    fn of(env: &[(String, Secret)]) -> Self {
        let mut values = Vec::new();
        for (name, secret) in env {
            // A key of several lines appears line by line.
            for value in secret.expose().lines().map(str::trim).filter(|value| value.len() >= SHORTEST) {
                let in_json = RawJson::string(value).text().into_owned();
                let in_json = in_json.get(1..in_json.len() - 1).unwrap_or_default().to_owned();
                let in_url: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
                // The form of a host in a URL.
                let lower = value.to_lowercase();
                for form in [value.to_owned(), in_json, in_url, lower] {
                    if !values.iter().any(|(known, _)| *known == form) {
                        values.push((form, format!("${name}")));
                    }
                }
            }
        }
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// Replaces the values in a line. If the line `is_cut`, also removes the beginning of a value
    /// at its end.
    fn hidden(&self, line: &str, is_cut: bool) -> String {
        let mut out = line.to_owned();
        for (value, name) in &self.0 {
            if out.contains(value.as_str()) {
                out = out.replace(value.as_str(), name);
            }
        }
        if is_cut {
            for (value, _) in &self.0 {
                let begun =
                    (1..value.len()).rev().filter_map(|end| value.get(..end)).find(|begun| out.ends_with(*begun));
                if let Some(begun) = begun {
                    out.truncate(out.len() - begun.len());
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(env: &[(&str, &str)]) -> LastWords {
        let env: Vec<_> =
            env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect();
        LastWords::of(&env)
    }

    #[test]
    fn secrets_of_the_child_have_their_names_instead() {
        let words = words(&[
            ("TOKEN", "hunter2/x \"y\""),
            ("LONGER", "hunter2/x \"y\" and more"),
            ("KEY", "-----BEGIN-----\nabcdef\n-----END-----"),
            ("DEBUG", "1"),
        ]);
        for (line, want) in [
            ("bad token hunter2/x \"y\"!", "bad token $TOKEN!"),
            (r#"{"token":"hunter2/x \"y\""}"#, r#"{"token":"$TOKEN"}"#),
            ("GET /?t=hunter2%2Fx+%22y%22&n=1", "GET /?t=$TOKEN&n=1"),
            ("hunter2/x \"y\" and more", "$LONGER"),
            ("abcdef", "$KEY"),
            ("attempt 1 of 3", "attempt 1 of 3"),
        ] {
            assert_eq!(words.shown(line, false), want, "{line}");
        }
        assert_eq!(words.shown("token hunter2/x", true), "token ", "cut within it");
        assert_eq!(words.shown("token hunter2/x", false), "token hunter2/x");
        assert!(!format!("{words:?}").contains("hunter2"));
    }

    #[test]
    fn the_last_lines_are_kept_within_their_bounds() {
        let words = words(&[]);
        (0..100).for_each(|n| words.push(n.to_string()));
        let want: Vec<String> = (80..100).map(|n| n.to_string()).collect();
        assert_eq!(words.all(), want);
        words.push("x".repeat(4000));
        words.push("y".repeat(94));
        assert_eq!(words.all().iter().map(String::len).collect::<Vec<_>>(), [4000, 94]);
        words.push("z".repeat(5000));
        assert_eq!(words.all().iter().map(String::len).collect::<Vec<_>>(), [1024]);
        assert_eq!(words.last().map(|line| line.len()), Some(5000));
    }
}
