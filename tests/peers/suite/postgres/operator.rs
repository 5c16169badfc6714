//! Commands of the operator in a cluster of two replicas: the logs of both are verified together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::replicas::replica;
use super::server::PostgresServer;
use crate::consenting::{ApprovalGateway, TOKEN};
use crate::harness::headend;
use crate::mcp::ClientEra;
use crate::process::{eventually, output_within, said};

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
