//! The actions behind the forms: each has the desk do what its form says, tells the operator the
//! outcome, and leaves one record of it. `None` stands for a form that lacks a field.

use super::desk::{Approval, Found, Member, PinKey, Reply, Steer};
use super::form::Form;
use super::session::{Notice, Visitor};
use super::site::Console;
use super::text::{capitalised, visible};
use crate::base::local_time::local_clock;
use crate::gateway::logins::Begun;
use crate::policy::OperatorAction;
use crate::policy::consent::{Closed, DENIED};
use crate::store::audit::Unrecorded;
use crate::store::audit::action::ActionRecord;

/// What the operator does after a yes that came when the agent had been told to stop.
const TRY_AGAIN: &str = " Tell the agent to try again.";

impl Notice {
    fn good(text: impl Into<String>) -> Self {
        Self { good: true, text: text.into() }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self { good: false, text: text.into() }
    }
}

/// Does an action whose record has begun, and records its outcome.
async fn recorded(
    begun: impl Future<Output = Result<ActionRecord, Unrecorded>>,
    done: impl Future<Output = Notice>,
) -> Notice {
    let record = match begun.await {
        Ok(record) => record,
        Err(error) => return Notice::bad(format!("Nothing was done: {error}.")),
    };
    let notice = done.await;
    record.end(if notice.good { Ok(&notice.text) } else { Err(&notice.text) });
    notice
}

/// The action of an answer to an approval.
const fn action_of(reply: Reply) -> OperatorAction {
    match reply {
        Reply::Deny => OperatorAction::Deny,
        Reply::Once | Reply::Session | Reply::Hour | Reply::Always | Reply::Below => OperatorAction::Approve,
    }
}

/// Begins the record of an answer to several approvals.
async fn begin_many(
    console: &Console,
    reply: Reply,
    visitor: &Visitor,
    members: &[Member],
) -> Result<ActionRecord, Unrecorded> {
    let mut record = console.audit.begin(action_of(reply), &visitor.name(), None).await?;
    record.set_count(members.len());
    Ok(record)
}

/// Answers one approval as it was shown.
pub(super) async fn answer(console: &Console, id: &str, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let reply: Reply = form.field("answer")?.parse().ok()?;
    let member = (id.to_owned(), form.field("digest")?.to_owned());
    let asked = match console.desk.approval(id) {
        Found::Open(approval) => Some(approval),
        Found::Closed(_) | Found::Unknown => None,
    };
    let by = visitor.name();
    let base = if reply == Reply::Below { form.field("below")? } else { "" };
    let answered = async {
        match console.desk.answer(&member, reply, base).await {
            Ok(ending) => {
                tracing::info!(approval = id, ending = ?ending, "answered in the console");
                let after = if console.desk.was_late(id) { TRY_AGAIN } else { "" };
                Notice::good(told(asked.as_deref(), reply, base, console.desk.now()) + after)
            }
            Err(text) => Notice::bad(text),
        }
    };
    Some(recorded(console.audit.begin(action_of(reply), &by, Some(id)), answered).await)
}

/// An answer and how far it goes.
fn told(asked: Option<&Approval>, reply: Reply, base: &str, now: u64) -> String {
    let Some(asked) = asked else { return if reply == Reply::Deny { "Denied.".into() } else { "Allowed.".into() } };
    let (name, caller) = (visible(&asked.exposed), visible(asked.caller.name()));
    let all = format!("all calls of {name} by {caller}, with any arguments");
    let until = format!("until the {} or its server changes", asked.kind);
    match reply {
        Reply::Deny => format!(
            "Denied: this call of {name} by {caller} is not made. The same call is refused until {}; Undo takes that back.",
            local_clock(now + DENIED)
        ),
        Reply::Once => format!("Allowed once: {name} for {caller}, with exactly these arguments."),
        Reply::Session => format!("Allowed for the session of {caller}: {all}, until that session ends, or {until}."),
        Reply::Hour => format!("Allowed for 1 hour: {all}, until {}, or {until}.", local_clock(now + 3600)),
        Reply::Below => format!(
            "Allowed always below {}: calls of {name} by {caller}, {until}. Grants has it, to be revoked.",
            visible(base)
        ),
        Reply::Always => format!("Allowed always: {all}, {until}. Grants has it, to be revoked."),
    }
}

/// Answers approvals of one group: allows each once, or denies them.
pub(super) async fn answer_group(console: &Console, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let reply: Reply = form.field("answer")?.parse().ok()?;
    let members = form.members()?;
    if members.is_empty() {
        return Some(Notice::bad("No call was checked, so nothing was answered."));
    }
    let answered = async {
        let answered = console.desk.answer_group(&members, reply).await;
        answered.map_or_else(Notice::bad, |answered| {
            let mut notice = counted(&members, reply, &answered);
            if members.iter().any(|(id, _)| console.desk.was_late(id)) {
                notice.text.push_str(TRY_AGAIN);
            }
            notice
        })
    };
    Some(recorded(begin_many(console, reply, visitor, &members), answered).await)
}

