//! The store of a cluster in a real database: the properties of every engine, and replicas whose
//! database goes away, comes back, and comes back as another one.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use self::server::PostgresServer;
use crate::consenting::ApprovalGateway;
use crate::harness::{Gateway, GatewaySetup, headend, left_out};
use crate::http;
use crate::mcp::ClientEra;
use crate::process::{eventually, output_within, said};

mod away;
mod balancer;
mod operator;
mod replicas;
mod server;
mod shared;
mod three;
mod told;

pub(crate) use self::three::ThreeReplicas;

/// Tests of the shell that open stores by a folder, and so use the database. The others are about
/// files.
const PROPERTIES: &[&str] = &[
    "store::db::tests::",
    "store::approvals::tests::",
    "store::leases::tests::",
    "store::logins::tests::",
    "store::pins::tests::",
    "store::sessions::tests::",
    "store::states::tests::",
];

/// Tests among them that are about files.
const OF_FILES: &[&str] = &[
    "store::logins::tests::an_old_login_",
    "store::sessions::tests::a_session_is_found_after_a_restart_until_it_has_ended",
];

/// Returns the newest program with the unit tests of the shell. `cargo test --workspace` puts it
/// beside the one of these tests.
fn unit_tests() -> Option<PathBuf> {
    let own = env::current_exe().unwrap();
    let beside = fs::read_dir(own.parent().unwrap()).unwrap().flatten();
    let is_program = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("headend_shell-") && !name.contains('.')
    };
    let programs = beside.map(|entry| entry.path()).filter(is_program);
    programs.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
}

#[test]
fn the_store_of_a_cluster_has_the_properties_of_every_store() {
    let Some(server) = PostgresServer::start("") else { return };
    let Some(program) = unit_tests() else {
        return left_out("the unit tests of the shell", "`cargo test --workspace --no-run` builds them");
    };
    let mut command = Command::new(program);
    command.args(PROPERTIES).args(OF_FILES.iter().flat_map(|name| ["--skip", name]));
    command.args(["--test-threads", "8"]).env("HEADEND_TEST_POSTGRES", server.url(""));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_within(child, Duration::from_secs(900), "the tests of the store");
    assert!(output.status.success(), "{}", said(&output));
    let databases = server.sql("postgres", "SELECT count(*) FROM pg_database WHERE datname LIKE 't%'");
    assert!(databases.parse::<u64>().unwrap() > 50, "{databases} databases: the tests have used files");
}

/// Returns the tables of a replica.
fn cluster(server: &PostgresServer, name: &str, more: &str) -> String {
    format!(
        "[secrets]\nkey = \"0123456789abcdef0123456789abcdef\"\n[cluster]\nstore = \"{}\"\nname = \"{name}\"\n{more}\n",
        server.url("postgres")
    )
}

fn readiness(gateway: &Gateway) -> String {
    let answer = http::get(gateway.metrics.unwrap(), "/readyz").unwrap();
    assert_eq!(answer.head.status, 200);
    answer.text()
}

/// Returns the text of the answer to a call.
fn call(stage: &ApprovalGateway, arguments: Value) -> Value {
    stage.client(ClientEra::Modern, json!({})).call("fx__echo", arguments).message
}

