//! Lists open approvals, one line each.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::status::time;
use crate::cli::words::screen::{Column, Screen, shortened};
use crate::policy::consent::ApprovalView;
use crate::wire::foreign;

/// Shortest beginning of an id that commands accept, in characters.
pub(super) const MIN_PREFIX: usize = 4;
/// Characters of an id that are shown, if they suffice to tell all ids apart.
const ID: usize = 8;
/// Least width of the arguments' column, in columns.
const LEAST_ARGUMENTS: usize = 12;
const COLUMNS: [Column; 7] = [
    Column { head: "ID", rank: 0 },
    Column { head: "ASKED", rank: 1 },
    Column { head: "LEFT", rank: 4 },
    Column { head: "CALLER", rank: 3 },
    Column { head: "NEEDS", rank: 5 },
    Column { head: "CALL", rank: 0 },
    Column { head: "ARGUMENTS", rank: 2 },
];

/// Formats the approvals as a table in the given order. Arguments are cut at the edge of the
/// screen.
pub(super) fn table(screen: Screen, rows: &[ApprovalView]) -> String {
    let ids: Vec<String> = rows.iter().map(|row| foreign::line(&row.id).into_owned()).collect();
    let length = (MIN_PREFIX.max(ID)..).find(|length| are_distinct(&ids, *length)).unwrap_or(ID);
    let mut cells: Vec<Vec<String>> = rows
        .iter()
        .zip(&ids)
        .map(|(row, id)| {
            let (ago, left) = (format!("{} ago", time(row.age)), time(row.left));
            let [caller, needs, item] =
                [row.caller.name(), &row.min_evidence, &row.item].map(|text| foreign::line(text).into_owned());
            let id = id.chars().take(length).collect();
            vec![id, ago, left, caller, needs, item, arguments(&row.message)]
        })
        .collect();
    let width = |at: usize, head: &str| {
        cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.width()).max().unwrap_or(0).max(head.len())
    };
    let last = COLUMNS.len() - 1;
    let taken: usize = COLUMNS.iter().take(last).enumerate().map(|(at, column)| width(at, column.head) + 2).sum();
    let room = screen.room(taken).max(LEAST_ARGUMENTS);
    cells.iter_mut().filter_map(|row| row.last_mut()).for_each(|cell| *cell = shortened(cell, room));
    screen.plain(&COLUMNS, &cells)
}

/// Returns true if the first `length` characters tell the ids apart, or if the ids have no more.
fn are_distinct(ids: &[String], length: usize) -> bool {
    let starts: std::collections::HashSet<&str> = ids.iter().map(|id| id.get(..length).unwrap_or(id)).collect();
    starts.len() == ids.len() || ids.iter().all(|id| id.len() <= length)
}

/// Returns the arguments on one line. They are the only indented lines of a message.
fn arguments(message: &str) -> String {
    let mut out = String::new();
    for line in message.lines().filter_map(|line| line.strip_prefix("  ")) {
        let line = line.trim();
        // A text of several lines has a bar before each line, below its name.
        let line = line.strip_prefix("| ").unwrap_or(line);
        out.push_str(match out.chars().next_back() {
            None => "",
            Some(':') => " ",
            Some(_) => ", ",
        });
        out.push_str(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_is_one_line_whatever_its_arguments_are() {
        let row = |id: &str, text: &str| {
            let message = format!(
                "headend asks\narguments: 9 bytes\n  path: \"/x\"\n  text:\n    | {text}\ndefinition 1\nNo answer"
            );
            let [id, item] = [id, "fx__edit"].map(str::to_owned);
            ApprovalView { id, item, message, age: 75, left: 825, ..ApprovalView::default() }
        };
        let rows = [row("abcdefghijkl", &"\"long\" ".repeat(40)), row("abcdefghizzz", "\"\u{1b}[2J\"")];
        for width in [40, 80, 200] {
            let text = table(Screen::of(Some(width)), &rows);
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
            assert!(text.contains("abcdefghij ") && text.contains("fx__edit") && !text.contains('\u{1b}'), "{text}");
        }
        let wide = table(Screen::of(None), &rows);
        assert!(
            wide.contains("75 s ago") && wide.contains("13 min") && wide.contains("path: \"/x\", text: "),
            "{wide}"
        );
    }
}
