//! The screen on which a command prints: its width in columns, and whether it shows colours.
//!
//! A terminal has a width of its own; elsewhere `$COLUMNS` is the width, and without it lines may
//! have any length.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthStr as _;

use crate::wire::foreign;

/// Least width that is assumed, in columns: on a narrower screen no layout works.
const NARROWEST: usize = 40;
/// Columns for a text if lines may have any length.
const PLENTY: usize = 120;

/// The screen of an output stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Screen {
    /// Width in columns; `None` if lines may have any length.
    width: Option<usize>,
    /// Height of a terminal in lines; `None` elsewhere.
    height: Option<usize>,
    colours: bool,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Column {
    pub(in crate::cli) head: &'static str,
    /// Priority: columns of rank 0 are always shown; of the others the highest rank is dropped
    /// first.
    pub(in crate::cli) rank: u8,
}

/// The colour of a cell or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Colour {
    Good,
    Busy,
    Bad,
    Pale,
}

impl Colour {
    /// Returns the terminal's control sequence.
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "\u{1b}[32m",
            Self::Busy => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31m",
            Self::Pale => "\u{1b}[2m",
        }
    }
}

impl Screen {
    /// The screen of this process's stdout.
    pub(in crate::cli) fn of_stdout() -> Self {
        Self::of_stream(&std::io::stdout())
    }

    /// The screen of this process's stderr.
    pub(in crate::cli) fn of_stderr() -> Self {
        Self::of_stream(&std::io::stderr())
    }

    fn of_stream(stream: &(impl IsTerminal + AsFd)) -> Self {
        let is_terminal = stream.is_terminal();
        let size = is_terminal.then(|| tcgetwinsize(stream).ok()).flatten();
        let own = size.map(|size| usize::from(size.ws_col));
        let height = size.map(|size| usize::from(size.ws_row)).filter(|height| *height > 0);
        let stated = || variable("COLUMNS").and_then(|text| text.parse().ok());
        let default = is_terminal.then_some(80);
        let width = own.filter(|width| *width > 0).or_else(stated).or(default).map(|width| width.max(NARROWEST));
        let is_plain = variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb");
        Self { width, height, colours: is_terminal && !is_plain }
    }

    #[cfg(test)]
    pub(in crate::cli) const fn of(width: Option<usize>) -> Self {
        Self { width, height: None, colours: false }
    }

    #[cfg(test)]
    pub(in crate::cli) const fn of_size(width: usize, height: usize) -> Self {
        Self { width: Some(width), height: Some(height), colours: false }
    }

    /// Returns the number of lines that a terminal shows at once; `None` if there is no limit.
    pub(in crate::cli) const fn height(self) -> Option<usize> {
        self.height
    }

    pub(in crate::cli) const fn has_colours(self) -> bool {
        self.colours
    }

    /// Colours a text, which must be ours, if the screen shows colours.
    pub(in crate::cli) fn paint(self, colour: Colour, text: &str) -> String {
        if self.colours { format!("{}{text}\u{1b}[0m", colour.code()) } else { text.to_owned() }
    }

    /// Wraps a paragraph between words, with its line end. No word is broken, so that names and
    /// commands can be copied.
    pub(in crate::cli) fn paragraph(self, text: &str) -> String {
        self.indented("", text)
    }

    /// Wraps as [`Self::paragraph`] does, behind an indent of spaces.
    pub(in crate::cli) fn indented(self, indent: &str, text: &str) -> String {
        let text = foreign::line(text);
        let Some(width) = self.width else { return format!("{indent}{text}\n") };
        let mut out = String::new();
        let mut line = indent.to_owned();
        for word in words(&text, width.saturating_sub(indent.len())) {
            let pieces = if indent.len() + word.width() > width { directories(word) } else { vec![word] };
            for (number, piece) in pieces.into_iter().enumerate() {
                let is_first = line.len() == indent.len();
                let gap = if number == 0 && !is_first { " " } else { "" };
                if !is_first && line.width() + gap.len() + piece.width() > width {
                    out.extend([line.as_str(), "\n"]);
                    indent.clone_into(&mut line);
                } else {
                    line.push_str(gap);
                }
                line.push_str(piece);
            }
        }
        out.extend([line.trim_end(), "\n"]);
        out
    }

