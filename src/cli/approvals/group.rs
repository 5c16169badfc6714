//! One answer to several approvals of one caller about one item: all are shown, then a person is asked once.

use super::shown::TRY_AGAIN;
use crate::cli::exit::{NO, OK, UNAVAILABLE, USAGE};
use crate::cli::output::{Failure, print};
use crate::cli::terminal;
use crate::store::approvals::{AnswerOutcome, Wish};
use crate::wire::digest::Digest;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

/// The approvals that the command line names, and the answer to them.
pub(super) struct Group<'r> {
    pub(super) rows: Vec<&'r RawObject>,
    /// Writes one as it is listed.
    pub(super) show: fn(&RawObject) -> String,
    pub(super) wish: Wish,
    /// Without a question.
    pub(super) yes: bool,
    pub(super) json: bool,
}

impl Group<'_> {
    /// Shows them and asks once, then answers each as it was shown.
    ///
    /// # Errors
    /// 64 for an answer that no group can have, or without a terminal to ask on; 1 when they are no group, or the person says no.
    pub(super) fn answer(
        self,
        answer: impl FnMut(&str, Digest) -> Result<AnswerOutcome, Failure>,
    ) -> Result<u8, Failure> {
        let verb = match &self.wish {
            Wish::Deny => "Deny",
            Wish::Once => "Allow once",
            Wish::Session | Wish::For(_) | Wish::Always | Wish::Below(_) => {
                let text = "several approvals are allowed once or denied; give longer grants one by one";
                return Err(Failure::new(USAGE, text));
            }
        };
        let mut members: Vec<&RawObject> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            if !members.iter().any(|member| member.string("id") == row.string("id")) {
                members.push(row);
            }
        }
        let group = |row: &RawObject| ["caller", "kind", "item"].map(|name| row.string(name));
        if members.iter().any(|row| members.first().is_some_and(|first| group(row) != group(first))) {
            return Err(Failure::new(NO, "they are of several callers or items; answer those of each alone"));
        }
        if !self.json {
            print(&members.iter().map(|row| (self.show)(row)).collect::<String>())?;
        }
        if !self.yes {
            self.confirm(verb, members.len())?;
        }
        self.each(&members, answer)
    }

    fn confirm(&self, verb: &str, count: usize) -> Result<(), Failure> {
        if self.json || !terminal::is_here() {
            let text = format!(
                "not answered: {count} approvals, and there is no terminal to ask on; look at them with `headend approvals` and \
                 repeat the command with --yes"
            );
            return Err(Failure::new(USAGE, text));
        }
        if terminal::ask(&format!("{verb}: these {count} calls, as shown?"))? {
            return Ok(());
        }
        Err(Failure::new(NO, "nothing was answered"))
    }

    fn each(
        &self,
        members: &[&RawObject],
        mut answer: impl FnMut(&str, Digest) -> Result<AnswerOutcome, Failure>,
    ) -> Result<u8, Failure> {
        let mut told = Vec::with_capacity(members.len());
        let wanted = if self.wish == Wish::Deny { "denied" } else { "granted" };
        let (mut all, mut is_late) = (true, false);
        for row in members {
            let id = row.string("id").unwrap_or_default();
            let old =
                || Failure::new(UNAVAILABLE, "the daemon is older than this program and lists no digests; restart it");
            let digest = row.string("digest").as_deref().and_then(Digest::from_hex).ok_or_else(old)?;
            let (outcome, why) = match answer(&id, digest) {
                Ok(outcome) => {
                    is_late |= outcome.is_late;
                    (outcome.word, None)
                }
                Err(failure) if failure.code == NO => ("open".to_owned(), Some(failure.text)),
                Err(failure) => return Err(failure),
            };
            all &= outcome == wanted;
            told.push((id, outcome, why));
        }
        if self.json {
            let answers = told.iter().map(|(id, outcome, why)| {
                let mut out = RawObject::of_strings(&[("id", id), ("outcome", outcome)]);
                if let Some(why) = why {
                    out.set("why", RawJson::string(why));
                }
                out.encode()
            });
            let mut out = RawObject::default();
            out.set("answers", RawJson::list(answers));
            print(&format!("{}\n", out.encode().text()))?;
        } else {
            let lines = told.iter().map(|(id, outcome, why)| {
                let why = why.as_ref().map(|why| format!(": {}", foreign::line(why))).unwrap_or_default();
                format!("{}: {}{why}\n", foreign::line(id), foreign::line(outcome))
            });
            let after = match &self.wish {
                Wish::Deny => "the same calls stay refused for 10 minutes; `headend grants` lists them\n".to_owned(),
                _ if is_late => format!("{TRY_AGAIN}\n"),
                Wish::Once | Wish::Session | Wish::For(_) | Wish::Always | Wish::Below(_) => String::new(),
            };
            print(&(lines.collect::<String>() + &after))?;
        }
        Ok(if all { OK } else { NO })
    }
}
