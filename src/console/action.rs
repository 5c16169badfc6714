//! Carries out the actions behind the console's forms. Each sends one request to the operator's
//! service and returns a notice for the next page, or `None` if the form lacks a field.
#![expect(clippy::wildcard_enum_match_arm, reason = "each action has one kind of view, or two")]

use super::form::FormFields;
use super::session::{ActionNotice, SignedInVisitor};
use super::site::ConsoleSite;
use super::text::{capitalised, visible};
use crate::base::local_time::local_clock;
use crate::operator::logins::LogoutView;
use crate::operator::request::{
    AnswerManyParams, AnswerParams, IdParams, LoginParams, NameParams, OperatorAnswer, PinsParams, Request,
    RevokeParams, SwitchParams,
};
use crate::operator::views::{AnswerOutcome, OperatorView, RevokedGrants};
use crate::operator::{ApprovalState, OperatorRefusal, Person};
use crate::policy::consent::{ApprovalView, DENIED};

/// Advice after an approval was allowed when the agent had already been told to stop.
const TRY_AGAIN: &str = " Tell the agent to try again.";

impl ActionNotice {
    fn good(text: impl Into<String>) -> Self {
        Self { good: true, text: text.into() }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self { good: false, text: text.into() }
    }
}

/// Writes a refusal as a sentence for the operator.
pub(crate) fn sentence(refusal: &OperatorRefusal) -> String {
    format!("{}.", capitalised(&refusal.to_string()))
}

/// Carries out a request for the browser. The notice comes from `told` if the request succeeds,
/// else from the refusal.
async fn perform(
    console: &ConsoleSite,
    visitor: &SignedInVisitor,
    request: Request,
    told: impl FnOnce(OperatorView) -> ActionNotice,
) -> ActionNotice {
    let done = console.operator.perform(&request, &Person::of_console(&visitor.name())).await;
    done.map_or_else(|refusal| ActionNotice::bad(sentence(&refusal)), told)
}

/// Answers one approval, as it was shown: the form names the digest.
pub(super) async fn answer(
    console: &ConsoleSite,
    id: &str,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let (answer, digest) = (form.answer()?, Some(form.digest()?));
    let asked = match console.desk().approval(id) {
        ApprovalState::Open(approval) => Some(approval),
        ApprovalState::Closed { .. } | ApprovalState::Unknown => None,
    };
    let request = Request::Answer(AnswerParams { id: id.to_owned(), answer: answer.clone(), digest });
    let notice = |view| {
        tracing::info!(approval = id, ending = ?view, "answered in the console");
        let is_late = matches!(view, OperatorView::Answered(AnswerOutcome { is_late: true, .. }));
        let after = if is_late { TRY_AGAIN } else { "" };
        ActionNotice::good(describe_answer(asked.as_deref(), &answer, console.desk().now()) + after)
    };
    Some(perform(console, visitor, request, notice).await)
}

/// Describes an answer and the calls that it covers, as a sentence for the operator.
fn describe_answer(asked: Option<&ApprovalView>, answer: &OperatorAnswer, now: u64) -> String {
    let Some(asked) = asked else {
        return if *answer == OperatorAnswer::Deny { "Denied.".into() } else { "Allowed.".into() };
    };
    let (name, caller) = (visible(&asked.exposed), visible(asked.caller.name()));
    let all = format!("all calls of {name} by {caller}, with any arguments");
    let until = format!("until the {} or its server changes", asked.kind);
    match answer {
        OperatorAnswer::Deny => format!(
            "Denied: this call of {name} by {caller} is not made. The same call is refused until {}; Undo takes that back.",
            local_clock(now + DENIED)
        ),
        OperatorAnswer::Once => format!("Allowed once: {name} for {caller}, with exactly these arguments."),
        OperatorAnswer::Session => {
            format!("Allowed for the session of {caller}: {all}, until that session ends, or {until}.")
        }
        OperatorAnswer::For(time) => {
            format!("Allowed for 1 hour: {all}, until {}, or {until}.", local_clock(now + time.as_secs()))
        }
        OperatorAnswer::Below(base) => format!(
            "Allowed always below {}: calls of {name} by {caller}, {until}. Grants has it, to be revoked.",
            visible(base)
        ),
        OperatorAnswer::Always => format!("Allowed always: {all}, {until}. Grants has it, to be revoked."),
    }
}

/// Allows the checked approvals of one group once each, or denies them.
pub(super) async fn answer_group(
    console: &ConsoleSite,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let answer = form.answer()?;
    let members = form.members()?;
    if members.is_empty() {
        return Some(ActionNotice::bad("No call was checked, so nothing was answered."));
    }
    Some(answer_many(console, visitor, AnswerManyParams { members, answer, is_group: true }).await)
}