    /// Wraps a line without changing its spaces; further lines begin behind `indent` spaces.
    pub(in crate::cli) fn folded(self, line: &str, indent: usize) -> String {
        let Some(width) = self.width else { return format!("{line}\n") };
        let indent = " ".repeat(indent.min(width / 2));
        let (mut out, mut rest, mut lead) = (String::new(), line, "");
        while lead.len() + rest.width() > width {
            let Some((first, behind)) = cut(rest, width - lead.len()) else { break };
            out.extend([lead, first, "\n"]);
            (rest, lead) = (behind, &indent);
        }
        out.extend([lead, rest, "\n"]);
        out
    }

    /// Puts a name in front of each value; long values continue below their beginning.
    pub(in crate::cli) fn pairs(self, pairs: &[(String, String)]) -> String {
        let name_width = pairs.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
        let indent = " ".repeat(name_width + 2);
        let mut out = String::new();
        for (name, value) in pairs {
            let gap = " ".repeat(name_width - name.width() + 2);
            let value = self.indented(&indent, value);
            out.push_str(&format!("{name}{gap}{}", value.trim_start_matches(' ')));
        }
        out
    }

    /// Returns the columns that are left beside `taken` ones; [`PLENTY`] if lines may have any
    /// length.
    pub(in crate::cli) fn room(self, taken: usize) -> usize {
        self.width.map_or(PLENTY, |width| width.saturating_sub(taken))
    }

    /// Returns true if lines of that width fit.
    pub(in crate::cli) fn fits(self, width: usize) -> bool {
        self.width.is_none_or(|own| width <= own)
    }

    /// Chooses the columns of a table that fit, by index: those of rank 0, and as many of the
    /// others as there is room for. If room is short, columns without content are dropped first.
    pub(in crate::cli) fn fitting(self, columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..columns.len()).collect();
        let widths: Vec<usize> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| cells(rows, at).map(|cell| cell.width()).max().unwrap_or(0).max(column.head.width()))
            .collect();
        let rank = |at: usize| columns.get(at).map_or(0, |column| column.rank);
        let room = |shown: &[usize]| {
            shown.iter().filter_map(|at| widths.get(*at)).sum::<usize>() + 2 * shown.len().saturating_sub(1)
        };
        if self.fits(room(&shown)) {
            return shown;
        }
        shown.retain(|at| rank(*at) == 0 || cells(rows, *at).any(|cell| !matches!(&*cell, "" | "-" | "0")));
        while !self.fits(room(&shown)) {
            let least = shown.iter().copied().max_by_key(|at| rank(*at)).filter(|at| rank(*at) > 0);
            let Some(least) = least else { break };
            shown.retain(|at| *at != least);
        }
        shown
    }

    /// Formats a table of the columns that [`Self::fitting`] chooses, one line for each row.
    /// `colour` gives the colour of a cell by column and text, `note` a text that follows a row,
    /// indented.
    pub(in crate::cli) fn table(
        self,
        columns: &[Column],
        rows: &[Vec<String>],
        colour: impl Fn(&str, &str) -> Option<Colour>,
        note: impl Fn(usize) -> Option<String>,
    ) -> String {
        let shown = self.fitting(columns, rows);
        let head: Vec<Cow<'_, str>> =
            shown.iter().filter_map(|at| columns.get(*at)).map(|column| column.head.into()).collect();
        let body: Vec<Vec<Cow<'_, str>>> =
            rows.iter().map(|row| shown.iter().map(|at| cell(row, *at)).collect()).collect();
        let lines = || std::iter::once(&head).chain(&body);
        let width = |at: usize| lines().filter_map(|line| line.get(at)).map(|cell| cell.width()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..shown.len()).map(width).collect();
        let mut out = String::new();
        for (number, line) in lines().enumerate() {
            let mut text = String::new();
            let mut gap = 0;
            for (at, cell) in line.iter().enumerate() {
                text.extend(std::iter::repeat_n(' ', gap));
                let name = head.get(at).map_or("", |name| &**name);
                match colour(name, cell).filter(|_| number > 0) {
                    Some(colour) => text.push_str(&self.paint(colour, cell)),
                    None => text.push_str(cell),
                }
                gap = 2 + widths.get(at).map_or(0, |width| width.saturating_sub(cell.width()));
            }
            out.push_str(text.trim_end());
            out.push('\n');
            if let Some(note) = number.checked_sub(1).and_then(&note) {
                out.push_str(&self.indented("    ", &note));
            }
        }
        out
    }

    /// Formats a table without colours and notes.
    pub(in crate::cli) fn plain(self, columns: &[Column], rows: &[Vec<String>]) -> String {
        self.table(columns, rows, |_, _| None, |_| None)
    }
}

