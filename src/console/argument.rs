//! Lays out the arguments of a call for the card of its approval.

use super::text::{Piece, marked};
use crate::policy::consent::view::{Block, Content, EditLine, TextLine, View};
use crate::wire::foreign::changes::Change;
use crate::wire::foreign::marked::Marked;

/// Unchanged lines shown on each side of a change.
const CONTEXT: usize = 2;

/// One value of the arguments, with the path to it.
#[derive(Debug, Default)]
pub(crate) struct Argument {
    /// Path of the value inside the arguments.
    pub(crate) place: Vec<Piece>,
    /// The value if it fits on one line; otherwise `None`, and `rows` are shown.
    pub(crate) value: Option<Vec<Piece>>,
    /// Size of the value, in words.
    pub(crate) size: String,
    pub(crate) is_edit: bool,
    pub(crate) rows: Vec<Row>,
    /// Sentence about the part that is not shown.
    pub(crate) cut: Option<String>,
}

/// One line of a longer text.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) kind: RowKind,
    pub(crate) pieces: Vec<Piece>,
    /// Mark that shows how the line ends.
    pub(crate) end: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Kept,
    Removed,
    Added,
    /// Stands for this many unchanged lines, which are left out.
    Gap(usize),
}

impl Argument {
    /// Shows the beginning of arguments that were too long to be kept, at most `most` bytes of it.
    pub(crate) fn beginning(text: &str, most: usize) -> Self {
        let (head, at) = Marked::beginning(text, most);
        let row = Row { kind: RowKind::Kept, pieces: marked(&head), end: "" };
        let cut = (at < text.len()).then(|| "More is not shown here.".to_owned());
        Self {
            place: vec![Piece::plain("The beginning; the arguments are too long to be kept")],
            rows: vec![row],
            cut,
            ..Self::default()
        }
    }
}

impl Row {
    fn of(kind: RowKind, line: &TextLine) -> Self {
        Self { kind, pieces: marked(&line.text), end: line.end.mark() }
    }

    const fn gap(lines: usize) -> Self {
        Self { kind: RowKind::Gap(lines), pieces: Vec::new(), end: "" }
    }
}

/// Converts the blocks of a view, in their order.
pub(crate) fn arguments(view: &View) -> Vec<Argument> {
    view.blocks.iter().map(argument).collect()
}

/// Lays out one block of a view.
fn argument(block: &Block) -> Argument {
    let mut place = if block.place.is_empty() { vec![Piece::plain("(all)")] } else { marked(&block.place) };
    let more = |cut: usize| (cut > 0).then(|| format!("{cut} bytes more are not shown here."));
    let none = Argument::default();
    match &block.content {
        Content::Value(value) => Argument { place, value: Some(marked(value)), ..none },
        Content::Text { lines, size, cut } => {
            // An empty last line is left out: the mark of the line before shows that the text ends
            // there.
            let ends = lines.last().is_some_and(|line| line.text.is_empty()) && lines.len() > 1 && *cut == 0;
            let shown = lines.len() - usize::from(ends);
            let rows = lines.iter().take(shown).map(|line| Row::of(RowKind::Kept, line)).collect();
            Argument { place, size: size.told(), rows, cut: more(*cut), ..none }
        }
        Content::Edit { new, lines, cut } => {
            place.push(Piece::plain(" \u{2192} "));
            place.extend(marked(new));
            Argument { place, is_edit: true, rows: folded(lines), cut: more(*cut), ..none }
        }
        Content::Binary(binary) => {
            let mut pieces = marked(&binary.beginning);
            pieces.push(Piece::plain(" .."));
            let rows = vec![Row { kind: RowKind::Kept, pieces, end: "" }];
            let cut = Some("Only the beginning is shown, since it looks binary.".to_owned());
            Argument { place, size: binary.told(), rows, cut, ..none }
        }
    }
}

/// Returns the lines of an edit. Long unchanged stretches are shortened to the lines beside a
/// change.
fn folded(lines: &[EditLine]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(lines.len());
    let mut at = 0;
    for stretch in lines.chunk_by(|one, other| kind(one) == kind(other)) {
        let head = if at == 0 { 0 } else { CONTEXT };
        at += stretch.len();
        let tail = if at == lines.len() { 0 } else { CONTEXT };
        let gap = stretch.len().saturating_sub(head + tail);
        let is_folded = gap > 2 && stretch.first().is_some_and(|one| kind(one) == RowKind::Kept);
        for (n, one) in stretch.iter().enumerate() {
            let is_left_out = is_folded && (head..head + gap).contains(&n);
            match one {
                EditLine::Line(..) if is_left_out && n > head => {}
                EditLine::Line(..) if is_left_out => rows.push(Row::gap(gap)),
                EditLine::Line(_, line) => rows.push(Row::of(kind(one), line)),
                EditLine::Same(count) => rows.push(Row::gap(*count)),
            }
        }
    }
    rows
}

fn kind(one: &EditLine) -> RowKind {
    match one {
        EditLine::Line(Change::Kept, _) => RowKind::Kept,
        EditLine::Line(Change::Removed, _) => RowKind::Removed,
        EditLine::Line(Change::Added, _) => RowKind::Added,
        EditLine::Same(count) => RowKind::Gap(*count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &str) -> Vec<String> {
        let rows = arguments(&View::of(json, 4096)).into_iter().flat_map(|argument| argument.rows);
        let told = |row: Row| {
            let text: String = row.pieces.into_iter().map(|piece| piece.text).collect();
            format!("{:?} {text}{}", row.kind, row.end)
        };
        rows.map(told).collect()
    }

    #[test]
    fn an_edit_leaves_out_what_is_far_from_its_changes() {
        let same = "s\\n".repeat(8);
        assert_eq!(
            told(&format!(r#"{{"old_text":"{same}a\n{same}b","new_text":"{same}A\n{same}b"}}"#)),
            ["Gap(6) ", "Kept s↵", "Kept s↵", "Removed a↵", "Added A↵", "Kept s↵", "Kept s↵", "Gap(7) ",]
        );
        assert_eq!(told(r#"{"old_text":"a","new_text":"a"}"#), ["Kept a"]);
        assert_eq!(told(r#"{"text":"a\r\n\u202eb"}"#), ["Kept a\\r↵", "Kept \\u{202e}b"]);
    }
}
