//! Asks a person at the terminal to answer one approval: shows it in full, and sends the answer
//! with the digest of the shown text.

use std::sync::Arc;
use std::time::Duration;

use super::shown;
use crate::cli::exit::NO;
use crate::cli::reach::operator::OperatorClient;
use crate::cli::words::output::{CommandFailure, print};
use crate::cli::words::screen::Screen;
use crate::cli::words::terminal;
use crate::cli::words::terminal::{TypedAnswer, YES_OR_NO};
use crate::operator::request::{AnswerParams, IdParams, NoParams, OperatorAnswer, Request};
use crate::operator::views::{AnswerOutcome, ApprovalsView};
use crate::policy::consent::view::ViewColours;
use crate::policy::consent::{ApprovalView, OfferView};
use crate::wire::foreign;

const EIGHT_HOURS: Duration = Duration::from_secs(8 * 3600);

/// The outcome of asking a person about an approval on the terminal: the answer that was sent, or
/// the reason why none was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum AskOutcome {
    /// The call was allowed.
    Allowed {
        /// The scope and duration of the grant.
        wish: OperatorAnswer,
        /// True if the agent had been told to stop before the answer came.
        is_late: bool,
    },
    Denied,
    /// The person neither allowed nor denied; the approval is still open.
    Left,
    /// The approval was answered elsewhere or has expired.
    Gone,
    /// The terminal's input has ended.
    Over,
}

/// The answers that are offered to the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OfferedAnswers {
    /// Allow once, or deny.
    Once,
    /// Allow once, for eight hours, always, or below a folder, or deny.
    Longer,
}

/// Shows the approval, asks the person, and sends the answer.
///
/// # Errors
/// The approval could not be fetched or shown, or the answer was not accepted.
pub(in crate::cli) fn ask(
    client: &mut OperatorClient,
    id: &str,
    offer: OfferedAnswers,
) -> Result<AskOutcome, CommandFailure> {
    let approval: ApprovalView = match client.ask(&Request::Approval(IdParams { id: id.to_owned() })) {
        Ok(approval) => approval,
        Err(failure) if failure.code == NO => return Ok(AskOutcome::Gone),
        Err(failure) => return Err(failure),
    };
    let digest = Some(shown::digest(&approval)?);
    let paint = if Screen::of_stdout().has_colours() { ViewColours::TERMINAL } else { ViewColours::NONE };
    print(&format!("{}\n", shown::format_approval(&approval, &paint)))?;
    let below = approval.offers();
    let (question, choices) = match offer {
        OfferedAnswers::Once => ("Allow this call once?", YES_OR_NO),
        OfferedAnswers::Longer if below.is_empty() => {
            ("Allow this call?", "[y: once, 8: any arguments for 8 h, a: always, n: no]")
        }
        OfferedAnswers::Longer => {
            ("Allow this call?", "[y: once, 8: any arguments for 8 h, a: always, b1 or b PATH: always below it, n: no]")
        }
    };
    let wish = match terminal::reply(question, choices, || is_open(client, id))? {
        TypedAnswer::Yes => OperatorAnswer::Once,
        TypedAnswer::No => OperatorAnswer::Deny,
        TypedAnswer::Word(word) => match word.to_ascii_lowercase().as_str() {
            "8" | "8h" if offer == OfferedAnswers::Longer => OperatorAnswer::For(EIGHT_HOURS),
            "a" | "always" if offer == OfferedAnswers::Longer => OperatorAnswer::Always,
            _ if offer == OfferedAnswers::Longer => match parse_base(&word, below) {
                Some(base) => OperatorAnswer::Below(base),
                None => return Ok(AskOutcome::Left),
            },
            _ => return Ok(AskOutcome::Left),
        },
        TypedAnswer::Withdrawn => return Ok(AskOutcome::Gone),
        TypedAnswer::Over => return Ok(AskOutcome::Over),
    };
    let request = Request::Answer(AnswerParams { id: id.to_owned(), answer: wish.clone(), digest });
    let outcome: AnswerOutcome = client.ask(&request)?;
    match (wish, outcome.word.as_str()) {
        (OperatorAnswer::Deny, "denied") => Ok(AskOutcome::Denied),
        (wish, "granted") if wish != OperatorAnswer::Deny => Ok(AskOutcome::Allowed { wish, is_late: outcome.is_late }),
        (_, other) => Err(CommandFailure::new(NO, format!("the answer does not count: {}", foreign::line(other)))),
    }
}

/// Returns the folder or site that an answer such as `b`, `b2` or `b /srv/project` names.
fn parse_base(word: &str, below: &[OfferView]) -> Option<Arc<str>> {
    let rest = word.strip_prefix(['b', 'B'])?;
    if let Some(base) = rest.strip_prefix(' ').map(str::trim).filter(|base| !base.is_empty()) {
        return Some(Arc::from(base));
    }
    let number: usize = if rest.is_empty() { 1 } else { rest.parse().ok()? };
    below.get(number.checked_sub(1)?).map(|offer| Arc::from(offer.base.as_str()))
}

/// Fetches the list of open approvals, and returns true if this one is in it. Returns true too if
/// the list cannot be fetched: then sending the answer will show whether it is open.
fn is_open(client: &mut OperatorClient, id: &str) -> bool {
    let list = client.ask(&Request::Approvals(NoParams {}));
    list.map_or(true, |ApprovalsView { approvals, .. }| approvals.iter().any(|row| row.id == id))
}
