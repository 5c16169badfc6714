//! Limits foreign text in an elicitation to a screen, with hidden characters spelled out.

use crate::wire::foreign;

/// The limit of lines in a message, blank ones included.
const MAX_LINES: usize = 24;
/// The limit of characters in a message.
const MAX_CHARS: usize = 4096;

/// Puts the server's name before and after its message, so that no length of text moves both out of
/// sight.
pub(super) fn label_message(upstream: &str, message: &str) -> String {
    let message = bound_message(message);
    let apart = if message.contains('\n') { '\n' } else { ' ' };
    format!("[{upstream}] {message}{apart}[{upstream}]")
}

/// Returns foreign text within the limits of a message, without several blank lines in a row.
pub fn bound_message(text: &str) -> String {
    lines(text, MAX_LINES, MAX_CHARS)
}

/// Returns foreign text with at most `max_lines` lines and `max_chars` characters, and at most one
/// blank line in a row. If something is left out, a note beyond these limits says so.
pub(super) fn lines(text: &str, max_lines: usize, max_chars: usize) -> String {
    let text = text.replace("\r\n", "\n");
    let mut kept: Vec<&str> = Vec::new();
    let mut left_out = 0_usize;
    for line in text.trim().lines().map(str::trim_end) {
        if line.is_empty() && kept.last().is_some_and(|last| last.is_empty()) {
            continue;
        }
        if kept.len() < max_lines { kept.push(line) } else { left_out += 1 }
    }
    let text = kept.join("\n");
    let shown = foreign::block(&text);
    let mut out: String = shown.chars().take(max_chars).collect();
    if out.len() < shown.len() {
        out.push_str("\n(The rest is too long to be shown.)");
    } else if left_out > 0 {
        out.push_str(&format!("\n({left_out} more lines are not shown.)"));
    }
    out
}

/// Returns foreign text on one line with its hidden characters spelled out, cut to `max_chars`
/// characters. Two dots follow a text that is cut.
pub(super) fn line(text: &str, max_chars: usize) -> String {
    let shown = foreign::line(text.trim());
    let mut out: String = shown.chars().take(max_chars).collect();
    if out.len() < shown.len() {
        out.push_str("..");
    }
    out
}
