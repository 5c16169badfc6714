//! Questions to the person at the terminal.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};

use super::output::CommandFailure;
use crate::cli::exit::{NO, SOFTWARE};

/// Length limit of an answer, in bytes.
const MAX_ANSWER: usize = 256;

/// The choices shown with a question that only a yes confirms.
pub(in crate::cli) const YES_OR_NO: &str = "[y/N]";

/// Returns true if a person can read the output and answer: stdin and stdout are terminals.
pub(in crate::cli) fn is_here() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum TypedAnswer {
    /// `y` or `yes`.
    Yes,
    /// `n` or `no`.
    No,
    /// Any other text as it was typed; empty for an empty line.
    Word(String),
    /// The question was withdrawn before an answer.
    Withdrawn,
    /// The input has ended.
    Over,
}

/// Asks a question on the terminal; returns true for `y` and `yes`, false for any other answer and
/// at the end of the input. Discards input that was typed before the question was shown, since it
/// answered something else.
///
/// # Errors
/// 70 when the terminal cannot be read or written.
pub(in crate::cli) fn ask(question: &str) -> Result<bool, CommandFailure> {
    Ok(reply(question, YES_OR_NO, || true)? == TypedAnswer::Yes)
}

/// Asks a question on the terminal, followed by its `choices`. Withdraws it once `stands` returns
/// false, which is called each second.
///
/// # Errors
/// 70 when the terminal cannot be read or written.
pub(in crate::cli) fn reply(
    question: &str,
    choices: &str,
    mut stands: impl FnMut() -> bool,
) -> Result<TypedAnswer, CommandFailure> {
    let failed = |error: &dyn std::fmt::Display| CommandFailure::new(SOFTWARE, format!("the terminal: {error}"));
    let show = |text: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| failed(&error))
    };
    show(question)?;
    let input = std::io::stdin();
    tcflush(&input, QueueSelector::IFlush).map_err(|error| failed(&error))?;
    // An answer counts from here on.
    show(&format!(" {choices} "))?;
    while !is_typed(&input).map_err(|error| failed(&error))? {
        if !stands() {
            show("\n")?;
            return Ok(TypedAnswer::Withdrawn);
        }
    }
    let (answer, is_over) = line(&input).map_err(|error| failed(&error))?;
    if is_over {
        show("\n")?;
    }
    Ok(match answer.to_ascii_lowercase().as_str() {
        "y" | "yes" => TypedAnswer::Yes,
        "n" | "no" => TypedAnswer::No,
        "" if is_over => TypedAnswer::Over,
        _ => TypedAnswer::Word(answer),
    })
}

/// Waits up to a second; returns true once a line or the end of the input can be read.
fn is_typed(input: impl AsFd) -> rustix::io::Result<bool> {
    const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut watched = [PollFd::new(&input, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut watched, Some(&SECOND))).map(|ready| ready > 0)
}

/// Reads a code on the controlling terminal, even if stdin or stdout is redirected. Discards input
/// that was typed before.
///
/// # Errors
/// 1 without a controlling terminal.
pub(in crate::cli) fn code(question: &str) -> Result<String, CommandFailure> {
    let failed = |error: std::io::Error| {
        let text =
            format!("[policy.consent] operator = \"terminal\": this needs a terminal, where a code is typed: {error}");
        CommandFailure::new(NO, text)
    };
    let mut terminal: File = OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(failed)?;
    tcflush(&terminal, QueueSelector::IFlush).map_err(|error| failed(error.into()))?;
    terminal.write_all(question.as_bytes()).map_err(failed)?;
    let (typed, _) = line(&terminal).map_err(|error| failed(error.into()))?;
    Ok(typed)
}

/// Reads one line of a terminal, and stops once it has [`MAX_ANSWER`] bytes. Returns the line
/// without the spaces around it, and whether the input has ended. A terminal gives one line to each
/// read, and no buffer is kept, so nothing of the answer to the next question is consumed.
fn line(input: impl AsFd) -> rustix::io::Result<(String, bool)> {
    let (mut answer, mut is_over) = (Vec::new(), false);
    while !is_over && !answer.ends_with(b"\n") && answer.len() < MAX_ANSWER {
        let mut bytes = [0; MAX_ANSWER];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&input, &mut bytes))?;
        is_over = read == 0;
        answer.extend_from_slice(bytes.get(..read).unwrap_or_default());
    }
    Ok((String::from_utf8_lossy(&answer).trim().to_owned(), is_over))
}