/// Cuts foreign text to one line of at most `width` columns; an ellipsis stands for the rest.
pub(in crate::cli) fn shortened(text: &str, width: usize) -> String {
    let text = foreign::line(text);
    if text.width() <= width {
        return text.into_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if out.width() >= width {
            out.pop();
            break;
        }
    }
    out + "…"
}

/// Cuts a line behind the last word that fits, at least behind its first word; returns both parts,
/// or `None` for a single word. A text in backquotes is one word if it fits, so that commands can
/// be copied.
fn cut(line: &str, room: usize) -> Option<(&str, &str)> {
    let fits = |(first, _): &(&str, &str)| first.width() <= room;
    cut_at(line, room, false).filter(fits).or_else(|| cut_at(line, room, true))
}

/// Cuts as [`cut`] does; `anywhere` also allows a cut inside backquotes.
fn cut_at(line: &str, room: usize, anywhere: bool) -> Option<(&str, &str)> {
    let begin = line.len() - line.trim_start().len();
    let mut found: Option<(&str, &str)> = None;
    let mut quotes = false;
    for (at, c) in line.char_indices().filter(|(at, _)| *at >= begin) {
        quotes ^= c == '`';
        if c != ' ' || (quotes && !anywhere) {
            continue;
        }
        let (first, behind) = line.split_at(at);
        if found.is_some() && first.width() > room {
            break;
        }
        if !behind.trim_start().is_empty() {
            found = Some((first.trim_end(), behind.trim_start()));
        }
    }
    found
}

