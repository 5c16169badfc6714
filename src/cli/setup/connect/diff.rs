//! Shows the change of a file, with the lines around it.

use crate::cli::words::screen::{Colour, Screen};
use crate::wire::foreign;
use crate::wire::foreign::changes::{TextChange, by_lines};

/// Unchanged lines that are shown on each side of a change.
const CONTEXT: usize = 2;
/// Longest line that is shown as it is, in bytes; JSON without line breaks is broken for display.
const MAX_LINE: usize = 400;
/// Most lines that are compared; of more, each is shown.
const MAX_LINES: usize = 20_000;

/// Formats the change of a file from one text to another, both without secrets.
pub(super) fn text(screen: Screen, old: &str, new: &str) -> String {
    let is_long = [old, new].iter().any(|text| text.lines().any(|line| line.len() > MAX_LINE));
    let broken = |text: &str| text.replace('{', "{\n").replace("},", "},\n").replace(",\"", ",\n\"");
    let (old, new) = if is_long { (broken(old), broken(new)) } else { (old.to_owned(), new.to_owned()) };
    let lines = by_lines(&old, &new, &mut { MAX_LINES });
    let is_changed = |at: usize| lines.get(at).is_some_and(|(change, _)| *change != TextChange::Kept);
    let is_near = |at: usize| (at.saturating_sub(CONTEXT)..=at + CONTEXT).any(is_changed);
    let (mut out, mut gap) = (String::new(), false);
    for (at, (change, line)) in lines.iter().enumerate() {
        if !is_near(at) {
            gap = true;
            continue;
        }
        if std::mem::take(&mut gap) {
            out.push_str("    ...\n");
        }
        let line = line.trim_end_matches(['\r', '\n']).replace('\t', "    ");
        let line = foreign::line(&line);
        out.push_str(&match change {
            TextChange::Kept => format!("    {line}"),
            TextChange::Removed => screen.paint(Colour::Bad, &format!("  - {line}")),
            TextChange::Added => screen.paint(Colour::Good, &format!("  + {line}")),
        });
        out.push('\n');
    }
    out
}
