//! What a replica does while its store is away, call by call.

use serde_json::json;

use super::server::PostgresServer;
use super::{cluster, readiness, run};
use crate::consenting::{ApprovalGateway, pending};
use crate::harness::GatewaySetup;
use crate::mcp::ClientEra;
use crate::process::eventually;

/// Rules that allow calls which need no store, a limit, and a call that is known to destroy.
const RULES: &str = "[[policy.rules]]\nid = \"free\"\neffect = \"allow\"\ntools = [\"fx__sleep\", \"fx__write\", \"fx__region\"]\n\
                     [[policy.limits]]\nid = \"few\"\ntools = [\"fx__region\"]\nrate = \"60/m\"\nburst = 60\n";

/// Returns the reason of a refusal that says that the call was not executed and may be repeated;
/// `None` if the call was made.
fn refusal(stage: &ApprovalGateway, tool: &str, text: &str) -> Option<String> {
    let answer = stage.client(ClientEra::Modern, json!({})).call(tool, json!({ "text": text })).message;
    let facts = &answer["result"]["_meta"]["headend/refusal"];
    let reason = facts["reason"].as_str()?.to_owned();
    assert_eq!((&facts["executed"], &facts["retryable"]), (&json!("no"), &json!(true)), "{answer}");
    Some(reason)
}

#[test]
fn while_the_store_is_away_only_calls_that_need_it_are_refused() {
    let Some(server) = PostgresServer::start("") else { return };
    let stage = ApprovalGateway::of(GatewaySetup::new(), "", &format!("{RULES}{}", cluster(&server, "one", "")));
    // A longer grant is for all arguments of its tool.
    for (tool, life) in [("fx__echo", "always"), ("fx__env", "once")] {
        assert_eq!(refusal(&stage, tool, life).as_deref(), Some("awaiting_approval"));
        run(&stage, &["approve", &pending(&stage)[0], "--for", life]);
        eventually("it is answered", || pending(&stage).is_empty());
    }
    assert_eq!(refusal(&stage, "fx__echo", "always"), None);
    assert_eq!([refusal(&stage, "fx__write", "grave"), refusal(&stage, "fx__region", "limited")], [None, None]);

    server.crash();
    eventually("degraded", || readiness(&stage.gateway).contains("store"));
    let away = |tool: &str, text: &str| refusal(&stage, tool, text).as_deref() == Some("store_unavailable");
    assert_eq!(refusal(&stage, "fx__sleep", "free"), None, "a rule allows it");
    assert!(away("fx__fail", "a new approval") && away("fx__write", "grave"));
    eventually("the longer grant is not confirmed any more", || away("fx__echo", "always"));
    // What was leased is used up after at most as many calls as the limit has.
    assert!((0..60).any(|_| away("fx__region", "limited")), "limits are not exceeded");
    assert_eq!(refusal(&stage, "fx__sleep", "free"), None);
    assert!(readiness(&stage.gateway).starts_with("degraded"), "{}", readiness(&stage.gateway));

    server.resume();
    for (tool, text) in [("fx__write", "grave"), ("fx__echo", "always"), ("fx__region", "limited")] {
        eventually("well again", || refusal(&stage, tool, text).is_none());
    }
    // An attempt while the store was away has used nothing up.
    assert_eq!(refusal(&stage, "fx__env", "once"), None);
}
