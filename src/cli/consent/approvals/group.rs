//! Answers several approvals of one caller for one item: shows all of them, then asks once.

use serde::Serialize;

use super::shown::{TRY_AGAIN, digest};
use crate::cli::exit::{NO, OK, USAGE};
use crate::cli::reach::operator::OperatorClient;
use crate::cli::words::output::{CommandFailure, print, print_json};
use crate::cli::words::terminal;
use crate::operator::request::{AnswerParams, OperatorAnswer, Request};
use crate::operator::views::AnswerOutcome;
use crate::policy::consent::ApprovalView;
use crate::wire::foreign;

/// The approvals that the command line names, and the answer to all of them.
pub(super) struct NamedApprovals<'r> {
    pub(super) rows: Vec<&'r ApprovalView>,
    /// Formats one approval for the list.
    pub(super) show: fn(&ApprovalView) -> String,
    pub(super) wish: OperatorAnswer,
    /// True if no question is asked.
    pub(super) yes: bool,
    pub(super) json: bool,
}

impl NamedApprovals<'_> {
    /// Shows the approvals, asks once, then answers each with the digest of its shown text.
    ///
    /// # Errors
    /// 64 for an answer that is only allowed for a single approval, or without a terminal to ask
    /// on; 1 if the approvals are of several callers or items, or if the person declines.
    pub(super) fn answer(self, client: &mut OperatorClient) -> Result<u8, CommandFailure> {
        let verb = match &self.wish {
            OperatorAnswer::Deny => "Deny",
            OperatorAnswer::Once => "Allow once",
            OperatorAnswer::Session | OperatorAnswer::For(_) | OperatorAnswer::Always | OperatorAnswer::Below(_) => {
                let text = "several approvals are allowed once or denied; give longer grants one by one";
                return Err(CommandFailure::new(USAGE, text));
            }
        };
        let mut members: Vec<&ApprovalView> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            if !members.iter().any(|member| member.id == row.id) {
                members.push(row);
            }
        }
        if members.iter().any(|row| members.first().is_some_and(|first| !row.is_beside(first))) {
            return Err(CommandFailure::new(NO, "they are of several callers or items; answer those of each alone"));
        }
        if !self.json {
            print(&members.iter().map(|row| (self.show)(row)).collect::<String>())?;
        }
        if !self.yes {
            self.confirm(verb, members.len())?;
        }
        self.each(&members, client)
    }

    /// Asks once for all of them. Fails without a terminal, or if the person declines.
    fn confirm(&self, verb: &str, count: usize) -> Result<(), CommandFailure> {
        if self.json || !terminal::is_here() {
            let text = format!(
                "not answered: {count} approvals, and there is no terminal to ask on; look at them with `headend approvals` and \
                 repeat the command with --yes"
            );
            return Err(CommandFailure::new(USAGE, text));
        }
        if terminal::ask(&format!("{verb}: these {count} calls, as shown?"))? {
            return Ok(());
        }
        Err(CommandFailure::new(NO, "nothing was answered"))
    }

    /// Sends the answer to each approval and prints the outcomes; exit code 1 unless all were
    /// accepted.
    fn each(&self, members: &[&ApprovalView], client: &mut OperatorClient) -> Result<u8, CommandFailure> {
        let mut told = Vec::with_capacity(members.len());
        let wanted = if self.wish == OperatorAnswer::Deny { "denied" } else { "granted" };
        let (mut all, mut is_late) = (true, false);
        for row in members {
            let digest = Some(digest(row)?);
            let params = AnswerParams { id: row.id.clone(), answer: self.wish.clone(), digest };
            let (outcome, why) = match client.ask::<AnswerOutcome>(&Request::Answer(params)) {
                Ok(outcome) => {
                    is_late |= outcome.is_late;
                    (outcome.word, None)
                }
                Err(failure) if failure.code == NO => ("open".to_owned(), Some(failure.text)),
                Err(failure) => return Err(failure),
            };
            all &= outcome == wanted;
            told.push(GroupAnswerReport { id: row.id.clone(), outcome, why });
        }
        if self.json {
            print_json(&GroupReport { answers: told })?;
        } else {
            let lines = told.iter().map(|GroupAnswerReport { id, outcome, why }| {
                let why = why.as_ref().map(|why| format!(": {}", foreign::line(why))).unwrap_or_default();
                format!("{}: {}{why}\n", foreign::line(id), foreign::line(outcome))
            });
            let after = match &self.wish {
                OperatorAnswer::Deny => {
                    "the same calls stay refused for 10 minutes; `headend grants` lists them\n".to_owned()
                }
                _ if is_late => format!("{TRY_AGAIN}\n"),
                OperatorAnswer::Once
                | OperatorAnswer::Session
                | OperatorAnswer::For(_)
                | OperatorAnswer::Always
                | OperatorAnswer::Below(_) => String::new(),
            };
            print(&(lines.collect::<String>() + &after))?;
        }
        Ok(if all { OK } else { NO })
    }
}

/// The outcomes of answering several approvals, as JSON.
#[derive(Serialize)]
struct GroupReport {
    answers: Vec<GroupAnswerReport>,
}

/// The outcome for one of several approvals.
#[derive(Serialize)]
struct GroupAnswerReport {
    id: String,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}
