//! Output of commands: results on stdout, errors on stderr, foreign text with hidden characters escaped.

use std::borrow::Cow;
use std::io::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::exit::{OK, SOFTWARE};
use crate::wire::foreign;

/// Why a command failed, and its exit code.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    /// What happened and what to do next.
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(code: u8, text: impl std::fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }
}

/// Writes a result to stdout.
pub(super) fn print(text: &str) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(OK),
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(OK),
        Err(error) => Err(Failure::new(SOFTWARE, format!("write to stdout: {error}"))),
    }
}

/// Writes an error to stderr. Errors may quote foreign text, which must not steer a terminal.
pub(super) fn complain(text: &str) {
    // If stderr is closed, there is nobody to tell.
    drop(writeln!(std::io::stderr().lock(), "headend: {}", foreign::block(text)));
}

/// A number with its noun: `1 rule`, `2 rules`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Rows as columns, each as wide as its widest cell on a terminal. A row stays one line, whatever its cells hold.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| foreign::line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let padding = |cell: &str, width: usize| " ".repeat(width.saturating_sub(cell.width()));
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell}{}", padding(cell, *width)));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
    }

    #[test]
    fn columns_line_up_where_a_character_takes_two_cells_or_none() {
        let rows = |first: &[&str]| first.iter().map(|cell| vec![(*cell).into(), "x".into()]).collect::<Vec<_>>();
        // Two columns each; an emoji of three code points in two columns; a letter and its accent in one.
        assert_eq!(table(&rows(&["日本", "abcde"])), "日本   x\nabcde  x\n");
        assert_eq!(table(&rows(&["👩\u{200d}💻", "ab"])), "👩\u{200d}💻  x\nab  x\n");
        assert_eq!(table(&rows(&["e\u{301}", "ab"])), "e\u{301}   x\nab  x\n");
    }

    #[test]
    fn a_cell_makes_no_row_of_its_own() {
        for breaks in ["\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"] {
            let rows = [vec![format!("a{breaks}fs__read  tool  pinned"), "x".into()], vec!["b".into(), "y\tz".into()]];
            let shown = table(&rows);
            assert_eq!(
                shown.chars().filter(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')).count(),
                2,
                "{shown}"
            );
            assert_eq!(shown.lines().count(), 2, "{shown}");
        }
    }
}
