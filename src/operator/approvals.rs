//! The operator's methods about open approvals and grants.

use crate::daemon::gateway::Gateway;
use crate::daemon::local_time::local_minute;
use crate::policy::Digest;
use crate::policy::consent::{CannotAnswer, GrantRow, PromptId};
use crate::store::approvals::{PromptRow, Wish, json};
use crate::store::restored::NOTHING_DUE;
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// Runs a method for the operator `by`; `None` when the method belongs elsewhere.
pub(crate) async fn operate(
    gateway: &Gateway,
    by: &str,
    method: &str,
    params: &RawObject,
) -> Option<Result<RawJson, (i64, String)>> {
    const METHODS: [&str; 8] = [
        "approvals.list",
        "approvals.show",
        "approvals.answer",
        "approvals.notify",
        "approvals.unblock",
        "grants.list",
        "grants.reviewed",
        "grants.revoke",
    ];
    if !METHODS.contains(&method) {
        return None;
    }
    Some(match method {
        "approvals.list" => prompts(gateway).await,
        "approvals.show" => show(gateway, params).await,
        "approvals.answer" => answer(gateway, params, by).await,
        "approvals.notify" => notify(gateway).await,
        "approvals.unblock" => unblock(gateway, params, by),
        "grants.list" => Ok(grants(gateway)),
        "grants.reviewed" => reviewed(gateway).await,
        _ => revoke(gateway, params, by).await,
    })
}

async fn prompts(gateway: &Gateway) -> Result<RawJson, (i64, String)> {
    let rows = gateway.service.approvals.all_prompts().await.map_err(|error| (1, error.to_string()))?;
    let now = gateway.service.approvals.wall();
    let own = &gateway.service.approvals;
    let approval = |row: &PromptRow| {
        let prompt = json::prompt(row, now);
        // Only the process that asked knows whether the agent waits.
        match PromptId::parse(&row.id).filter(|id| own.prompt(id).is_some()) {
            Some(id) => json::with_wait(&prompt, own.agent_wait(&id)),
            None => prompt,
        }
    };
    let approvals = RawJson::list(rows.iter().map(approval));
    let blocks = gateway.service.approvals.blocks();
    let blocks = RawJson::list(blocks.iter().map(|block| json::block(block, now)));
    Ok(RawObject::of([("approvals", approvals), ("blocks", blocks)]).encode())
}

/// Ends a block.
fn unblock(gateway: &Gateway, params: &RawObject, by: &str) -> Result<RawJson, (i64, String)> {
    let id = params.string("id").ok_or_else(|| (code::INVALID_PARAMS, "`id` is missing".to_owned()))?;
    let ended = gateway.service.approvals.unblock(&id, by);
    let ended = ended.ok_or_else(|| (1, "no block with that id; it may have ended".to_owned()))?;
    Ok(RawObject::of_strings(&[("outcome", "unblocked"), ("caller", &ended.caller), ("item", &ended.item)]).encode())
}

async fn show(gateway: &Gateway, params: &RawObject) -> Result<RawJson, (i64, String)> {
    let id = params.string("id").ok_or_else(|| (code::INVALID_PARAMS, "`id` is missing".to_owned()))?;
    let found = gateway.service.approvals.show(&id).await.map_err(|error| (1, error.to_string()))?;
    found.ok_or_else(|| (1, CannotAnswer::Unknown.to_string()))
}

async fn answer(gateway: &Gateway, params: &RawObject, by: &str) -> Result<RawJson, (i64, String)> {
    let wrong = |what: &str| (code::INVALID_PARAMS, what.to_owned());
    let id = params.string("id").ok_or_else(|| wrong("`id` is missing"))?;
    let wish = params.string("answer").as_deref().and_then(Wish::parse);
    let wish = wish.ok_or_else(|| {
        wrong("`answer` must be deny, once, session, always, always below PATH, or a time such as 8h")
    })?;
    let shown = params.string("digest").map(|text| Digest::from_hex(&text).ok_or_else(|| wrong("`digest` is none")));
    let answered = gateway.service.approvals.operator_answers(&id, shown.transpose()?, wish, by).await;
    let outcome = answered.map_err(|why| (1, why))?;
    let mut told = RawObject::of_strings(&[("outcome", &outcome.word)]);
    if outcome.is_late {
        told.set("late", RawJson::boolean(true));
    }
    Ok(told.encode())
}

/// Sends a notice of no approval.
async fn notify(gateway: &Gateway) -> Result<RawJson, (i64, String)> {
    let to = gateway.notices.try_out().await.map_err(|why| (1, why))?;
    Ok(RawObject::of_strings(&[("to", &to)]).encode())
}

fn grants(gateway: &Gateway) -> RawJson {
    let grants = gateway.service.approvals.grants();
    let mut rows: Vec<GrantRow> = grants.iter().map(|grant| grant.row()).collect();
    rows.sort_by(|a, b| (a.granted_at, &a.id).cmp(&(b.granted_at, &b.id)));
    let (now, blocks) = (gateway.service.approvals.wall(), gateway.service.approvals.blocks());
    let denials = blocks.iter().filter(|block| block.denial.is_some());
    let denials = RawJson::list(denials.map(|block| json::block(block, now)));
    RawObject::of([("grants", RawJson::list(rows.iter().map(json::grant))), ("denials", denials)]).encode()
}

/// Ends the review of a restored store.
async fn reviewed(gateway: &Gateway) -> Result<RawJson, (i64, String)> {
    let review = gateway.restore_review.as_ref().ok_or_else(|| (1, NOTHING_DUE.to_owned()))?;
    let backup_time = review.end().await.map_err(|why| (1, why))?;
    let outcome = format!("reviewed the backup of {}", local_minute(backup_time));
    Ok(RawObject::of_strings(&[("outcome", &outcome)]).encode())
}

async fn revoke(gateway: &Gateway, params: &RawObject, by: &str) -> Result<RawJson, (i64, String)> {
    let id = params.string("id");
    let all = params.is_true("all");
    if id.is_some() == all {
        return Err((code::INVALID_PARAMS, "write either `id` or `all`".to_owned()));
    }
    let revoked = gateway.service.approvals.revoke(id.as_deref(), by).await.map_err(|error| (1, error.to_string()))?;
    Ok(RawObject::of([("revoked", RawJson::number(revoked))]).encode())
}
