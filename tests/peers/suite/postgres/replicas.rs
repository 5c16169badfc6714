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
use crate::upstream::Fake;

/// Lines of `[cluster]` by which the others reach a replica.
pub(super) const LINK: &str = "peer-listen = \"127.0.0.1:0\"\npeer-url = \"http://127.0.0.1:0\"";

pub(super) fn replica(server: &PostgresServer, name: &str) -> ApprovalGateway {
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

/// Starts a replica with `solo`, whose program one replica runs at a time. The program holds a lock
/// while it lives, and a second one beside it writes so into `witness`.
fn placed(server: &PostgresServer, name: &str, witness: &str) -> ApprovalGateway {
    let fake = Fake::stdio("legacy").command();
    let fake = fake.strip_prefix('[').unwrap();
    let script = "exec 9>$0.lock; flock -n 9 || { echo two at once >> $0; exit 1; }; echo begun >> $0; exec $@";
    let tables = cluster(server, name, LINK);
    let rule = "[[policy.rules]]\nid = \"echo\"\neffect = \"allow\"\ntools = [\"solo__echo\"]\n";
    let solo = format!(
        "[upstreams.solo]\ncommand = [\"sh\", \"-c\", '{script}', \"{witness}\", {fake}\nplacement = \"one\"\n"
    );
    ApprovalGateway::of(GatewaySetup::new(), "", &format!("{rule}{solo}{tables}"))
}

/// Returns the name of the replica that runs `solo`; empty while none is known to.
fn owner(stage: &ApprovalGateway) -> String {
    let status: Value = serde_json::from_str(&run(stage, &["status", "--json"])).unwrap();
    let upstreams = status["upstreams"].as_array().unwrap();
    let solo = upstreams.iter().find(|one| one["name"] == "solo").unwrap();
    solo["replica"].as_str().unwrap_or_default().to_owned()
}

fn answers(stage: &ApprovalGateway, text: &str) -> bool {
    let answer = stage.client(ClientEra::Modern, json!({})).call("solo__echo", json!({"text": text}));
    answer.message["result"]["content"][0]["text"] == text
}

/// Returns whether all threads of a process are stopped, which takes a moment after the signal.
fn stands(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let states = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default());
    states.into_iter().all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
}

#[test]
fn a_program_of_one_replica_never_runs_twice_although_its_owner_is_frozen_and_killed() {
    let Some(server) = PostgresServer::start("") else { return };
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    let mut stages = ["one", "two"].map(|name| placed(&server, name, witness.to_str().unwrap()));
    for stage in &stages {
        eventually("the program answers", || answers(stage, "first"));
    }
    let first = usize::from(owner(&stages[0]) == "two");
    assert_eq!(owner(&stages[0]), owner(&stages[1]));
    stages[first].gateway.signal(Signal::STOP);
    eventually("every thread of it stands", || stands(stages[first].gateway.pid()));
    eventually("the other replica runs it", || answers(&stages[1 - first], "frozen"));
    stages[first].gateway.signal(Signal::CONT);
    eventually("the former owner reaches it", || answers(&stages[first], "thawed"));
    assert_eq!(owner(&stages[first]), owner(&stages[1 - first]));
    stages[1 - first].gateway.signal(Signal::KILL);
    stages[1 - first].gateway.wait(Duration::from_secs(20)).unwrap();
    eventually("it runs again", || answers(&stages[first], "killed"));
    let seen = std::fs::read_to_string(&witness).unwrap();
    assert_eq!(seen.lines().collect::<Vec<_>>(), ["begun"; 3], "{seen}");
}