/// Denies the approvals that were listed, of whatever caller and item.
pub(super) async fn deny_all(console: &Console, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let members = form.members().filter(|_| form.field("answer") == Some("deny"))?;
    let denied = async { counted(&members, Reply::Deny, &console.desk.deny(&members).await) };
    Some(recorded(begin_many(console, Reply::Deny, visitor, &members), denied).await)
}

fn counted(members: &[Member], reply: Reply, answered: &[Result<Closed, String>]) -> Notice {
    tracing::info!(approvals = members.len(), answered = ?answered, "answered together in the console");
    let done = answered.iter().filter(|one| one.is_ok()).count();
    let verb = if reply == Reply::Deny { "Denied" } else { "Allowed once" };
    let mut text = format!("{verb}: {done} of {}.", members.len());
    if let Some(why) = answered.iter().find_map(|one| one.as_ref().err()) {
        text.push_str(&format!(" Not answered: {} ({why})", members.len() - done));
    }
    Notice { good: done == members.len(), text }
}

/// Ends a block before its time.
pub(super) async fn unblock(console: &Console, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let (id, by) = (form.field("id")?, visitor.name());
    let unblocked = async {
        if console.desk.unblock(id).await {
            Notice::good("The block has ended. The next such call needs an approval.")
        } else {
            Notice::bad("This block had ended already.")
        }
    };
    Some(recorded(console.audit.begin(OperatorAction::Unblock, &by, Some(id)), unblocked).await)
}

/// Takes a grant back.
pub(super) async fn revoke(console: &Console, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let (id, by) = (form.field("id")?, visitor.name());
    let revoked = async {
        match console.desk.revoke(id).await {
            Ok(true) => Notice::good("Revoked. The next such call needs an approval."),
            Ok(false) => Notice::bad("This grant had ended already."),
            Err(text) => Notice::bad(text),
        }
    };
    Some(recorded(console.audit.begin(OperatorAction::Revoke, &by, Some(id)), revoked).await)
}

/// Approves or rejects a definition or launch as it was shown.
pub(super) async fn judge_pin(console: &Console, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let field = |name| form.field(name).map(str::to_owned);
    let key = PinKey { upstream: field("upstream")?, kind: field("kind")?, name: field("name")? };
    let (digest, by) = (form.field("digest")?, visitor.name());
    let action = match form.field("answer")? {
        "approve" => OperatorAction::PinsApprove,
        "reject" => OperatorAction::PinsReject,
        _ => return None,
    };
    let judged = async {
        let (outcome, text) = if action == OperatorAction::PinsApprove {
            (console.desk.approve_pin(&key, digest).await, "Approved. Clients see it as it is now.")
        } else {
            (console.desk.reject_pin(&key, digest).await, "Rejected. It stays hidden until it changes again.")
        };
        outcome.map_or_else(Notice::bad, |()| Notice::good(text))
    };
    Some(recorded(console.audit.begin(action, &by, Some(&key.name)), judged).await)
}

/// Restarts an upstream of the running daemon, switches it off or on, or ends the login there.
pub(super) async fn steer(console: &Console, name: &str, visitor: &Visitor, form: &Form) -> Option<Notice> {
    let by = visitor.name();
    let steer = match form.field("do")? {
        "log-out" => None,
        word => Some(word.parse().ok()?),
    };
    let action = match steer {
        None => OperatorAction::Logout,
        Some(Steer::Restart) => OperatorAction::Restart,
        Some(Steer::Disable) => OperatorAction::Disable,
        Some(Steer::Enable) => OperatorAction::Enable,
    };
    let steered = async {
        let done = match steer {
            None => console.desk.log_out(name).await,
            Some(steer) => console.desk.steer(name, steer).await,
        };
        done.map_or_else(|text| Notice::bad(capitalised(&text)), Notice::good)
    };
    Some(recorded(console.audit.begin(action, &by, Some(name)), steered).await)
}

/// Begins a login at an upstream: its id and the cookie that binds it to this browser.
///
/// # Errors
/// The notice for the upstream's page.
pub(super) async fn log_in(console: &Console, upstream: &str, visitor: &Visitor) -> Result<(Begun, String), Notice> {
    let record = console.audit.begin(OperatorAction::LoginBegin, &visitor.name(), Some(upstream)).await;
    let record = record.map_err(|error| Notice::bad(format!("Nothing was done: {error}.")))?;
    let begun = console.desk.log_in(upstream).await;
    record.end(begun.as_ref().map(|(begun, _)| begun.issuer.as_str()).map_err(String::as_str));
    begun.map_err(|why| Notice::bad(capitalised(&why)))
}
