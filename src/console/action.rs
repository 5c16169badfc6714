//! The actions behind the forms: each has the desk do what its form says, and tells what came of it. `None` stands for a form that lacks
//! a field.

use super::desk::{Approval, Found, Member, PinKey, Reply};
use super::form::Form;
use super::session::Notice;
use super::site::Console;
use super::text::{capitalised, clock, visible};
use crate::policy::consent::Closed;

impl Notice {
    fn good(text: impl Into<String>) -> Self {
        Self { good: true, text: text.into() }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self { good: false, text: text.into() }
    }
}

/// Answers one approval as it was shown.
pub(super) async fn answer(console: &Console, id: &str, form: &Form) -> Option<Notice> {
    let reply: Reply = form.field("answer")?.parse().ok()?;
    let member = (id.to_owned(), form.field("digest")?.to_owned());
    let asked = match console.desk.approval(id) {
        Found::Open(approval) => Some(approval),
        Found::Closed(_) | Found::Unknown => None,
    };
    Some(match console.desk.answer(&member, reply).await {
        Ok(ending) => {
            tracing::info!(approval = id, ending = ?ending, "answered in the console");
            Notice::good(told(asked.as_deref(), reply, console.desk.now()))
        }
        Err(text) => Notice::bad(text),
    })
}

/// An answer and how far it goes.
fn told(asked: Option<&Approval>, reply: Reply, now: u64) -> String {
    let Some(asked) = asked else { return if reply == Reply::Deny { "Denied.".into() } else { "Allowed.".into() } };
    let (name, caller) = (visible(&asked.exposed), visible(&asked.caller));
    let all = format!("all calls of {name} by {caller}, with any arguments");
    let until = format!("until the {} or its server changes", asked.kind);
    match reply {
        Reply::Deny => format!("Denied: this call of {name} by {caller} is not made."),
        Reply::Once => format!("Allowed once: {name} for {caller}, with exactly these arguments."),
        Reply::Session => format!("Allowed for the session of {caller}: {all}, until that session ends, or {until}."),
        Reply::Hour => format!("Allowed for 1 hour: {all}, until {}, or {until}.", clock(now + 3600)),
        Reply::Always => format!("Allowed always: {all}, {until}. Grants has it, to be revoked."),
    }
}

/// Answers approvals of one group: allows each once, or denies them.
pub(super) async fn answer_group(console: &Console, form: &Form) -> Option<Notice> {
    let reply: Reply = form.field("answer")?.parse().ok()?;
    let members = form.members()?;
    let answered = match members.as_slice() {
        [] => return Some(Notice::bad("No call was checked, so nothing was answered.")),
        members => console.desk.answer_group(members, reply).await,
    };
    Some(answered.map_or_else(Notice::bad, |answered| counted(&members, reply, &answered)))
}

/// Denies the approvals that were listed, of whatever caller and item.
pub(super) async fn deny_all(console: &Console, form: &Form) -> Option<Notice> {
    let members = form.members().filter(|_| form.field("answer") == Some("deny"))?;
    let answered = console.desk.deny(&members).await;
    Some(counted(&members, Reply::Deny, &answered))
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

pub(super) async fn revoke(console: &Console, form: &Form) -> Option<Notice> {
    Some(match console.desk.revoke(form.field("id")?).await {
        Ok(true) => Notice::good("Revoked. The next such call needs an approval."),
        Ok(false) => Notice::bad("This grant had ended already."),
        Err(text) => Notice::bad(text),
    })
}

pub(super) async fn judge_pin(console: &Console, form: &Form) -> Option<Notice> {
    let field = |name| form.field(name).map(str::to_owned);
    let key = PinKey { upstream: field("upstream")?, kind: field("kind")?, name: field("name")? };
    let digest = form.field("digest")?;
    let (outcome, text) = match form.field("answer")? {
        "approve" => (console.desk.approve_pin(&key, digest).await, "Approved. Clients see it as it is now."),
        "reject" => (console.desk.reject_pin(&key, digest).await, "Rejected. It stays hidden until it changes again."),
        _ => return None,
    };
    Some(outcome.map_or_else(Notice::bad, |()| Notice::good(text)))
}

/// Restarts an upstream of the running daemon, switches it off or on, or ends the login there.
pub(super) async fn steer(console: &Console, name: &str, form: &Form) -> Option<Notice> {
    let done = match form.field("do")? {
        "log-out" => console.desk.log_out(name).await,
        word => console.desk.steer(name, word.parse().ok()?).await,
    };
    Some(done.map_or_else(|text| Notice::bad(capitalised(&text)), Notice::good))
}
