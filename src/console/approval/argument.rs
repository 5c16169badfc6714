//! Lays out the arguments of a call for the card of its approval.

use crate::console::text::{ForeignPiece, marked};
use crate::policy::consent::view::{ArgumentView, BlockContent, EditLine, TextLine, ViewBlock};
use crate::wire::foreign::changes::TextChange;
use crate::wire::foreign::marked::MarkedText;

/// Unchanged lines shown on each side of a change.
const CONTEXT: usize = 2;

/// One value of the arguments, with the path to it.
#[derive(Debug, Default)]
pub(crate) struct ShownArgument {
    /// Path of the value inside the arguments.
    pub(crate) place: Vec<ForeignPiece>,
    /// The value if it fits on one line; otherwise `None`, and `rows` are shown.
    pub(crate) value: Option<Vec<ForeignPiece>>,
    /// Size of the value, in words.
    pub(crate) size: String,
    pub(crate) is_edit: bool,
    pub(crate) rows: Vec<ArgumentLine>,
    /// Sentence about the part that is not shown.
    pub(crate) cut: Option<String>,
}

/// One line of a longer text.
#[derive(Debug)]
pub(crate) struct ArgumentLine {
    pub(crate) kind: ArgumentLineKind,
    pub(crate) pieces: Vec<ForeignPiece>,
    /// Mark that shows how the line ends.
    pub(crate) end: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentLineKind {
    Kept,
    Removed,
    Added,
    /// Stands for this many unchanged lines, which are left out.
    Gap(usize),
}

impl ShownArgument {
    /// Shows the beginning of arguments that were too long to be kept, at most `most` bytes of it.
    pub(crate) fn beginning(text: &str, most: usize) -> Self {
        let (head, at) = MarkedText::beginning(text, most);
        let row = ArgumentLine { kind: ArgumentLineKind::Kept, pieces: marked(&head), end: "" };
        let cut = (at < text.len()).then(|| "More is not shown here.".to_owned());
        Self {
            place: vec![ForeignPiece::plain("The beginning; the arguments are too long to be kept")],
            rows: vec![row],
            cut,
            ..Self::default()
        }
    }
}

impl ArgumentLine {
    fn of(kind: ArgumentLineKind, line: &TextLine) -> Self {
        Self { kind, pieces: marked(&line.text), end: line.end.mark() }
    }

    const fn gap(lines: usize) -> Self {
        Self { kind: ArgumentLineKind::Gap(lines), pieces: Vec::new(), end: "" }
    }
}

/// Converts the blocks of a view, in their order.
pub(crate) fn arguments(view: &ArgumentView) -> Vec<ShownArgument> {
    view.blocks.iter().map(argument).collect()
}

/// Lays out one block of a view.
fn argument(block: &ViewBlock) -> ShownArgument {
    let mut place = if block.place.is_empty() { vec![ForeignPiece::plain("(all)")] } else { marked(&block.place) };
    let more = |cut: usize| (cut > 0).then(|| format!("{cut} bytes more are not shown here."));
    let none = ShownArgument::default();
    match &block.content {
        BlockContent::Value(value) => ShownArgument { place, value: Some(marked(value)), ..none },
        BlockContent::Text { lines, size, cut } => {
            // An empty last line is left out: the mark of the line before shows that the text ends
            // there.
            let ends = lines.last().is_some_and(|line| line.text.is_empty()) && lines.len() > 1 && *cut == 0;
            let shown = lines.len() - usize::from(ends);
            let rows = lines.iter().take(shown).map(|line| ArgumentLine::of(ArgumentLineKind::Kept, line)).collect();
            ShownArgument { place, size: size.told(), rows, cut: more(*cut), ..none }
        }
        BlockContent::Edit { new, lines, cut } => {
            place.push(ForeignPiece::plain(" \u{2192} "));
            place.extend(marked(new));
            ShownArgument { place, is_edit: true, rows: folded(lines), cut: more(*cut), ..none }
        }
        BlockContent::Binary(binary) => {
            let mut pieces = marked(&binary.beginning);
            pieces.push(ForeignPiece::plain(" .."));
            let rows = vec![ArgumentLine { kind: ArgumentLineKind::Kept, pieces, end: "" }];
            let cut = Some("Only the beginning is shown, since it looks binary.".to_owned());
            ShownArgument { place, size: binary.told(), rows, cut, ..none }
        }
    }
}

/// Returns the lines of an edit. Long unchanged stretches are shortened to the lines beside a
/// change.
fn folded(lines: &[EditLine]) -> Vec<ArgumentLine> {
    let mut rows = Vec::with_capacity(lines.len());
    let mut at = 0;
    for stretch in lines.chunk_by(|one, other| kind(one) == kind(other)) {
        let head = if at == 0 { 0 } else { CONTEXT };
        at += stretch.len();
        let tail = if at == lines.len() { 0 } else { CONTEXT };
        let gap = stretch.len().saturating_sub(head + tail);
        let is_folded = gap > 2 && stretch.first().is_some_and(|one| kind(one) == ArgumentLineKind::Kept);
        for (n, one) in stretch.iter().enumerate() {
            let is_left_out = is_folded && (head..head + gap).contains(&n);
            match one {
                EditLine::Line(..) if is_left_out && n > head => {}
                EditLine::Line(..) if is_left_out => rows.push(ArgumentLine::gap(gap)),
                EditLine::Line(_, line) => rows.push(ArgumentLine::of(kind(one), line)),
                EditLine::Same(count) => rows.push(ArgumentLine::gap(*count)),
            }
        }
    }
    rows
}

fn kind(one: &EditLine) -> ArgumentLineKind {
    match one {
        EditLine::Line(TextChange::Kept, _) => ArgumentLineKind::Kept,
        EditLine::Line(TextChange::Removed, _) => ArgumentLineKind::Removed,
        EditLine::Line(TextChange::Added, _) => ArgumentLineKind::Added,
        EditLine::Same(count) => ArgumentLineKind::Gap(*count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &str) -> Vec<String> {
        let rows = arguments(&ArgumentView::of(json, 4096)).into_iter().flat_map(|argument| argument.rows);
        let told = |row: ArgumentLine| {
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
