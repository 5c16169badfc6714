//! The shipped example of a team: two people sign in at it with a client each.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use super::team::run;
use crate::harness::{Gateway, TestHome, headend, left_out};
use crate::peers::PeerFolders;
use crate::peers::logins::parts::EventPeer;
use crate::process::{free_port, said};
use crate::upstream::toml_array;

/// Returns the example with addresses, files and servers of this machine; rules, scopes and
/// profiles are as shipped.
fn example(world: &TestHome, port: u16, issuer: &str) -> String {
    let file = |name: &str| format!("{:?}", world.path(name));
    let text = fs::read_to_string(crate::ground::root().join("config/team.toml")).unwrap();
    let demo = |name: &str| format!("command = {}", toml_array([headend(), "demo", name]));
    let line = |line: &str| match line.split_once(" = ").unwrap_or((line, "")) {
        ("listen", value) if value.starts_with('[') => format!("listen = [\"127.0.0.1:{port}\"]"),
        ("listen", _) => "listen = \"127.0.0.1:0\"".to_owned(),
        ("allowed-hosts", _) => "allowed-hosts = [\"localhost\"]".to_owned(),
        ("certificate", _) => format!("certificate = {}", file("cert.pem")),
        ("key", value) if value.starts_with('"') => format!("key = {}", file("key.pem")),
        ("public-url", _) => format!("public-url = \"https://localhost:{port}\""),
        ("issuer", _) => format!("issuer = {issuer:?}"),
        ("command", _) => demo("notes"),
        ("url", _) => demo("time"),
        ("cwd" | "headers" | "group", _) => String::new(),
        _ => line.to_owned(),
    };
    text.lines().map(|one| line(one) + "\n").collect()
}

/// Makes a certificate of `localhost` that signs itself; false without openssl.
fn certificate(world: &TestHome) -> bool {
    let mut made = world.command("openssl");
    made.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    made.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    made.arg("-keyout").arg(world.path("key.pem")).arg("-out").arg(world.path("cert.pem"));
    made.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn two_people_sign_in_at_the_example_of_a_team() {
    let Some(peers) = PeerFolders::find() else { return };
    let world = TestHome::new();
    if !certificate(&world) {
        left_out("the example of a team", "openssl is not installed");
        return;
    }
    let issuer = EventPeer::start(&peers, &world, "oidc-provider.mjs", &[], &[]);
    let port = free_port();
    let config = world.write("headend.toml", &example(&world, port, &issuer.said("issuer")));
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    let report = |user: &str, era: &str, path: &str, calls: Value| {
        let url = format!("https://localhost:{port}{path}");
        let job = json!({"sdk": "v2", "era": era, "url": url, "user": user, "calls": calls});
        let trust = [("NODE_EXTRA_CA_CERTS", gateway.world.path("cert.pem"))];
        run(&gateway.world, &peers, "node", "sdk-login.mjs", &job, &trust)
    };
    let listed = |report: &Value, name: &str| report["tools"].as_array().unwrap().contains(&json!(name));
    let add = json!([{"name": "files__add", "arguments": {"title": "a", "text": "b"}},
        {"name": "docs__now", "arguments": {}}]);
    let alice = report("alice", "modern", "/mcp", add).unwrap();
    assert!(listed(&alice, "files__add") && listed(&alice, "docs__now"), "{alice}");
    assert!(alice["calls"].as_array().unwrap().iter().all(|call| call["isError"] == false), "{alice}");
    let bob = report("bob", "modern", "/mcp", json!([{"name": "docs__now", "arguments": {}}])).unwrap();
    assert!(!listed(&bob, "files__add") && bob["calls"][0]["isError"] == false, "{bob}");
    let bare = report("bob", "modern", "/mcp/docs-bare", json!([{"name": "now", "arguments": {}}])).unwrap();
    assert!(listed(&bare, "now") && bare["calls"][0]["isError"] == false, "{bare}");
    let refused = report("alice", "legacy", "/mcp/writing", json!([])).unwrap_err();
    assert!(refused.contains("404"), "the profile of a group that she is not in: {refused}");

    let records = said(&gateway.run(&["audit", "tail", "--json", "-n", "100"]));
    for caller in ["company:alice", "company:bob"] {
        assert!(records.contains(caller), "{caller}: {records}");
    }
}
