//! What commands print: results on stdout, complaints on stderr, foreign text with its control characters visible.

use std::io::Write as _;

use super::{OK, SOFTWARE};

/// Why a command ends without doing its work.
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
        // The reader had enough, as `head` has.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(OK),
        Err(error) => Err(Failure::new(SOFTWARE, format!("write to stdout: {error}"))),
    }
}

/// Writes a complaint to stderr.
pub(super) fn complain(text: &str) {
    // Nothing is left to do where stderr is closed.
    drop(writeln!(std::io::stderr().lock(), "headend: {text}"));
}

/// Foreign text for a terminal: control characters become visible and cannot move the cursor.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Rows as columns, each as wide as its widest cell.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!(plain("line\nnext"), "line\nnext");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
    }
}
