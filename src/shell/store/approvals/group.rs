//! Answers to approvals as they were shown: to one approval, or to several of one caller about one
//! item.

use futures_util::future::join_all;

use super::Approvals;
use crate::policy::consent::{AnswerError, ApprovalEnd, ApprovalId, GrantLifetime, OpenApproval, PersonAnswer};
use crate::policy::{ApprovalEvidence, Digest};

/// Most approvals in one answer; no caller has more open.
const MAX_MEMBERS: usize = 100;

/// An approval, and the digest of the text that was shown of it.
pub(super) type ShownApprovalId = (ApprovalId, Digest);

impl Approvals {
    /// Answers an approval of this process if its text is still the one that was shown.
    ///
    /// # Errors
    /// [`AnswerError`], if the answer does not count.
    pub async fn answer_shown(
        &self,
        (id, shown): &ShownApprovalId,
        answer: PersonAnswer,
        evidence: ApprovalEvidence,
        by: &str,
    ) -> Result<ApprovalEnd, AnswerError> {
        match self.approval(id) {
            None => Err(AnswerError::Unknown),
            Some(approval) if approval.digest() != *shown => Err(AnswerError::NotShown),
            Some(_) => self.answer(id, answer, evidence, by).await,
        }
    }

    /// Allows the calls of several approvals once, or denies them. Each approval is judged by
    /// itself; those not named stay open. The results are in the order of `members`.
    ///
    /// # Errors
    /// [`AnswerError`], if the whole answer is refused: it is no once or deny, or the approvals
    /// are not of one caller and item.
    pub async fn answer_group(
        &self,
        members: &[ShownApprovalId],
        answer: PersonAnswer,
        evidence: ApprovalEvidence,
        by: &str,
    ) -> Result<Vec<Result<ApprovalEnd, AnswerError>>, AnswerError> {
        if !matches!(answer, PersonAnswer::Deny | PersonAnswer::Allow(GrantLifetime::Once)) {
            return Err(AnswerError::OnlyOnce);
        }
        let open: Vec<OpenApproval> = members.iter().filter_map(|(id, _)| self.approval(id)).collect();
        let is_one = open.iter().zip(open.iter().skip(1)).all(|(one, next)| is_same_group(one, next));
        if !is_one || members.len() > MAX_MEMBERS {
            return Err(AnswerError::NotAGroup);
        }
        Ok(self.answer_each(members, &answer, evidence, by).await)
    }

    /// Answers approvals of this process, of any callers and items; each only if it is still the
    /// one that the operator saw.
    pub async fn answer_each(
        &self,
        members: &[ShownApprovalId],
        answer: &PersonAnswer,
        evidence: ApprovalEvidence,
        by: &str,
    ) -> Vec<Result<ApprovalEnd, AnswerError>> {
        join_all(members.iter().map(|member| self.answer_shown(member, answer.clone(), evidence, by))).await
    }
}

fn is_same_group(one: &OpenApproval, next: &OpenApproval) -> bool {
    let (one, next) = (&one.asked, &next.asked);
    one.caller == next.caller && one.kind == next.kind && one.item == next.item
}
