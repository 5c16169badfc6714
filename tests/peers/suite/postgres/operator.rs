//! Commands of the operator in a cluster of two replicas: each acts on both, also without its
//! store; the logs of both are verified together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::cluster;
use super::replicas::{LINK, replica};
use super::server::PostgresServer;
use crate::consenting::{ApprovalGateway, TOKEN, pending};
use crate::harness::{GatewaySetup, headend};
use crate::mcp::ClientEra;
use crate::process::{eventually, output_within, said};
use crate::upstream::{Fake, InputLog};

/// Runs a command by the configuration of a replica, and returns its exit code and what it prints.
fn answer(stage: &ApprovalGateway, args: &[&str]) -> (i32, String) {
    let mut command = stage.gateway.world.command(headend());
    command.args(args).arg("--config").arg(&stage.gateway.config).env("SECOND_TOKEN", TOKEN);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_within(child, Duration::from_secs(30), &format!("headend {args:?}"));
    (output.status.code().unwrap(), said(&output))
}

fn log_of(stage: &ApprovalGateway) -> PathBuf {
    stage.gateway.world.path("state/headend/audit")
}

/// Copies the files of a folder, the last lines of each left out.
fn copy(from: &Path, to: &Path, left_out: usize) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().flatten() {
        let text = fs::read_to_string(file.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let kept: String = lines[..lines.len() - left_out].iter().map(|line| format!("{line}\n")).collect();
        fs::write(to.join(file.file_name()), kept).unwrap();
    }
}

