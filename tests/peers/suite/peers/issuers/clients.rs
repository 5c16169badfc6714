//! Programs of others that sign in by the gateway's metadata alone.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use super::team::{IssuerSetup, TOOL};
use crate::mcp::MODERN;
use crate::peers::in_two_lanes;
use crate::process::{output_within, said};

/// A client: its runtime, script, version of the TypeScript SDK, era, and the revision that it
/// must report.
type LoginClient = (&'static str, &'static str, &'static str, &'static str, &'static str);

const CLIENTS: &[LoginClient] = &[
    ("node", "sdk-login.mjs", "v1", "legacy", "2025-11-25"),
    ("node", "sdk-login.mjs", "v2", "legacy", "2025-11-25"),
    ("node", "sdk-login.mjs", "v2", "modern", MODERN),
    ("venv1", "sdk-login.py", "", "legacy", "2025-11-25"),
    ("venv", "sdk-login.py", "", "legacy", "2025-11-25"),
    ("venv", "sdk-login.py", "", "modern", MODERN),
];

/// The person at the issuer agrees to few scopes at first, so a call that needs more is refused,
/// and the client asks for them.
#[test]
fn official_sdk_clients_sign_in_by_the_metadata_alone_and_ask_for_more_where_a_call_needs_it() {
    let Some(setup) = IssuerSetup::new(&[("CAUTIOUS", "yes")]) else { return };
    in_two_lanes(CLIENTS, |(runtime, script, sdk, era, revision)| {
        let calls = json!([{"name": TOOL, "arguments": {}},
            {"name": "notes__add", "arguments": {"title": format!("{script} {sdk} {era}"), "text": "x"}}]);
        let job = json!({"sdk": sdk, "era": era, "url": setup.place("/mcp"), "calls": calls});
        let report = setup.run(runtime, script, &job);
        let logins = report["logins"].as_array().unwrap();
        let all_passed = report["calls"].as_array().unwrap().iter().all(|call| call["isError"] == false);
        let asked_for_more = logins.len() == 2 && logins[1].as_str().unwrap().contains("mcp:write");
        let only_here = report["resources"] == json!([setup.place("/mcp"), setup.place("/mcp")]);
        let good = all_passed && asked_for_more && only_here && report["protocol"] == *revision;
        if good { Vec::new() } else { vec![format!("{runtime} {script} {sdk} {era}: {report}")] }
    });
    let registered = setup.issuer.events("registered").len();
    assert_eq!(registered, CLIENTS.len(), "{}", setup.issuer.story());
}

#[test]
fn official_sdk_clients_sign_in_at_a_profile() {
    let Some(setup) = IssuerSetup::new(&[]) else { return };
    let place = setup.place("/mcp/reading");
    in_two_lanes(&[CLIENTS[0], CLIENTS[2], CLIENTS[4]], |(runtime, script, sdk, era, revision)| {
        let job = json!({"sdk": sdk, "era": era, "url": place, "calls": [{"name": TOOL, "arguments": {}}]});
        let report = setup.run(runtime, script, &job);
        let good = report["protocol"] == *revision
            && report["calls"][0]["isError"] == false
            && report["resources"] == json!([place])
            && !report["tools"].to_string().contains("notes__");
        if good { Vec::new() } else { vec![format!("{runtime} {script} {sdk} {era}: {report}")] }
    });
}

/// `mcp-authlab` signs in by itself, and then tries tokens that a server must refuse.
#[test]
fn a_scanner_of_resource_servers_finds_nothing_critical() {
    let Some(setup) = IssuerSetup::new(&[]) else { return };
    let browser = crate::ground::root().join("tests/peers/open-login.mjs");
    let lab = |words: &[&str]| {
        let mut command = setup.gateway.world.command(setup.peers.python("python").to_str().unwrap());
        command.args(["-m", "mcp_authlab", words[0], &setup.place("/mcp")]).args(&words[1..]);
        command.env("BROWSER", format!("{} {} %s", setup.peers.node().display(), browser.display()));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = output_within(child, Duration::from_secs(120), "mcp-authlab");
        assert!(output.status.success(), "{}\n{}", said(&output), setup.issuer.story());
        output.stdout
    };
    lab(&["login", "--scope", "mcp:read offline_access", "--timeout", "60"]);
    // The token lacks the scope of this tool.
    let report = lab(&["scan", "--format", "json", "--tool", "notes__add"]);
    let report: Value = serde_json::from_slice(&report).unwrap();
    let results = report["results"].as_array().unwrap();
    // Plain HTTP on loopback is a warning.
    let known = ["TLS-01"];
    let failed: Vec<_> = results
        .iter()
        .filter(|one| one["status"] != "pass" && !known.contains(&one["id"].as_str().unwrap_or_default()))
        .collect();
    assert!(failed.is_empty() && results.len() >= 33, "{} checks\n{failed:#?}", results.len());
}
