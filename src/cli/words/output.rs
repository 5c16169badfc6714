//! Prints results to stdout and errors to stderr, with hidden characters of foreign text escaped.

use std::io::Write as _;

use serde::Serialize;

use super::screen::Screen;
use crate::cli::exit::{NO, OK, SOFTWARE, TEMPFAIL, USAGE};
use crate::operator::OperatorRefusal;
use crate::wire::foreign;

/// The reason why a command failed, with its exit code.
#[derive(Debug)]
pub(in crate::cli) struct CommandFailure {
    pub(in crate::cli) code: u8,
    /// The problem, followed by the next step.
    pub(in crate::cli) text: String,
}

impl CommandFailure {
    pub(in crate::cli) fn new(code: u8, text: impl std::fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }
}

impl From<OperatorRefusal> for CommandFailure {
    fn from(refusal: OperatorRefusal) -> Self {
        let code = match refusal {
            OperatorRefusal::Params(_) => USAGE,
            OperatorRefusal::Refused(_) | OperatorRefusal::Stranger => NO,
            OperatorRefusal::Unusable(_) => TEMPFAIL,
        };
        Self::new(code, refusal)
    }
}

/// Writes a result to stdout. Succeeds if the reader has closed the pipe.
pub(in crate::cli) fn print(text: &str) -> Result<u8, CommandFailure> {
    follow(text).map(|_| OK)
}

/// Writes a result as JSON, with hidden characters as escapes.
pub(in crate::cli) fn print_json(result: &impl Serialize) -> Result<u8, CommandFailure> {
    print(&json_line(result)?)
}

/// Encodes a value as one line of JSON, with hidden characters as escapes.
pub(in crate::cli) fn json_line(value: &impl Serialize) -> Result<String, CommandFailure> {
    let text = serde_json::to_string(value).map_err(|error| CommandFailure::new(SOFTWARE, error))?;
    Ok(foreign::json(&text) + "\n")
}

/// Writes a part of a continuing result. Returns false if the reader has closed the pipe.
pub(in crate::cli) fn follow(text: &str) -> Result<bool, CommandFailure> {
    #[cfg(test)]
    if crate::stage::surroundings::printed(text) {
        return Ok(true);
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandFailure::new(SOFTWARE, format!("write to stdout: {error}"))),
    }
}

/// Writes an error to stderr. The error may quote foreign text, so control characters are escaped.
pub(in crate::cli) fn complain(text: &str) {
    let screen = Screen::of_stderr();
    let text = format!("headend: {}", foreign::block(text));
    let lines: String = text.lines().map(|line| screen.folded(line, 4)).collect();
    #[cfg(test)]
    if crate::stage::surroundings::complained(&lines) {
        return;
    }
    // If stderr is closed, there is no reader to tell.
    drop(std::io::stderr().lock().write_all(lines.as_bytes()));
}

/// Formats a number with its noun: `1 rule`, `2 rules`.
pub(in crate::cli) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