/// Denies all approvals that the overview listed, of any caller and item.
pub(super) async fn deny_all(
    console: &ConsoleSite,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let members = form.members().filter(|_| form.field("answer") == Some("deny"))?;
    Some(
        answer_many(console, visitor, AnswerManyParams { members, answer: OperatorAnswer::Deny, is_group: false })
            .await,
    )
}

/// Answers several approvals and says how many were answered, and why the first of the others was
/// not.
async fn answer_many(console: &ConsoleSite, visitor: &SignedInVisitor, params: AnswerManyParams) -> ActionNotice {
    let verb = if params.answer == OperatorAnswer::Deny { "Denied" } else { "Allowed once" };
    let notice = |view| {
        let OperatorView::AnsweredMany(answered) = view else { return ActionNotice::bad("No approval was answered.") };
        tracing::info!(approvals = answered.len(), answered = ?answered, "answered together in the console");
        let done = answered.iter().filter(|one| one.is_ok()).count();
        let mut text = format!("{verb}: {done} of {}.", answered.len());
        if let Some(why) = answered.iter().find_map(|one| one.as_ref().err()) {
            text.push_str(&format!(" Not answered: {} ({}.)", answered.len() - done, capitalised(why)));
        }
        if answered.iter().flatten().any(|one| one.is_late) {
            text.push_str(TRY_AGAIN);
        }
        ActionNotice { good: done == answered.len(), text }
    };
    perform(console, visitor, Request::AnswerMany(params), notice).await
}

/// Ends a block before its time.
pub(super) async fn unblock(
    console: &ConsoleSite,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let request = Request::Unblock(IdParams { id: form.field("id")?.to_owned() });
    let text = "The block has ended. The next such call needs an approval.";
    Some(perform(console, visitor, request, |_| ActionNotice::good(text)).await)
}

/// Revokes a grant.
pub(super) async fn revoke(
    console: &ConsoleSite,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let request = Request::Revoke(RevokeParams { id: Some(form.field("id")?.to_owned()), all: false });
    let notice = |view| match view {
        OperatorView::Revoked(RevokedGrants { revoked: 0 }) => ActionNotice::bad("This grant had ended already."),
        _ => ActionNotice::good("Revoked. The next such call needs an approval."),
    };
    Some(perform(console, visitor, request, notice).await)
}

/// Approves or rejects a definition or launch, as it was shown: the form names the digest.
pub(super) async fn judge_pin(
    console: &ConsoleSite,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let kind = Some(form.field("kind")?.parse().ok()?);
    let (name, digest) = (Some(form.field("name")?.to_owned()), Some(form.digest()?));
    let params = PinsParams { items: None, name, kind, digest };
    let (request, text) = match form.field("answer")? {
        "approve" => (Request::ApprovePins(params), "Approved. Clients see it as it is now."),
        "reject" => (Request::RejectPins(params), "Rejected. It stays hidden until it changes again."),
        _ => return None,
    };
    Some(perform(console, visitor, request, |_| ActionNotice::good(text)).await)
}

/// Restarts an upstream, switches it off or on until the daemon ends, or ends its login.
pub(super) async fn act_on_upstream(
    console: &ConsoleSite,
    name: &str,
    visitor: &SignedInVisitor,
    form: &FormFields,
) -> Option<ActionNotice> {
    let name = name.to_owned();
    let (request, did) = match form.field("do")? {
        "log-out" => (Request::LogOut(NameParams { name }), ""),
        "restart" => (Request::Restart(NameParams { name }), "Restarted"),
        "disable" => (Request::Switch(SwitchParams { name, on: false }), ""),
        "enable" => (Request::Switch(SwitchParams { name, on: true }), "Enabled"),
        _ => return None,
    };
    let notice = |view| match view {
        OperatorView::LoggedOut(LogoutView { was_there: true, .. }) => {
            ActionNotice::good("Logged out. Its tools stay listed, and wait for a login.")
        }
        OperatorView::LoggedOut(_) => ActionNotice::good("There was no login."),
        OperatorView::Restarted(now) => ActionNotice::good(format!("{did}; its state is {} now.", now.state)),
        _ => ActionNotice::good("Disabled until headend starts again. Its calls in flight have 10 s to end."),
    };
    Some(perform(console, visitor, request, notice).await)
}

/// Begins a login at an upstream and returns its id and the cookie that binds it to this browser.
///
/// # Errors
/// The notice for the upstream's page, if no login was begun.
pub(crate) async fn log_in(
    console: &ConsoleSite,
    upstream: &str,
    visitor: &SignedInVisitor,
) -> Result<(String, String), ActionNotice> {
    let request = Request::BeginLogin(LoginParams { name: upstream.to_owned(), paste: false });
    let begun = console.operator.perform(&request, &Person::of_console(&visitor.name())).await;
    match begun.map_err(|refusal| ActionNotice::bad(sentence(&refusal)))? {
        OperatorView::LoginBegun(begun) => Ok((begun.id, begun.cookie.unwrap_or_default())),
        _ => Err(ActionNotice::bad("No login was begun.")),
    }
}
