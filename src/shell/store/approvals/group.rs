//! Answers to approvals as they were shown: to one approval, or to several of one caller about one
//! item.

use futures_util::future::join_all;

use super::Approvals;
use crate::policy::consent::{Answer, CannotAnswer, Closed, Lifetime, Prompt, PromptId};
use crate::policy::{Digest, Evidence};

/// Most approvals in one answer; no caller has more open.
const MAX_MEMBERS: usize = 100;

/// An approval, and the digest of the text that was shown of it.
pub(super) type Member = (PromptId, Digest);

impl Approvals {
    /// Answers an approval of this process if its text is still the one that was shown.
    ///
    /// # Errors
    /// [`CannotAnswer`], if the answer does not count.
    pub async fn answer_shown(
        &self,
        (id, shown): &Member,
        answer: Answer,
        evidence: Evidence,
        by: &str,
    ) -> Result<Closed, CannotAnswer> {
        match self.prompt(id) {
            None => Err(CannotAnswer::Unknown),
            Some(prompt) if prompt.digest() != *shown => Err(CannotAnswer::NotShown),
            Some(_) => self.answer(id, answer, evidence, by).await,
        }
    }

    /// Allows the calls of several approvals once, or denies them. Each approval is judged by
    /// itself; those not named stay open. The results are in the order of `members`.
    ///
    /// # Errors
    /// [`CannotAnswer`], if the whole answer is refused: it is no once or deny, or the approvals
    /// are not of one caller and item.
    pub async fn answer_group(
        &self,
        members: &[Member],
        answer: Answer,
        evidence: Evidence,
        by: &str,
    ) -> Result<Vec<Result<Closed, CannotAnswer>>, CannotAnswer> {
        if !matches!(answer, Answer::Deny | Answer::Allow(Lifetime::Once)) {
            return Err(CannotAnswer::OnlyOnce);
        }
        let open: Vec<Prompt> = members.iter().filter_map(|(id, _)| self.prompt(id)).collect();
        let is_one = open.iter().zip(open.iter().skip(1)).all(|(one, next)| is_of_one_group(one, next));
        if !is_one || members.len() > MAX_MEMBERS {
            return Err(CannotAnswer::NotAGroup);
        }
        Ok(self.answer_each(members, &answer, evidence, by).await)
    }

    /// Answers approvals of this process, of any callers and items; each only if it is still the
    /// one that the operator saw.
    pub async fn answer_each(
        &self,
        members: &[Member],
        answer: &Answer,
        evidence: Evidence,
        by: &str,
    ) -> Vec<Result<Closed, CannotAnswer>> {
        join_all(members.iter().map(|member| self.answer_shown(member, answer.clone(), evidence, by))).await
    }
}

fn is_of_one_group(one: &Prompt, next: &Prompt) -> bool {
    let (one, next) = (&one.asked, &next.asked);
    one.caller == next.caller && one.kind == next.kind && one.item == next.item
}
