//! Replicas with one store: a session that is begun on one of them, used through another one, and
//! taken over from a killed one.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::PostgresServer;
use super::{cluster, run};
use crate::consenting::{ApprovalGateway, TOKEN};
use crate::harness::GatewaySetup;
use crate::mcp::{ClientEra, Mcp};
use crate::process::eventually;

/// Lines of `[cluster]` by which the others reach a replica.
pub(super) const LINK: &str = "peer-listen = \"127.0.0.1:0\"\npeer-url = \"http://127.0.0.1:0\"";

fn replica(server: &PostgresServer, name: &str) -> ApprovalGateway {
    let tables = cluster(server, name, LINK);
    let rule = "[[policy.rules]]\nid = \"echo\"\neffect = \"allow\"\ntools = [\"fx__echo\"]\n";
    ApprovalGateway::of(GatewaySetup::new(), "", &format!("{rule}{tables}"))
}

fn names(stage: &ApprovalGateway) -> Vec<String> {
    let status: Value = serde_json::from_str(&run(stage, &["status", "--json"])).unwrap();
    let mut names: Vec<_> = status["replicas"].as_array().unwrap().iter().map(|one| one["name"].to_string()).collect();
    names.sort();
    names
}

#[test]
fn a_session_is_used_through_every_replica_and_goes_on_when_its_own_is_killed() {
    let Some(server) = PostgresServer::start("") else { return };
    let [mut one, two] = ["one", "two"].map(|name| replica(&server, name));
    for stage in [&one, &two] {
        eventually("both are listed", || names(stage) == ["\"one\"", "\"two\""]);
    }
    let mut client = Mcp::http_at(one.gateway.address, Some(TOKEN.to_owned()), ClientEra::LEGACY, "/mcp", json!({}));
    let session = client.session().unwrap();
    client.follow(two.gateway.address);
    assert!(client.tool_names().contains(&"fx__echo".to_owned()));
    assert_eq!(client.call("fx__echo", json!({"text": "passed on"})).text(), "passed on");
    assert_eq!((one.called().len(), two.called().len()), (1, 0), "the call is made where the session is");

    one.gateway.signal(Signal::KILL);
    one.gateway.wait(Duration::from_secs(20)).unwrap();
    assert_eq!(client.call("fx__echo", json!({"text": "taken over"})).text(), "taken over");
    assert_eq!((client.session().unwrap(), two.called().len()), (session, 1), "the same session goes on");
    eventually("the dead one is listed no longer", || names(&two) == ["\"two\""]);
}