fn run(stage: &ApprovalGateway, args: &[&str]) -> String {
    let output = stage.gateway.world.run(args);
    assert!(output.status.success(), "{args:?}: {}\n{}", said(&output), stage.gateway.story());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn approve_next(stage: &ApprovalGateway, by: &ApprovalGateway, arguments: &Value) {
    call(stage, arguments.clone());
    let mut open = Vec::new();
    eventually("the approval is listed on the other replica", || {
        open = crate::consenting::pending(by);
        !open.is_empty()
    });
    run(by, &["approve", &open[0], "--for", "once"]);
}

/// Checks that a replica is not handed over, whether or not the new configuration has the cluster.
fn refuse_hand_over(replica: &Gateway) {
    let text = fs::read_to_string(&replica.config).unwrap();
    let (before, after) = text.split_once("[cluster]").unwrap();
    let after = after.split_once("\n[").map_or(String::new(), |(_, after)| format!("[{after}"));
    let alone = replica.world.write("alone.toml", &format!("{before}{after}"));
    let refusals =
        [(&replica.config, 78, "--take-over is not for replicas"), (&alone, 75, "stop the daemon, then start headend")];
    for (config, expected, why) in refusals {
        let mut command = replica.world.command(headend());
        command
            .args(["serve", "--take-over", "--config", config.to_str().unwrap()])
            .env("SECOND_TOKEN", "x".repeat(32));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = output_within(child, Duration::from_secs(60), "headend serve --take-over");
        assert!(output.status.code() == Some(expected) && said(&output).contains(why), "{}", said(&output));
    }
}

#[test]
fn replicas_share_approvals_and_do_nothing_without_their_store() {
    let Some(server) = PostgresServer::start("") else { return };
    let [one, two] =
        ["one", "two"].map(|name| ApprovalGateway::of(GatewaySetup::new(), "", &cluster(&server, name, "")));
    refuse_hand_over(&one.gateway);
    // Asked on one replica, answered on the other.
    let first = json!({"text": "first"});
    approve_next(&one, &two, &first);
    eventually("the call is made", || call(&one, first.clone())["result"]["isError"] != true);
    assert_eq!(one.called(), std::slice::from_ref(&first));
    assert_eq!(two.called(), Vec::<Value>::new());

    // The store goes away: nothing that needs it is done, and the daemon stays.
    approve_next(&one, &two, &json!({"text": "second"}));
    server.crash();
    eventually("degraded", || readiness(&one.gateway).contains("store"));
    for text in ["second", "never asked about"] {
        let refused = call(&one, json!({"text": text})).to_string();
        assert!(
            refused.contains("\"reason\":\"store_unavailable\"") && refused.contains("\"executed\":\"no\""),
            "{refused}"
        );
    }
    assert_eq!(one.called(), std::slice::from_ref(&first));
    server.resume();
    eventually("well again", || !readiness(&one.gateway).contains("store"));
    eventually("the grant is still there", || call(&one, json!({"text": "second"}))["result"]["isError"] != true);
    assert_eq!(one.called().len(), 2);

    // It comes back as another one: what could have been used is void, and that is on record.
    approve_next(&one, &two, &json!({"text": "third"}));
    let live = "SELECT count(*) FROM headend.grants WHERE state = 'live' AND lifetime = 'once'";
    assert_eq!(server.sql("postgres", live), "1");
    server.sql("postgres", "UPDATE headend.meta SET value = 'another/1' WHERE key = 'system'");
    server.sql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    let records = || [&one, &two].map(|stage| stage.audit("gateway")).concat();
    eventually("recorded", || records().iter().any(|record| record["result"] == "replaced"));
    assert_eq!(server.sql("postgres", live), "0");
    call(&one, json!({"text": "third"}));
    assert_eq!(one.called().len(), 2, "the grant of before is void");
}

#[test]
fn a_database_that_would_lose_what_it_confirms_is_refused_and_a_missing_one_is_waited_for() {
    let Some(server) = PostgresServer::start("") else { return };
    let start = |more: &str| {
        let (world, config) = GatewaySetup::new().toml(&cluster(&server, "one", more)).write();
        let output = world.run(&["serve", "--config", config.to_str().unwrap()]);
        (output.status.code(), said(&output))
    };
    server.sql("postgres", "CREATE SCHEMA headend; CREATE TABLE headend.versions (version BIGINT PRIMARY KEY)");
    server.sql("postgres", "INSERT INTO headend.versions VALUES (99)");
    let (code, told) = start("");
    assert!(code == Some(75) && told.contains("was written by a newer headend"), "{code:?} {told}");
    for statement in ["DROP SCHEMA headend CASCADE", "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"] {
        server.sql("postgres", statement);
    }
    eventually("it is off", || server.sql("postgres", "SHOW fsync") == "off");
    let (code, told) = start("");
    assert!(code == Some(75) && told.contains("fsync = off"), "{code:?} {told}");
    server.sql("postgres", "ALTER SYSTEM RESET fsync");
    let rules = server.rule("local all all scram-sha-256\n");
    let (code, told) = start("");
    assert!(code == Some(75) && told.contains("(password missing); correct [cluster] store"), "{code:?} {told}");
    server.rule(&rules);
    server.crash();
    let (code, told) = start("store-wait = \"1s\"");
    assert!(code == Some(69) && told.contains("the store of the cluster cannot be used"), "{code:?} {told}");
    assert!(told.contains("start its database or correct `store` in [cluster], then try again"), "{told}");
    server.demote();
    server.resume();
    let (code, told) = start("");
    assert!(code == Some(75) && told.contains("is a standby"), "{code:?} {told}");
}
