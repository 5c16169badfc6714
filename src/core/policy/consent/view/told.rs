//! A view as lines of text: plain for a form, and with colours for a terminal.
//!
//! Each line of a foreign text is behind a bar, so that no text looks like a line that headend
//! wrote.

use super::{ArgumentView, BinaryText, BlockContent, EditLine, OmittedValues, TextLine, TextSize, ViewBlock};
use crate::wire::foreign::LineEnd;
use crate::wire::foreign::changes::TextChange;
use crate::wire::foreign::marked::MarkedText;

/// The colours of a rendered view: the text written before a part of each kind, and `off` after it.
#[derive(Clone, Copy, Debug)]
pub struct ViewColours {
    pub pale: &'static str,
    pub alarm: &'static str,
    pub removed: &'static str,
    pub added: &'static str,
    pub off: &'static str,
    /// True if ends of lines are marked. Without colours the bar of the next line shows them.
    pub marks_ends: bool,
}

impl ViewColours {
    /// Plain text, without colours.
    pub const NONE: Self = Self { pale: "", alarm: "", removed: "", added: "", off: "", marks_ends: false };
    /// The colours of a terminal.
    pub const TERMINAL: Self = Self {
        pale: "\u{1b}[2m",
        alarm: "\u{1b}[1;31m",
        removed: "\u{1b}[31m",
        added: "\u{1b}[32m",
        off: "\u{1b}[0m",
        marks_ends: true,
    };

    /// Appends headend's own text in the pale colour.
    fn pale(&self, text: &str, out: &mut String) {
        if !text.is_empty() {
            out.extend([self.pale, text, self.off]);
        }
    }

    /// Appends foreign text in `colour`, with its hidden characters in the alarm colour.
    pub fn marked(&self, text: &MarkedText, colour: &str, out: &mut String) {
        for (hidden, part) in text.parts() {
            let on = if hidden { self.alarm } else { colour };
            let off = if on.is_empty() { "" } else { self.off };
            out.extend([on, part, off]);
        }
    }
}

impl ArgumentView {
    /// Renders the view in lines.
    pub fn told(&self, paint: &ViewColours) -> String {
        let mut out = String::new();
        for block in &self.blocks {
            block.tell(paint, &mut out);
        }
        if self.left_out.values > 0 {
            out.push_str(&self.left_out.told());
            out.push('\n');
        }
        out
    }
}

impl OmittedValues {
    /// Describes the number and size of the values in a sentence.
    pub fn told(&self) -> String {
        match self.values {
            1 => format!("1 value is not shown here ({} bytes)", self.bytes),
            many => format!("{many} values are not shown here ({} bytes)", self.bytes),
        }
    }
}

impl TextSize {
    /// Describes the size, such as `3 lines, 120 bytes`.
    pub fn told(&self) -> String {
        match self.lines {
            0 | 1 => format!("{} bytes", self.bytes),
            lines => format!("{lines} lines, {} bytes", self.bytes),
        }
    }
}

impl BinaryText {
    /// Describes the string in a sentence, without its beginning.
    pub fn told(&self) -> String {
        format!("looks binary, {} bytes, SHA-256 {}", self.bytes, self.digest)
    }
}

impl ViewBlock {
    /// Appends the block in lines.
    fn tell(&self, paint: &ViewColours, out: &mut String) {
        let place = |out: &mut String| {
            if self.place.is_empty() {
                out.push_str("(all)");
            }
            paint.marked(&self.place, "", out);
        };
        match &self.content {
            BlockContent::Value(value) => {
                place(out);
                out.push_str(": ");
                paint.marked(value, "", out);
                out.push('\n');
            }
            BlockContent::Text { lines, size, cut } => {
                place(out);
                out.push_str(&format!(" ({}):\n", size.told()));
                lines.iter().for_each(|line| tell_line(paint, ("  | ", ""), line, paint.marks_ends, out));
                not_shown(*cut, out);
            }
            BlockContent::Edit { new, lines, cut } => {
                place(out);
                out.push_str(" -> ");
                paint.marked(new, "", out);
                out.push_str(" (- is replaced by +):\n");
                // Without colours, ends are marked only if the two texts end differently.
                let is_one = |one: &EditLine, end: LineEnd| match one {
                    EditLine::Line(change, line) => *change != TextChange::Kept && line.end == end,
                    EditLine::Same(_) => false,
                };
                let ends = |end: LineEnd| lines.iter().any(|one| is_one(one, end));
                let marks_ends = paint.marks_ends || (ends(LineEnd::Text) && ends(LineEnd::Feed));
                for one in lines {
                    match one {
                        EditLine::Line(TextChange::Kept, line) => {
                            tell_line(paint, ("    | ", ""), line, marks_ends, out)
                        }
                        EditLine::Line(TextChange::Removed, line) => {
                            tell_line(paint, ("  - | ", paint.removed), line, marks_ends, out);
                        }
                        EditLine::Line(TextChange::Added, line) => {
                            tell_line(paint, ("  + | ", paint.added), line, marks_ends, out);
                        }
                        EditLine::Same(count) => out.push_str(&format!("  .. {count} lines in both texts\n")),
                    }
                }
                not_shown(*cut, out);
            }
            BlockContent::Binary(binary) => {
                place(out);
                out.push_str(&format!(" ({}), begins:\n", binary.told()));
                out.push_str("  | ");
                paint.marked(&binary.beginning, "", out);
                out.push('\n');
            }
        }
    }
}

/// Appends one line of foreign text behind a bar. If `marks_ends` is true, a mark shows its end;
/// otherwise only a carriage return there is marked.
fn tell_line(paint: &ViewColours, (bar, colour): (&str, &str), line: &TextLine, marks_ends: bool, out: &mut String) {
    paint.pale(bar, out);
    paint.marked(&line.text, colour, out);
    let mark = line.end.mark();
    // The bar at the next line is mark enough for the plain end of a line.
    paint.pale(if marks_ends { mark } else { mark.trim_end_matches('\u{21b5}') }, out);
    out.push('\n');
}

/// Appends a line that says how many bytes are not shown; nothing if there are none.
fn not_shown(cut: usize, out: &mut String) {
    if cut > 0 {
        out.push_str(&format!("  .. {cut} bytes more are not shown here\n"));
    }
}