#[test]
fn the_logs_of_all_replicas_are_verified_by_what_the_store_knows() {
    let Some(server) = PostgresServer::start("") else { return };
    let mut replicas = ["one", "two"].map(|name| replica(&server, name));
    for stage in &mut replicas {
        stage.client(ClientEra::Modern, json!({})).call("fx__echo", json!({"text": "x"}));
        stage.gateway.signal(Signal::TERM);
        stage.gateway.wait(Duration::from_secs(20)).unwrap();
    }
    let [one, two] = &replicas;
    let copies = one.gateway.world.path("copies");
    copy(&log_of(one), &copies.join("one"), 0);
    copy(&log_of(two), &copies.join("right"), 0);
    let [left, right] = ["one", "right"].map(|name| copies.join(name).display().to_string());
    let verify = |args: &[&str]| answer(one, &[&["audit", "verify"], args].concat());

    let (code, told) = verify(&[&left, &format!("two={right}")]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(told.matches(", compared with the store").count(), 2, "{told}");
    assert_eq!(told.matches("  main: ok").count(), 2, "{told}");
    let (code, told) = verify(&[&left]);
    assert!(code == 0 && told.contains("no directory is named for it: two"), "{code} {told}");
    let (code, told) = verify(&[&left, &right]);
    assert!(code == 64 && told.contains("write NAME=") && told.contains("one, two"), "{code} {told}");
    let (code, told) = verify(&[&format!("two={left}")]);
    assert!(code == 1 && told.contains("main: BAD"), "another replica's log: {code} {told}");

    // The end is missing.
    copy(&log_of(two), &copies.join("right"), 1);
    let (code, told) = verify(&["--json", &left, &format!("two={right}")]);
    assert!(code == 1 && told.contains("\"what\":\"cut-off\"") && told.contains("\"replica\":\"two\""), "{told}");
    let (code, told) = verify(&["--older", &left, &format!("two={right}")]);
    assert!(code == 0 && told.contains("the store knows later records"), "{code} {told}");

    // Without its store each log is verified by itself.
    server.crash();
    let (code, told) = verify(&[&left, &right]);
    assert!(code == 0 && told.contains("checked without the store of a cluster"), "{code} {told}");
    server.resume();
    eventually("the store is back", || verify(&[&left, &format!("two={right}")]).0 == 1);
}

/// Starts a replica whose server has the same launch as that of each other one.
fn equal_replica(server: &PostgresServer, name: &str) -> ApprovalGateway {
    let policy = "default = \"ask\"\n[policy.consent]\nper-minute = 100";
    let setup = GatewaySetup::new().second_caller(TOKEN).policy(policy).fake("fx", &Fake::stdio("legacy"));
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.toml(&cluster(server, name, LINK)).start();
    gateway.wait_for_tools(&["fx__write"]);
    ApprovalGateway { gateway, log }
}

/// Returns what a command prints that succeeds.
fn ok(stage: &ApprovalGateway, args: &[&str]) -> String {
    let (code, told) = answer(stage, args);
    assert_eq!(code, 0, "{args:?}: {told}");
    told
}

#[test]
fn the_operator_acts_on_all_replicas_from_each_and_is_told_that_the_store_is_away() {
    let Some(server) = PostgresServer::start("") else { return };
    let [mut one, two] = ["one", "two"].map(|name| equal_replica(&server, name));
    let write = |stage: &ApprovalGateway| stage.client(ClientEra::Modern, json!({})).call("fx__write", json!({}));
    write(&one);
    eventually("the approval is listed on the other replica", || ok(&two, &["approvals"]).contains("fx__write"));
    let id = pending(&two).remove(0);
    ok(&two, &["approve", &id, "--for", "8h"]);
    eventually("the call is made on both", || [&one, &two].iter().all(|stage| !write(stage).is_error()));
    let grants = || [&one, &two].map(|stage| ok(stage, &["grants"]).contains("fx__write"));
    eventually("both list the grant", || grants() == [true, true]);
    ok(&one, &["grants", "revoke", "--all"]);
    eventually("both have lost it", || grants() == [false, false] && write(&two).is_error());
    ok(&one, &["tokens", "add", "shared"]);
    assert!(ok(&two, &["tokens"]).contains("shared"));
    ok(&two, &["pins", "reject", "fx__fail"]);
    let rejected = |line: &str| line.contains("fx__fail") && line.contains("rejected");
    eventually("the pin is rejected on the other one", || ok(&one, &["pins"]).lines().any(rejected));
    ok(&one, &["secrets", "rekey"]);

    // A command without a daemon sees what the others ask.
    one.gateway.signal(Signal::TERM);
    one.gateway.wait(Duration::from_secs(20)).unwrap();
    assert!(ok(&one, &["approvals"]).contains("fx__write"), "asked on the other replica");
    ok(&one, &["deny", &pending(&two)[0]]);
    eventually("the answer has reached it", || pending(&two).is_empty());

    server.crash();
    // With the daemon of one replica and without that of the other.
    for stage in [&one, &two] {
        for args in [&["approvals"][..], &["pins"], &["tokens"], &["grants", "revoke", "--all"], &["audit", "verify"]] {
            let (code, told) = answer(stage, args);
            assert!(code == 75 && told.contains("the store of the cluster cannot be used"), "{args:?}: {code} {told}");
        }
        assert!(ok(stage, &["check"]).contains("the store of the cluster cannot be used"));
    }
    let (code, told) = answer(&one, &["tokens"]);
    assert!(code == 75 && told.contains("start its database") && !told.contains("by itself"), "{told}");
    let (code, told) = answer(&two, &["doctor"]);
    assert!(code == 1 && told.contains("store") && told.contains("goes on by itself"), "{code} {told}");
}

#[test]
fn a_replica_with_another_key_is_told_of() {
    let Some(server) = PostgresServer::start("") else { return };
    let one = replica(&server, "one");
    let tables = cluster(&server, "two", LINK).replace("0123456789abcdef0123", "another-key-another-");
    let two = ApprovalGateway::of(GatewaySetup::new(), "", &tables);
    for stage in [&one, &two] {
        eventually("status warns", || ok(stage, &["status"]).contains("with another `key` of [secrets]"));
        let (code, told) = answer(stage, &["doctor"]);
        assert!(code == 1 && told.contains("give all replicas the same key"), "{told}");
    }
}
