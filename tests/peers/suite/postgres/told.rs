//! What is ended on one replica has ended on the others, whether or not they are told.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::replicas::replica;
use super::server::PostgresServer;
use super::{call, cluster, run};
use crate::consenting::{ApprovalGateway, TOKEN, pending};
use crate::harness::GatewaySetup;
use crate::mcp::{ClientEra, Mcp};
use crate::process::eventually;

/// Returns statements that change something as another replica whose notification is lost.
fn untold(statement: &str) -> String {
    format!("BEGIN; {statement}; UPDATE headend.changes SET number = number + 1; COMMIT")
}

#[test]
fn what_is_taken_back_on_one_replica_holds_on_the_others_with_and_without_notifications() {
    let Some(server) = PostgresServer::start("") else { return };
    let [one, two] =
        ["one", "two"].map(|name| ApprovalGateway::of(GatewaySetup::new(), "", &cluster(&server, name, "")));
    for is_told in [true, false] {
        let end = |args: &[&str], statement: &str| {
            if is_told {
                run(&one, args);
            } else {
                server.sql("postgres", &untold(statement));
            }
        };
        let token = run(&one, &["tokens", "add", "guest"]).trim().to_owned();
        let status = || {
            let token = Some(token.clone());
            Mcp::http(two.gateway.address, token, ClientEra::Modern).request("tools/list", json!({})).status
        };
        eventually("the token is known on the other replica", || status() == 200);
        end(&["tokens", "revoke", "guest"], "DELETE FROM headend.client_tokens");
        eventually("it is revoked there", || status() == 401);

        let text = format!("told: {is_told}");
        let is_made = || call(&two, json!({ "text": text.clone() }))["result"]["isError"] != true;
        assert!(!is_made());
        run(&one, &["approve", &pending(&one)[0], "--for", "always"]);
        eventually("the grant is known on the other replica", is_made);
        end(&["grants", "revoke", "--all"], "UPDATE headend.grants SET state = 'revoked' WHERE state = 'live'");
        eventually("it is taken back there", || !is_made());
        pending(&one).iter().for_each(|id| drop(run(&one, &["deny", id])));
    }
    run(&one, &["pins", "reject", "fx__fail"]);
    let has_tool = || two.client(ClientEra::Modern, json!({})).tool_names().contains(&"fx__fail".to_owned());
    eventually("the pin is rejected on the other replica", || !has_tool());
}

#[test]
fn a_session_that_ended_on_one_replica_is_not_revived_by_another() {
    let Some(server) = PostgresServer::start("") else { return };
    let [mut one, two] = ["one", "two"].map(|name| replica(&server, name));
    let mut client = Mcp::http_at(one.gateway.address, Some(TOKEN.to_owned()), ClientEra::LEGACY, "/mcp", json!({}));
    assert_eq!(client.end_session(), 204);
    one.gateway.signal(Signal::KILL);
    one.gateway.wait(Duration::from_secs(20)).unwrap();
    client.follow(two.gateway.address);
    assert_eq!(client.request("tools/list", json!({})).status, 404);
}