/// Splits a text into words; a text in backquotes is one word if it fits.
fn words(text: &str, room: usize) -> Vec<&str> {
    let mut quotes = false;
    let parts = text.split(|c: char| {
        quotes ^= c == '`';
        c == ' ' && !quotes
    });
    let mut words = Vec::new();
    for part in parts {
        if part.width() > room { words.extend(part.split(' ')) } else { words.push(part) }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Splits a list of directories such as a `PATH`, the only kind of word that may be broken.
fn directories(word: &str) -> Vec<&str> {
    let ends =
        word.match_indices(":/").map(|(at, _)| at + 1).filter(|at| !word.get(*at..).unwrap_or("").starts_with("//"));
    let mut parts = Vec::new();
    let mut begin = 0;
    for end in ends.chain([word.len()]) {
        parts.extend(word.get(begin..end));
        begin = end;
    }
    parts
}

/// Reads an environment variable; an empty one counts as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a cell as one line without control characters; empty if the row has none.
fn cell(row: &[String], at: usize) -> Cow<'_, str> {
    row.get(at).map_or(Cow::Borrowed(""), |text| foreign::line(text))
}

/// Returns the cells of a column.
fn cells(rows: &[Vec<String>], at: usize) -> impl Iterator<Item = Cow<'_, str>> {
    rows.iter().map(move |row| cell(row, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { head: "NAME", rank: 0 },
        Column { head: "STATE", rank: 0 },
        Column { head: "NEXT", rank: 2 },
        Column { head: "TOOLS", rank: 1 },
    ];

    fn rows(rows: &[[&str; 4]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.map(String::from).to_vec()).collect()
    }

    #[test]
    fn columns_go_by_their_rank_where_there_is_no_room() {
        let name = "n".repeat(30);
        let rows = rows(&[[&name, "ready", "12 s", "3"], ["b", "down", "-", "4"]]);
        let heads = |width| Screen::of(width).plain(&COLUMNS, &rows).lines().next().unwrap().to_owned();
        let squeezed = |width| heads(width).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(None), "NAME STATE NEXT TOOLS");
        assert_eq!(squeezed(Some(50)), "NAME STATE NEXT TOOLS");
        assert_eq!(squeezed(Some(49)), "NAME STATE TOOLS");
        assert_eq!(squeezed(Some(40)), "NAME STATE", "what has no rank stays, also where it does not fit");
    }

    #[test]
    fn columns_without_content_go_before_others() {
        let name = "n".repeat(30);
        let rows = rows(&[[&name, "ready", "-", "3"]]);
        assert!(Screen::of(Some(50)).plain(&COLUMNS, &rows).contains("NEXT"));
        let narrow = Screen::of(Some(45)).plain(&COLUMNS, &rows);
        assert!(!narrow.contains("NEXT") && narrow.contains("TOOLS"), "{narrow}");
    }

    #[test]
    fn columns_line_up_by_display_width_and_rows_stay_lines() {
        let rows = rows(&[["日本\n", "ab", "", ""], ["e\u{301}", "cd\u{1b}[2J", "x", ""]]);
        let shown = Screen::of(None).plain(&COLUMNS, &rows);
        let states: Vec<usize> =
            shown.lines().skip(1).map(|line| line.find(['a', 'c']).map(|at| line[..at].width()).unwrap()).collect();
        assert_eq!(states.len(), 2, "{shown}");
        assert_eq!(states[0], states[1], "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }

    #[test]
    fn a_note_follows_its_row_and_words_are_never_broken() {
        let rows = rows(&[["a", "down", "", ""]]);
        let note = "the program /a/path/that/is/longer/than/the/screen/is/wide ended";
        let shown = Screen::of(Some(40)).table(&COLUMNS, &rows, |_, _| None, |_| Some(note.to_owned()));
        let lines: Vec<&str> = shown.lines().skip(2).collect();
        assert_eq!(lines, ["    the program", "    /a/path/that/is/longer/than/the/screen/is/wide", "    ended"]);
        assert_eq!(Screen::of(None).paragraph("a b"), "a b\n");
        let path = "not in PATH (/usr/local/sbin:/usr/local/bin:/usr/bin:http://x): install it";
        let wanted = "not in PATH (/usr/local/sbin:\n/usr/local/bin:/usr/bin:http://x):\ninstall it\n";
        assert_eq!(Screen::of(Some(40)).paragraph(path), wanted);
        let command = "approve it at a terminal with `headend approve ID`; call again";
        let wanted = "approve it at a terminal with\n`headend approve ID`; call again\n";
        assert_eq!(Screen::of(Some(40)).paragraph(command), wanted);
        assert_eq!(Screen::of(Some(40)).folded(command, 0), wanted);
    }

    #[test]
    fn a_folded_line_keeps_its_own_spaces_and_goes_on_behind_its_indent() {
        let screen = Screen::of(Some(40));
        let line = "    effect:    changes things, may delete, stays inside (not verified)";
        let wanted =
            "    effect:    changes things, may\n               delete, stays inside (not\n               verified)\n";
        assert_eq!(screen.folded(line, 15), wanted);
        assert_eq!(screen.folded("  short   line", 15), "  short   line\n");
        let word = "w".repeat(50);
        assert_eq!(screen.folded(&word, 4), format!("{word}\n"));
        assert_eq!(screen.folded(&format!("  {word} a"), 4), format!("  {word}\n    a\n"));
        assert_eq!(Screen::of(None).folded(line, 15), format!("{line}\n"));
    }
}
