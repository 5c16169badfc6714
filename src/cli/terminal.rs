//! Questions to the person at the terminal.

use std::io::{IsTerminal as _, Write as _};

use rustix::termios::{QueueSelector, tcflush};

use super::exit::SOFTWARE;
use super::output::Failure;

/// Longest answer that is read.
const MAX_ANSWER: usize = 256;

/// Whether a person can read the output and answer: stdin and stdout are terminals.
pub(super) fn is_here() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks on the terminal; `y` and `yes` are a yes, everything else and the end of the input a no. Throws away what was typed before
/// the question was shown: that answered something else.
///
/// # Errors
/// 70 when the terminal cannot be read or written.
pub(super) fn ask(question: &str) -> Result<bool, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(SOFTWARE, format!("the terminal: {error}"));
    let show = |text: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| failed(&error))
    };
    show(question)?;
    let input = std::io::stdin();
    tcflush(&input, QueueSelector::IFlush).map_err(|error| failed(&error))?;
    // From here on an answer counts.
    show(" [y/N] ")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") && answer.len() < MAX_ANSWER {
        let mut bytes = [0; MAX_ANSWER];
        // Without a buffer, so that nothing is read ahead of the next question.
        let read =
            rustix::io::retry_on_intr(|| rustix::io::read(&input, &mut bytes)).map_err(|error| failed(&error))?;
        if read == 0 {
            show("\n")?;
            break;
        }
        answer.extend_from_slice(bytes.get(..read).unwrap_or_default());
    }
    let answer = String::from_utf8_lossy(&answer).trim().to_ascii_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}
