//! Asks a person at the terminal to answer one approval: shows it in full, and sends the answer
//! with the digest of the shown text.

use std::sync::Arc;
use std::time::Duration;

use super::shown;
use crate::cli::exit::NO;
use crate::cli::operator::OperatorClient;
use crate::cli::output::{Failure, print};
use crate::cli::screen::Screen;
use crate::cli::terminal::{self, Reply, YES_OR_NO};
use crate::operator::request::{AnswerParams, ById, NoParams, Request, Wish};
use crate::operator::views::{AnswerOutcome, ApprovalsView};
use crate::policy::consent::view::Paint;
use crate::policy::consent::{ApprovalView, OfferView};
use crate::wire::foreign;

const EIGHT_HOURS: Duration = Duration::from_secs(8 * 3600);

/// The outcome of asking a person about an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Asked {
    /// The call was allowed.
    Allowed {
        /// The scope and duration of the grant.
        wish: Wish,
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
pub(in crate::cli) enum Offer {
    /// Allow once, or deny.
    Once,
    /// Also for eight hours, always, or below a folder.
    Longer,
}

/// Shows the approval, asks the person, and sends the answer.
///
/// # Errors
/// The approval could not be fetched or shown, or the answer was not accepted.
pub(in crate::cli) fn ask(client: &mut OperatorClient, id: &str, offer: Offer) -> Result<Asked, Failure> {
    let approval: ApprovalView = match client.ask(&Request::Approval(ById { id: id.to_owned() })) {
        Ok(approval) => approval,
        Err(failure) if failure.code == NO => return Ok(Asked::Gone),
        Err(failure) => return Err(failure),
    };
    let digest = Some(shown::digest(&approval)?);
    let paint = if Screen::of_stdout().has_colours() { Paint::TERMINAL } else { Paint::NONE };
    print(&format!("{}\n", shown::told(&approval, &paint)))?;
    let below = approval.offers();
    let (question, choices) = match offer {
        Offer::Once => ("Allow this call once?", YES_OR_NO),
        Offer::Longer if below.is_empty() => {
            ("Allow this call?", "[y: once, 8: any arguments for 8 h, a: always, n: no]")
        }
        Offer::Longer => {
            ("Allow this call?", "[y: once, 8: any arguments for 8 h, a: always, b1 or b PATH: always below it, n: no]")
        }
    };
    let wish = match terminal::reply(question, choices, || is_open(client, id))? {
        Reply::Yes => Wish::Once,
        Reply::No => Wish::Deny,
        Reply::Word(word) => match word.to_ascii_lowercase().as_str() {
            "8" | "8h" if offer == Offer::Longer => Wish::For(EIGHT_HOURS),
            "a" | "always" if offer == Offer::Longer => Wish::Always,
            _ if offer == Offer::Longer => match chosen(&word, below) {
                Some(base) => Wish::Below(base),
                None => return Ok(Asked::Left),
            },
            _ => return Ok(Asked::Left),
        },
        Reply::Withdrawn => return Ok(Asked::Gone),
        Reply::Over => return Ok(Asked::Over),
    };
    let request = Request::Answer(AnswerParams { id: id.to_owned(), answer: wish.clone(), digest });
    let outcome: AnswerOutcome = client.ask(&request)?;
    match (wish, outcome.word.as_str()) {
        (Wish::Deny, "denied") => Ok(Asked::Denied),
        (wish, "granted") if wish != Wish::Deny => Ok(Asked::Allowed { wish, is_late: outcome.is_late }),
        (_, other) => Err(Failure::new(NO, format!("the answer does not count: {}", foreign::line(other)))),
    }
}

/// Returns the folder or site that an answer such as `b`, `b2` or `b /srv/project` names.
fn chosen(word: &str, below: &[OfferView]) -> Option<Arc<str>> {
    let rest = word.strip_prefix(['b', 'B'])?;
    if let Some(base) = rest.strip_prefix(' ').map(str::trim).filter(|base| !base.is_empty()) {
        return Some(Arc::from(base));
    }
    let number: usize = if rest.is_empty() { 1 } else { rest.parse().ok()? };
    below.get(number.checked_sub(1)?).map(|offer| Arc::from(offer.base.as_str()))
}

/// Returns true if the approval is still open, or if the list cannot be fetched: then the answer
/// itself will show it.
fn is_open(client: &mut OperatorClient, id: &str) -> bool {
    let list = client.ask(&Request::Approvals(NoParams {}));
    list.map_or(true, |ApprovalsView { approvals, .. }| approvals.iter().any(|row| row.id == id))
}
