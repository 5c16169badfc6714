//! Lists, answers and revokes the open approvals, blocks and grants of a running gateway.

use futures_util::FutureExt as _;

use super::request::{AnswerManyParams, AnswerParams, RevokeParams};
use super::views::{ApprovalsView, EndedBlockView, GrantsView, OperatorView, RevokedGrants};
use super::{ApprovalState, OperatorRefusal, Person};
use crate::policy::ApprovalEvidence;
use crate::policy::consent::{AnswerError, ApprovalEnd, ApprovalId, ApprovalView, BlockView, GrantView};
use crate::store::approvals::{AnswerOutcome, Approvals};

/// Lists the open approvals of all processes on the store, and the blocks of this process.
pub(super) async fn list(approvals: &Approvals) -> Result<OperatorView, OperatorRefusal> {
    let rows = approvals.all_approvals().await.map_err(OperatorRefusal::unusable)?;
    Ok(OperatorView::Approvals(ApprovalsView { approvals: rows, blocks: blocks(approvals) }))
}

/// Returns the blocks of this process.
pub(super) fn blocks(approvals: &Approvals) -> Vec<BlockView> {
    let now = approvals.wall();
    approvals.blocks().iter().map(|block| BlockView::new(block, now)).collect()
}

/// Shows one open approval of any process on the store; refused if it is not open.
pub(super) async fn show(approvals: &Approvals, id: &str) -> Result<OperatorView, OperatorRefusal> {
    let found = approvals.show(id).await.map_err(OperatorRefusal::unusable)?;
    let found = found.ok_or_else(|| OperatorRefusal::refused(AnswerError::Unknown))?;
    Ok(OperatorView::Approval(Box::new(found)))
}

/// Returns the state of an approval of this process.
pub(super) fn state(approvals: &Approvals, id: &str) -> ApprovalState {
    let Some(id) = ApprovalId::parse(id) else { return ApprovalState::Unknown };
    let is_open = |view: &ApprovalView| view.left > 0;
    if let Some(view) = approvals.view(&id).filter(is_open) {
        return ApprovalState::Open(Box::new(view));
    }
    // A closed approval settles at once, so its future is ready.
    let how = approvals.settled(&id).now_or_never().unwrap_or(ApprovalEnd::TimedOut);
    ApprovalState::Closed { how, is_late: approvals.was_late(&id) }
}

/// Answers an approval. The operator (evidence L3) can answer approvals of all processes on the
/// store; other evidence answers approvals of this process alone, and names the digest that was
/// shown.
pub(super) async fn answer(
    approvals: &Approvals,
    params: &AnswerParams,
    by: &Person,
) -> Result<OperatorView, OperatorRefusal> {
    let AnswerParams { id, answer, digest } = params;
    if by.evidence == ApprovalEvidence::Operator {
        let answered = approvals.operator_answers(id, *digest, answer.clone(), &by.name).await;
        return answered.map(OperatorView::Answered).map_err(OperatorRefusal::Refused);
    }
    let member = ApprovalId::parse(id).zip(*digest).ok_or_else(|| OperatorRefusal::refused(AnswerError::NotShown))?;
    let answered = approvals.answer_shown(&member, answer.answer(approvals.wall()), by.evidence, &by.name).await;
    let how = answered.map_err(OperatorRefusal::refused)?;
    Ok(OperatorView::Answered(AnswerOutcome::of(how, approvals.was_late(&member.0))))
}

/// Answers several approvals of this process, each judged by itself. Approvals that are sent as one
/// group are all refused if they differ in caller or item.
pub(super) async fn answer_many(
    approvals: &Approvals,
    params: &AnswerManyParams,
    by: &Person,
) -> Result<OperatorView, OperatorRefusal> {
    let member = |id: &str, digest| Some((ApprovalId::parse(id)?, digest));
    let members: Option<Vec<_>> = params.members.iter().map(|one| member(&one.id, one.digest)).collect();
    let members = members.ok_or_else(|| OperatorRefusal::refused(AnswerError::Unknown))?;
    let answer = params.answer.answer(approvals.wall());
    let answered = if params.is_group {
        let answered = approvals.answer_group(&members, answer, by.evidence, &by.name).await;
        answered.map_err(OperatorRefusal::refused)?
    } else {
        approvals.answer_each(&members, &answer, by.evidence, &by.name).await
    };
    let outcome = |((id, _), one): (&_, Result<ApprovalEnd, AnswerError>)| {
        one.map(|how| AnswerOutcome::of(how, approvals.was_late(id))).map_err(|why| why.to_string())
    };
    Ok(OperatorView::AnsweredMany(members.iter().zip(answered).map(outcome).collect()))
}

/// Ends a block before its time.
pub(super) fn unblock(approvals: &Approvals, id: &str, by: &Person) -> Result<OperatorView, OperatorRefusal> {
    let ended = approvals.unblock(id, &by.name);
    let ended = ended.ok_or_else(|| OperatorRefusal::refused("no block with that id; it may have ended"))?;
    let (caller, item) = (ended.caller.to_string(), ended.item.to_string());
    Ok(OperatorView::Unblocked(EndedBlockView { outcome: "unblocked".to_owned(), caller, item }))
}

/// Returns the live grants, oldest first.
pub(super) fn live(approvals: &Approvals) -> Vec<GrantView> {
    let now = approvals.wall();
    let grants = approvals.grants();
    let live = grants.iter().filter(|grant| grant.lifetime().until().is_none_or(|until| until > now));
    let mut views: Vec<GrantView> = live.map(|grant| GrantView::from(&grant.row())).collect();
    views.sort_by(|a, b| (a.granted_at, &a.id).cmp(&(b.granted_at, &b.id)));
    views
}

/// Lists the live grants, and the denials in force in this process.
pub(super) fn grants(approvals: &Approvals) -> OperatorView {
    let denials = blocks(approvals).into_iter().filter(BlockView::is_denial);
    OperatorView::Grants(GrantsView { grants: live(approvals), denials: denials.collect() })
}

/// Revokes one grant or all, and returns their number.
pub(super) async fn revoke(
    approvals: &Approvals,
    params: &RevokeParams,
    by: &Person,
) -> Result<OperatorView, OperatorRefusal> {
    let revoked = approvals.revoke(params.checked()?, &by.name).await.map_err(OperatorRefusal::unusable)?;
    Ok(OperatorView::Revoked(RevokedGrants { revoked }))
}

impl RevokeParams {
    /// Returns the id of the grant to revoke; `None` for all grants.
    ///
    /// # Errors
    /// If the params name both one grant and all, or neither.
    pub(super) fn checked(&self) -> Result<Option<&str>, OperatorRefusal> {
        if self.id.is_some() == self.all {
            return Err(OperatorRefusal::Params("write either `id` or `all`".to_owned()));
        }
        Ok(self.id.as_deref())
    }
}
