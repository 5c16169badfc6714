//! The operator's methods about consent: open prompts and grants. Who may connect for MCP is not thereby the operator: they are
//! for our own user and root alone.

use std::sync::Arc;

use super::object;
use crate::policy::consent::GrantRow;
use crate::runtime::gateway::Gateway;
use crate::runtime::ledger::{Wish, json};
use crate::runtime::service::LOCAL;
use crate::wire::code;
use crate::wire::message::Request;
use crate::wire::raw::{RawJson, RawObject};

/// The uid that may do everything anyway.
const ROOT: &str = "uid:0";

/// Does what is asked for; `None` where that is nothing of ours.
pub(super) async fn operate(
    gateway: &Gateway,
    caller: &Arc<str>,
    request: &Request,
) -> Option<Result<RawJson, (i64, String)>> {
    let method = request.method.as_str();
    if !["approvals.list", "approvals.answer", "grants.list", "grants.revoke"].contains(&method) {
        return None;
    }
    let Some(by) = operator(caller) else {
        return Some(Err((1, "only the user that headend runs as, and root, may see and give consents".to_owned())));
    };
    let params = request.params.as_ref().and_then(|params| RawObject::parse(params).ok()).unwrap_or_default();
    Some(match method {
        "approvals.list" => prompts(gateway).await,
        "approvals.answer" => answer(gateway, &params, &by).await,
        "grants.list" => Ok(grants(gateway)),
        _ => revoke(gateway, &params).await,
    })
}

/// How an operator is named in grants.
fn operator(caller: &str) -> Option<String> {
    match caller {
        LOCAL => Some(format!("uid:{}", rustix::process::getuid().as_raw())),
        ROOT => Some(ROOT.to_owned()),
        _ => None,
    }
}

async fn prompts(gateway: &Gateway) -> Result<RawJson, (i64, String)> {
    let rows = gateway.service.ledger.all_prompts().await.map_err(|error| (1, error.to_string()))?;
    Ok(json::list("approvals", rows.iter().map(json::prompt)))
}

async fn answer(gateway: &Gateway, params: &RawObject, by: &str) -> Result<RawJson, (i64, String)> {
    let wrong = |what: &str| (code::INVALID_PARAMS, what.to_owned());
    let id = params.string("id").ok_or_else(|| wrong("`id` is missing"))?;
    let wish = params.string("answer").as_deref().and_then(Wish::parse);
    let wish = wish.ok_or_else(|| wrong("`answer` must be deny, once, session, always or a time such as 8h"))?;
    let outcome = gateway.service.ledger.operator_answers(&id, wish, by).await.map_err(|why| (1, why))?;
    Ok(object(&[("outcome", &outcome)]))
}

fn grants(gateway: &Gateway) -> RawJson {
    let grants = gateway.service.ledger.grants();
    let mut rows: Vec<GrantRow> = grants.iter().map(|grant| grant.row()).collect();
    rows.sort_by(|a, b| (a.granted_at, &a.id).cmp(&(b.granted_at, &b.id)));
    json::list("grants", rows.iter().map(json::grant))
}

async fn revoke(gateway: &Gateway, params: &RawObject) -> Result<RawJson, (i64, String)> {
    let id = params.string("id");
    let all = params.get("all").is_some_and(|all| all.text() == "true");
    if id.is_some() == all {
        return Err((code::INVALID_PARAMS, "write either `id` or `all`".to_owned()));
    }
    let revoked = gateway.service.ledger.revoke(id.as_deref()).await.map_err(|error| (1, error.to_string()))?;
    let mut out = RawObject::default();
    out.set("revoked", RawJson::trusted(revoked.to_string()));
    Ok(out.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_our_own_user_or_root() {
        assert_eq!(operator(LOCAL), Some(format!("uid:{}", rustix::process::getuid().as_raw())));
        assert_eq!(operator("uid:0").as_deref(), Some("uid:0"));
        for other in ["uid:1000", "uid:00", "ci", ""] {
            assert_eq!(operator(other), None, "{other:?}");
        }
    }
}
